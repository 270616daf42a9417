"""ComfyUI: a model is a patcher around the UNet. The node of ``todo_core.comfyui`` gives it to ``detect``."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..errors import UnsupportedModelError
from .host import Arguments, Host, find_sites, isinstance_str, original
from .ldm_layers import in_running_order, is_unet, predicts_velocity, text_width, trained_side
from .patcher_options import PatchHandle

_ARGUMENTS = Arguments(latent="x", timestep="timesteps", hidden="x", context="context", mask="mask")


def find(model: Any) -> Host | None:
    """The host of a ModelPatcher; None for anything else. Raises UnsupportedModelError for Flux, SD3 and others."""
    if not isinstance_str(model, "ModelPatcher"):
        return None
    unet = original(getattr(model.model, "diffusion_model", model.model))
    if not is_unet(unet):
        raise UnsupportedModelError(unet, "it is not a UNet of SD 1, SD 2 or SDXL")
    sites, depth = find_sites(in_running_order(unet))
    side = trained_side(text_width(sites[0].block) if sites else None, velocity=predicts_velocity(model.model))
    modules, patch_keys = partial(in_running_order, unet), partial(PatchHandle, lambda: model)
    return Host("UNet", unet, sites, depth, side, _ARGUMENTS, lambda *_: "", modules, patch_keys=patch_keys)
