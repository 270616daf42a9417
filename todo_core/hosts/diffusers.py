"""diffusers: UNet2DConditionModel of the SD1.5, SD2 and SDXL layouts, alone or in a pipeline; ControlNetModel of them.

A ControlNet is a UNet's first half, with outputs of its own where the second half would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch.nn import Module

from .host import Arguments, Host, numbered

_ARGUMENTS = Arguments(
    latent="sample",
    timestep="timestep",
    hidden="hidden_states",
    context="encoder_hidden_states",
    mask="attention_mask",
)


def find(model: Any) -> Host | None:
    """The host of a pipeline, a UNet or a ControlNet; None for anything else."""
    unet = getattr(model, "unet", model)
    second_half = hasattr(unet, "up_blocks") or hasattr(unet, "controlnet_down_blocks")
    if not (second_half and hasattr(unet, "down_blocks") and hasattr(unet, "mid_block")):
        return None
    sites, depth = numbered(_tour(unet))
    side = float(_first(getattr(unet.config, "sample_size", None)) or 64)
    return Host(
        "diffusers", unet, sites, depth, side, _ARGUMENTS, _busy, partial(_tour, unet), partial(_schedule, model)
    )


def _tour(unet: Any) -> Iterator[tuple[int, Module]]:
    """(depth, module) in running order; depth counts the halvings of what the module puts out.

    The middle block is registered last but runs between the others.
    """
    depth = 0
    yield depth, unet.conv_in
    for block in (*unet.down_blocks, unet.mid_block, *getattr(unet, "up_blocks", ())):
        resampled = depth + bool(getattr(block, "downsamplers", None)) - bool(getattr(block, "upsamplers", None))
        for name, part in block.named_children() if block is not None else ():
            here = resampled if name in ("downsamplers", "upsamplers") else depth
            yield from ((here, module) for module in part.modules())
        depth = resampled
    if hasattr(unet, "conv_out"):
        yield depth, unet.conv_out


def _first(size: Any) -> Any:
    return size[0] if isinstance(size, (list, tuple)) else size


def _busy(attention: Any) -> str:
    fused = "Fused" in type(getattr(attention, "processor", None)).__name__
    return "its query, key and value projections are fused; call unfuse_qkv_projections() first" if fused else ""


def _schedule(pipeline: Any) -> Any:
    """The timesteps that the pipeline's scheduler was last set to."""
    return getattr(getattr(pipeline, "scheduler", None), "timesteps", None)
