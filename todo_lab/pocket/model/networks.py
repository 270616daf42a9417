"""The pocket model: ldm's first stage and UNet with a CLIP text encoder, named as in a CompVis checkpoint.

`model.diffusion_model`, `first_stage_model` and `cond_stage_model.transformer` have the same names as in a
LatentDiffusion. So `apply_patch` finds the UNet, and every program for SD 1 checkpoints can load the exported file.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from todo_core.hosts import detect

from . import config

try:
    with contextlib.redirect_stdout(io.StringIO()):  # ldm prints a message without xformers
        from ldm.modules.attention import BasicTransformerBlock
        from ldm.modules.attention import CrossAttention as LdmCrossAttention
        from ldm.modules.attention import SpatialTransformer as LdmSpatialTransformer
        from ldm.modules.diffusionmodules.model import Decoder, Encoder
        from ldm.modules.diffusionmodules.openaimodel import UNetModel
        from ldm.modules.diffusionmodules.util import make_beta_schedule
        from ldm.modules.distributions.distributions import DiagonalGaussianDistribution
except ModuleNotFoundError as missing:
    if not (missing.name or "").startswith("ldm"):
        raise
    raise ModuleNotFoundError(
        f"The pocket model needs ldm ({missing}): pip install --no-deps stable-diffusion-sdkit==2.1.5",
        name=missing.name,
    ) from missing


class FirstStage(nn.Module):
    """KL autoencoder, factor 8, 4 channels (Rombach et al. 2022, section 3.1); images are -1..1, (b, 3, h, w)."""

    def __init__(self, settings: dict[str, Any] = config.FIRST_STAGE):
        super().__init__()
        channels = settings["z_channels"]
        self.encoder, self.decoder = Encoder(**settings), Decoder(**settings)
        self.quant_conv = nn.Conv2d(2 * channels, 2 * channels, 1)
        self.post_quant_conv = nn.Conv2d(channels, channels, 1)

    def encode(self, images: Tensor) -> DiagonalGaussianDistribution:
        """The distribution of latents (b, 4, h/8, w/8). `.mode()` is its mean."""
        return DiagonalGaussianDistribution(self.quant_conv(self.encoder(images)))

    def decode(self, latents: Tensor) -> Tensor:
        """Images (b, 3, 8h, 8w), about -1..1, from unscaled latents."""
        return self.decoder(self.post_quant_conv(latents))


class CrossAttention(LdmCrossAttention):
    """ldm's attention with torch's fused kernel, like the WebUI's `sdp` optimization."""

    def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Queries from `x` (b, n, c); keys and values from `context`, or from `x` without a context."""
        context = x if context is None else context

        def heads(tokens: Tensor) -> Tensor:
            return tokens.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        queries, keys, values = heads(self.to_q(x)), heads(self.to_k(context)), heads(self.to_v(context))
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        return self.to_out(mixed.transpose(1, 2).flatten(2))


class SpatialTransformer(LdmSpatialTransformer):
    """ldm's transformer with any number of blocks; ldm's own takes a context for each."""

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """`x` is (b, c, h, w). All blocks attend to the same context."""
        return super().forward(x, [context] * len(self.transformer_blocks))


def build_unet(settings: dict[str, Any]) -> nn.Module:
    """ldm's UNet. `transformer_depth` may be a list with the blocks at each level, as in SDXL."""
    depths = settings["transformer_depth"]
    if isinstance(depths, int):
        return UNetModel(**settings)
    host = detect(UNetModel(**{**settings, "transformer_depth": 1}))
    for site in host.sites:
        module: Any = site.transformer
        module.__class__ = SpatialTransformer
        width, heads = module.in_channels, module.transformer_blocks[0].attn1.heads
        sizes = {"n_heads": heads, "d_head": width // heads, "context_dim": settings["context_dim"]}
        depth = depths[host.depth + site.level - 1]
        more = (BasicTransformerBlock(width, **sizes, checkpoint=False) for _ in range(1, depth))
        module.transformer_blocks.extend(more)
    return host.unet


def fuse_attention(unet: nn.Module) -> nn.Module:
    """Give the attention of ldm's UNet the fused kernel."""
    for module in unet.modules():
        if type(module) is LdmCrossAttention:
            module.__class__ = CrossAttention
    return unet


class TextEncoder(nn.Module):
    """A CLIP text transformer: (b, 77) token ids in, the last hidden state (b, 77, width) out."""

    def __init__(self, vocabulary: int):
        super().__init__()
        from transformers import CLIPTextConfig, CLIPTextModel

        # the config requires these ids; the hidden states do not depend on them
        special: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
        self.transformer = CLIPTextModel(CLIPTextConfig(**config.TEXT, vocab_size=vocabulary, **special))

    def forward(self, ids: Tensor) -> Tensor:
        """The hidden states for the UNet's cross-attention."""
        return self.transformer(input_ids=ids).last_hidden_state


class PocketModel(nn.Module):
    """The three networks, the noise schedule and the scale of the latents. Predicts v (Salimans and Ho 2022)."""

    parameterization = "v"
    alphas_cumprod: Tensor
    scale_factor: Tensor

    def __init__(self, vocabulary: int, unet: dict[str, Any] = config.UNET):
        super().__init__()
        self.unet_settings = unet
        with contextlib.redirect_stdout(io.StringIO()):  # ldm prints the shapes of its layers
            self.model = nn.Module()
            self.model.diffusion_model = fuse_attention(build_unet(unet))
            self.first_stage_model = FirstStage()
        self.cond_stage_model = TextEncoder(vocabulary)
        schedule = {k: v for k, v in config.DIFFUSION.items() if k != "timesteps"}
        betas = torch.as_tensor(make_beta_schedule("linear", config.DIFFUSION["timesteps"], **schedule))
        self.register_buffer("alphas_cumprod", (1 - betas).cumprod(0).float(), persistent=False)
        self.register_buffer("scale_factor", torch.tensor(1.0))

    @property
    def unet(self) -> nn.Module:
        """The network that predicts v from noisy latents, timesteps and context."""
        return self.get_submodule("model.diffusion_model")
