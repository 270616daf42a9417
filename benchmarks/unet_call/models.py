"""Full-size UNets with random weights, and calls of them: time does not depend on the weights.

Their attention is torch's scaled_dot_product_attention, as in the WebUI with --opt-sdp-attention. ldm's can also have
the attention that a WebUI puts into its classes (`optimize`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from todo_core.hosts import Host, detect
from todo_core.hosts.host import isinstance_str

CHANNELS = 320  # of the first level of SD 1.5 and SDXL
TIMESTEP = 500.0
SDXL_BLOCKS = 10  # in each of its deepest transformers
PIXELS = 8  # image pixels per latent pixel, each side


def _of_diffusers(name: str, channels: int, **config: Any) -> nn.Module:
    import diffusers

    widths = tuple(channels * n for n in (1, 2, 4, 4))
    return getattr(diffusers, name)(**{"block_out_channels": widths, "attention_head_dim": 8, **config})


def _sdxl(channels: int) -> nn.Module:
    widths = tuple(channels * n for n in (1, 2, 4))
    return _of_diffusers(
        "UNet2DConditionModel",
        channels,
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
    from ldm.modules.diffusionmodules.openaimodel import UNetModel

    fixed = {"image_size": 32, "in_channels": 4, "out_channels": 4, "num_res_blocks": 2, "legacy": False}
    fixed |= {"use_spatial_transformer": True, "use_checkpoint": False}
    return UNetModel(model_channels=channels, **fixed, **config)


def _sdxl_ldm(channels: int) -> nn.Module:
    """SDXL in ldm's modules, which sgm's are made after, without the labels that tell it the image's size."""
    from ldm.modules.attention import BasicTransformerBlock, SpatialTransformer

    widths = {"channel_mult": [1, 2, 4], "attention_resolutions": [4, 2], "num_head_channels": 64}
    unet = _of_ldm(channels, context_dim=2048, use_linear_in_transformer=True, **widths)
    for transformer in unet.modules():  # ldm gives all of them one block
        if isinstance(transformer, SpatialTransformer):
            width = transformer.in_channels
            more = (2 if width == 2 * channels else SDXL_BLOCKS) - 1
            blocks = (BasicTransformerBlock(width, width // 64, 64, context_dim=2048) for _ in range(more))
            transformer.transformer_blocks.extend(blocks)
            for block in transformer.transformer_blocks:
                block.checkpoint = False
    return unet


SD1_LDM = {"channel_mult": [1, 2, 4, 4], "attention_resolutions": [4, 2, 1], "num_heads": 8, "context_dim": 768}
LAYOUTS: dict[str, Callable[[int], nn.Module]] = {
    "sd1": lambda channels: _of_diffusers("UNet2DConditionModel", channels, sample_size=64, cross_attention_dim=768),
    "sdxl": _sdxl,
    "sd1-ldm": lambda channels: _of_ldm(channels, **SD1_LDM),
    "sdxl-ldm": _sdxl_ldm,
    "sd1-controlnet": lambda channels: _of_diffusers("ControlNetModel", channels, cross_attention_dim=768),
}


@dataclass(frozen=True)
class Clock:
    """Marks in time and the seconds between them. A GPU runs asynchronously, so there they are CUDA events."""

    device: str
    cpu_time: bool = False

    def mark(self) -> Any:
        """Now."""
        if self.device != "cuda":
            return time.process_time() if self.cpu_time else time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Until a GPU is idle."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def between(self, begin: Any, end: Any) -> float:
        """Seconds, once the GPU is idle."""
        return begin.elapsed_time(end) / 1000 if self.device == "cuda" else end - begin

    def seconds(self, run: Callable[[], Any]) -> float:
        """Of a run, from an idle GPU to an idle GPU."""
        self.wait()
        begin = self.mark()
        run()
        end = self.mark()
        self.wait()
        return self.between(begin, end)


def _attend_by_sdp(unet: nn.Module) -> None:
    """ldm's own attention would store the matrix of all pairs. As in the WebUI, the class gets another forward.

    ToDo leaves a module alone whose own forward was replaced.
    """
    from ldm.modules.attention import CrossAttention

    kind = type(CrossAttention.__name__, (CrossAttention,), {"forward": _sdp_forward})
    for module in unet.modules():
        if isinstance(module, CrossAttention):
            module.__class__ = kind


def _sdp_forward(attention: Any, x: Tensor, context: Tensor | None = None, mask: None = None) -> Tensor:
    """The WebUI's attention, without the mask, which is never given."""
    context = x if context is None else context
    projected = attention.to_q(x), attention.to_k(context), attention.to_v(context)
    q, k, v = (t.unflatten(2, (attention.heads, -1)).transpose(1, 2) for t in projected)
    return attention.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class _LatentDiffusion(nn.Module):
    """What tools for ldm expect: the UNet is an attribute, as in LatentDiffusion."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.diffusion_model = unet


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
    def is_ldm(self) -> bool:
        """Whether the UNet is one of ldm."""
        return self.layout.endswith("-ldm")

    @property
    def blocks(self) -> list[Any]:
        """The transformer blocks of level 1."""
        return [site.block for site in self.host.sites if site.level == 1]

    def call(self, side: int, batch: int) -> Callable[[], Any]:
        """A function that calls the UNet at a latent of ``side`` x ``side``."""
        like: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        torch.manual_seed(side)
        x = torch.randn(batch, 4, side, side, **like)
        if self.is_ldm:
            times = torch.full((batch,), TIMESTEP, device=self.device)
            text = torch.randn(batch, 77, 768 if self.layout == "sd1-ldm" else 2048, **like)
            return partial(self._ldm_call, x, times, [text] * SDXL_BLOCKS)  # ldm reads one for each block
        config: Any = self.unet.config
        given = {"encoder_hidden_states": torch.randn(batch, 77, config.cross_attention_dim, **like)}
        if config.addition_embed_type:
            pooled = torch.zeros(batch, config.projection_class_embeddings_input_dim - 6 * 256, **like)
            given["added_cond_kwargs"] = {"text_embeds": pooled, "time_ids": torch.zeros(batch, 6, **like)}
        if "conditioning_channels" in config:  # a ControlNet, which gets a picture
            picture = config.conditioning_channels, side * PIXELS, side * PIXELS
            given["controlnet_cond"] = torch.randn(batch, *picture, **like)
        return partial(self.unet, x, torch.tensor(TIMESTEP, device=self.device), **given)

    def _ldm_call(self, x: Tensor, times: Tensor, text: list[Tensor]) -> Tensor:
        """In half precision with autocast, as in the WebUI: ldm makes some tensors in float32."""
        with torch.autocast(self.device, self.dtype, enabled=self.dtype != torch.float32):
            return self.unet(x, times, text)


def build(
    layout: str,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    channels: int = CHANNELS,
    sdp: bool = True,
    clock: Clock | None = None,
) -> Subject:
    """The UNet of a layout. Fewer ``channels`` are for trials. Without ``sdp``, ldm's keeps its class's attention."""
    torch.manual_seed(0)
    with torch.device(device):
        unet = LAYOUTS[layout](channels).eval().requires_grad_(False)
    if dtype != "float32":
        unet = unet.to(getattr(torch, dtype))
        for module in unet.modules():
            if isinstance_str(module, "GroupNorm32"):  # of ldm; it casts its input to float32
                module.float()
    subject = Subject(layout, unet, unet, detect(unet), device, getattr(torch, dtype), clock or Clock(device))
    if not subject.is_ldm:
        return subject
    if sdp:
        _attend_by_sdp(unet)
    return replace(subject, model=_LatentDiffusion(unet))


def optimize(folder: Path, name: str, device: str, dtype: torch.dtype) -> None:
    """Load the WebUI in ``folder`` as far as its attention, and replace ldm's attention by the one called ``name``.

    Call it in a process of the WebUI's own Python, before ldm is imported. Exits if ``name`` is not available.
    """
    arguments, sys.argv = sys.argv, [sys.argv[0], *(["--use-cpu", "all", "--no-half"] if device == "cpu" else [])]
    sys.path.insert(0, str(folder))
    try:
        from modules import initialize  # it reads sys.argv

        initialize.imports()
        from modules import devices, sd_hijack_optimizations
    finally:
        sys.argv = arguments
    devices.dtype_unet = dtype  # of the time embedding; the WebUI sets it when it loads a checkpoint
    optimizers: list[Any] = []
    sd_hijack_optimizations.list_optimizers(optimizers)
    usable = {each.name: each for each in optimizers if each.is_available()}
    if name not in usable:
        raise SystemExit(f"--optimization: {name!r} is none of {', '.join(usable)}")
    usable[name].apply()
