"""Full-size UNets with random weights, and calls of them: time does not depend on the weights.

Their attention is torch's scaled_dot_product_attention, as in the WebUI with --opt-sdp-attention.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from todo_core.hosts import Host, detect
from todo_core.hosts.host import isinstance_str

CHANNELS = 320  # of the first level of SD 1.5 and SDXL
TIMESTEP = 500.0
SDXL_BLOCKS = 10  # in each of its deepest transformers
PIXELS = 8  # image pixels per latent pixel, each side


def _sd1(channels: int) -> nn.Module:
    from diffusers import UNet2DConditionModel

    widths = tuple(channels * n for n in (1, 2, 4, 4))
    return UNet2DConditionModel(64, block_out_channels=widths, cross_attention_dim=768, attention_head_dim=8)


def _sdxl(channels: int) -> nn.Module:
    from diffusers import UNet2DConditionModel

    widths = tuple(channels * n for n in (1, 2, 4))
    return UNet2DConditionModel(
        sample_size=128,
        block_out_channels=widths,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=(1, 2, SDXL_BLOCKS),
        attention_head_dim=tuple(max(1, width // 64) for width in widths),
        use_linear_projection=True,
        cross_attention_dim=2048,
        addition_embed_type="text_time",
        addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816,
    )


def _of_ldm(channels: int, **config: Any) -> nn.Module:
    """ldm's UNet, which SDXL's sgm is made after; that of SDXL without the labels that tell it the image's size."""
    from todo_lab.pocket.model.networks import build_unet, fuse_attention  # ldm need not be installed for diffusers'

    fixed = {"image_size": 32, "in_channels": 4, "out_channels": 4, "num_res_blocks": 2, "legacy": False}
    fixed |= {"use_spatial_transformer": True, "use_checkpoint": False, "model_channels": channels}
    return fuse_attention(build_unet({**fixed, **config}))


SD1_LDM = {"channel_mult": [1, 2, 4, 4], "attention_resolutions": [4, 2, 1], "num_heads": 8, "context_dim": 768}
SDXL_LDM = {"channel_mult": [1, 2, 4], "attention_resolutions": [4, 2], "num_head_channels": 64, "context_dim": 2048}
SDXL_LDM |= {"use_linear_in_transformer": True, "transformer_depth": [0, 2, SDXL_BLOCKS]}
LAYOUTS: dict[str, Callable[[int], nn.Module]] = {
    "sd1": _sd1,
    "sdxl": _sdxl,
    "sd1-ldm": lambda channels: _of_ldm(channels, **SD1_LDM, transformer_depth=1),
    "sdxl-ldm": lambda channels: _of_ldm(channels, **SDXL_LDM),
}
UNETS = {"SDXL": "sdxl", "SD 1.5": "sd1"}  # as the tables name them


@dataclass(frozen=True)
class Clock:
    """Marks in time and the seconds between them. A GPU runs asynchronously, so there they are CUDA events."""

    device: str
    cpu_time: bool

    def mark(self) -> Any:
        """Now."""
        if self.device != "cuda":
            return time.process_time() if self.cpu_time else time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Wait until a GPU is idle."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def between(self, begin: Any, end: Any) -> float:
        """Seconds, once the GPU is idle."""
        return begin.elapsed_time(end) / 1000 if self.device == "cuda" else end - begin

    def seconds(self, run: Callable[[], Any]) -> float:
        """The seconds of a run, from an idle GPU to an idle GPU."""
        self.wait()
        begin = self.mark()
        run()
        end = self.mark()
        self.wait()
        return self.between(begin, end)


@dataclass(frozen=True, eq=False)
class Subject:
    """The UNet that is timed. Patches are applied to ``model``."""

    layout: str
    unet: nn.Module
    model: nn.Module
    host: Host
    device: str
    dtype: torch.dtype
    clock: Clock

    @property
    def blocks(self) -> list[Any]:
        """The transformer blocks of level 1."""
        return [site.block for site in self.host.sites if site.level == 1]

    def call(self, side: int, batch: int) -> Callable[[], Any]:
        """A function that calls the UNet at a latent of ``side`` x ``side``."""
        like: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        torch.manual_seed(side)
        x = torch.randn(batch, 4, side, side, **like)
        if self.layout.endswith("-ldm"):
            times = torch.full((batch,), TIMESTEP, device=self.device)
            text = torch.randn(batch, 77, 768 if self.layout == "sd1-ldm" else 2048, **like)
            return partial(self._ldm_call, x, times, text)
        config: Any = self.unet.config
        given = {"encoder_hidden_states": torch.randn(batch, 77, config.cross_attention_dim, **like)}
        if config.addition_embed_type:
            pooled = torch.zeros(batch, config.projection_class_embeddings_input_dim - 6 * 256, **like)
            given["added_cond_kwargs"] = {"text_embeds": pooled, "time_ids": torch.zeros(batch, 6, **like)}
        return partial(self.unet, x, torch.tensor(TIMESTEP, device=self.device), **given)

    def _ldm_call(self, x: Tensor, times: Tensor, text: Tensor) -> Tensor:
        """Runs in half precision with autocast, as in the WebUI: ldm makes some tensors in float32."""
        with torch.autocast(self.device, self.dtype, enabled=self.dtype != torch.float32):
            return self.unet(x, times, text)


def build(layout: str, channels: int, device: str = "cpu", dtype: str = "float32", cpu_time: bool = False) -> Subject:
    """The UNet of a layout. Fewer ``channels`` are for trials."""
    torch.manual_seed(0)
    with torch.device(device):
        unet = LAYOUTS[layout](channels).eval().requires_grad_(False)
    if dtype != "float32":
        unet = unet.to(getattr(torch, dtype))
        for module in unet.modules():
            if isinstance_str(module, "GroupNorm32"):  # of ldm; it casts its input to float32
                module.float()
    model: Any = unet
    if layout.endswith("-ldm"):
        model = nn.Module()  # tools for ldm expect a LatentDiffusion, which has the UNet as an attribute
        model.model = nn.Module()
        model.model.diffusion_model = unet
    return Subject(layout, unet, model, detect(unet), device, getattr(torch, dtype), Clock(device, cpu_time))


@cache
def full_host(layout: str) -> Host:
    """The host of one of UNETS in its full width, without weights."""
    return build(UNETS[layout], CHANNELS, "meta").host
