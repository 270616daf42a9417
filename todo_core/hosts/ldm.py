"""CompVis and Stability UNets: ``ldm`` (SD v1, SD v2) and ``sgm`` (SDXL), alone or inside their LatentDiffusion.

Also the ControlNets that the WebUI's ControlNet extension builds of the same layers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.nn import Module

from ..reason import Reason
from ..token_grid import TokenGrid
from .host import IMAGE_PIXELS, Host, find_sites, original
from .ldm_layers import ARGUMENTS, in_running_order, is_controlnet, is_unet, text_width, trained_side


def find(model: Any) -> Host | None:
    """The host of a LatentDiffusion, DiffusionEngine, UNetModel or ControlNet; None for anything else."""
    unet = original(getattr(getattr(model, "model", None), "diffusion_model", model))
    network = "UNet" if is_unet(unet) else "ControlNet" if is_controlnet(unet) else ""
    if not network:
        return None
    sites, depth = find_sites(in_running_order(unet))
    side = _trained_side(model, unet, sites[0].block if sites else None)
    return Host(network, unet, sites, depth, side, ARGUMENTS, _conflict, partial(in_running_order, unet))


def _trained_side(model: Any, unet: Any, block: Any) -> float:
    """Side of the latent that the model was trained at: the family's, or what the model tells."""
    width = text_width(block) if block is not None else None
    is_sdxl = type(unet).__module__.startswith("sgm.")
    if is_sdxl or width in (768, 1024, 2048):  # image_size of their UNet is 32, and marked "unused"
        return trained_side(width, velocity=getattr(model, "parameterization", None) == "v", is_sdxl=is_sdxl)
    return getattr(model, "image_size", None) or getattr(unet, "image_size", None) or 64


def _conflict(attention: Module, grid: TokenGrid) -> Reason | None:
    """HyperTile cuts each side by a divisor of it that leaves tiles of its size or more; large tiles cut nothing."""
    hypertile: Any = getattr(attention, "__webui_hypertile_params", None)
    if not getattr(hypertile, "enabled", False):
        return None
    smallest = int(max(128, hypertile.tile_size) / IMAGE_PIXELS * 2**hypertile.depth)
    is_cut = any(side % tile == 0 for side in grid.size for tile in range(smallest, side))
    return Reason.HYPERTILE if is_cut else None
