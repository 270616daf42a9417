"""The Forge family of WebUIs: Forge, Forge Classic, reForge and Forge Neo. Their model holds its UNet in a patcher."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..errors import UnsupportedModelError
from .host import Arguments, Host, find_sites, original
from .ldm_layers import in_running_order, is_unet, predicts_velocity, text_width, trained_side
from .patcher_options import PatchHandle

_ARGUMENTS = Arguments(latent="x", timestep="timesteps", hidden="x", context="context", mask="mask")


def find(model: Any) -> Host | None:
    """The host of the WebUI's model; None for anything else. Raises UnsupportedModelError for Flux, SD3 and others."""
    if getattr(model, "forge_objects", None) is None:
        return None
    unet = original(model.forge_objects.unet.model.diffusion_model)
    if not is_unet(unet):
        raise UnsupportedModelError(unet, "it is not a UNet of SD 1, SD 2 or SDXL")
    sites, depth = find_sites(in_running_order(unet))
    side = _trained_side(model, text_width(sites[0].block) if sites else None)
    modules, patch_keys = partial(in_running_order, unet), partial(PatchHandle, partial(_patcher, model))
    return Host("UNet", unet, sites, depth, side, _ARGUMENTS, lambda *_: "", modules, patch_keys=patch_keys)


def _patcher(model: Any) -> Any:
    return model.forge_objects.unet  # other features put another one there in mid-pass


def _trained_side(model: Any, width: int | None) -> float:
    """Side of the latent that the model was trained at; ``width`` is None where the weights are packed."""
    if getattr(model, "is_sdxl", False):
        return 128
    return trained_side(width, velocity=predicts_velocity(model.forge_objects.unet.model))
