"""CompVis and Stability UNets: ``ldm`` (SD v1, SD v2) and ``sgm`` (SDXL), alone or inside their LatentDiffusion.

Also the ControlNets that the WebUI's ControlNet extension builds of the same layers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.nn import Module

from ..reason import Reason
from ..token_grid import TokenGrid
from .host import IMAGE_PIXELS, Host, original
from .ldm_layers import ARGUMENTS, in_running_order, network_of, predicts_velocity, trained_side


def find(model: Any) -> Host | None:
    """The host of a LatentDiffusion, DiffusionEngine, UNetModel or ControlNet; None for anything else."""
    unet = original(getattr(getattr(model, "model", None), "diffusion_model", model))
    network = network_of(unet)
    if not network:
        return None
    is_sdxl = type(unet).__module__.startswith("sgm.")
    told = getattr(model, "image_size", None) or getattr(unet, "image_size", None) or 64
    side = trained_side(unet, velocity=predicts_velocity(model), is_sdxl=is_sdxl, otherwise=told)
    return Host(network, unet, partial(in_running_order, unet), side, ARGUMENTS, _conflict)


def _conflict(attention: Module, grid: TokenGrid) -> Reason | None:
    """HyperTile cuts each side by a divisor of it that leaves tiles of its size or more; large tiles cut nothing."""
    hypertile: Any = getattr(attention, "__webui_hypertile_params", None)
    if not getattr(hypertile, "enabled", False):
        return None
    smallest = int(max(128, hypertile.tile_size) / IMAGE_PIXELS * 2**hypertile.depth)
    is_cut = any(side % tile == 0 for side in grid.size for tile in range(smallest, side))
    return Reason.HYPERTILE if is_cut else None
