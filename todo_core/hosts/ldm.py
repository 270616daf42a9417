"""CompVis and Stability UNets: ``ldm`` (SD v1, SD v2) and ``sgm`` (SDXL), alone or inside their LatentDiffusion."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch.nn import Module

from .host import Arguments, Host, find_sites, isinstance_str

_ARGUMENTS = Arguments(latent="x", timestep="timesteps", hidden="x", context="context", mask="mask")


def find(model: Any) -> Host | None:
    """The host of a LatentDiffusion, DiffusionEngine or UNetModel; None for anything else."""
    unet = getattr(getattr(model, "model", None), "diffusion_model", model)
    if not all(hasattr(unet, part) for part in ("input_blocks", "middle_block", "output_blocks")):
        return None
    sites, depth = find_sites(_in_running_order(unet))
    kind = "sgm" if type(unet).__module__.startswith("sgm.") else "ldm"
    side = _trained_side(model, unet, sites[0].block if sites else None, kind)
    return Host(kind, unet, sites, depth, side, _ARGUMENTS, _conflict, partial(_in_running_order, unet))


def _in_running_order(unet: Any) -> Iterator[tuple[int, Module]]:
    """(depth, module) of all modules. A module's output has the size of the latent, halved ``depth`` times."""
    depth = 0
    for part in (unet.input_blocks, unet.middle_block, unet.output_blocks, unet.out):
        for module in part.modules():
            depth += _depth_change(module)
            yield depth, module


def _depth_change(module: Module) -> int:
    """+1 for a layer that halves the grid, -1 for one that doubles it.

    A ResBlock that resamples has two such layers, side by side. It counts once: the block cancels one of them.
    """
    inner = getattr(module, "h_upd", None)
    if inner is not None:
        return 0 if isinstance_str(inner, "Identity") else -_depth_change(inner)
    return isinstance_str(module, "Downsample") - isinstance_str(module, "Upsample")


def _trained_side(model: Any, unet: Any, block: Any, kind: str) -> float:
    """Side of the latent that the model was trained at, from what tells the known families apart."""
    if kind == "sgm":
        return 128
    text_width = _text_width(block) if block is not None else None
    if text_width == 1024 and getattr(model, "parameterization", None) == "v":
        return 96  # of the two SD2 models, the one with v-prediction was trained at 768 pixels
    if text_width in (768, 1024):
        return 64  # image_size of their UNet is 32, and marked "unused"
    return getattr(model, "image_size", None) or getattr(unet, "image_size", None) or 64


def _text_width(block: Any) -> int | None:
    projection = getattr(getattr(block, "attn2", None), "to_k", None)
    return getattr(projection, "in_features", None)


def _conflict(attention: Module) -> str:
    hypertile = getattr(attention, "__webui_hypertile_params", None)
    return "HyperTile splits it into tiles" if getattr(hypertile, "enabled", False) else ""
