"""The Forge family of WebUIs: Forge, Forge Classic and reForge.

Their model holds its UNet in a patcher. The patcher's ``model_options`` hold functions that each block calls. One kind
is ``attn1_patch``: (input, keys, values, options) -> (input, keys, values) of self-attention, before the projections.
Other features of these WebUIs project the keys themselves, so a hook on attn1 would miss them; a patch does not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..errors import UnsupportedModelError
from .host import Arguments, Host, KeysPatch, find_sites, original
from .ldm_layers import in_running_order, is_unet, text_width

_ARGUMENTS = Arguments(latent="x", timestep="timesteps", hidden="x", context="context", mask="mask")
_SDXL_WIDTHS = (2048, 1280)  # of the text of base and refiner


def find(model: Any) -> Host | None:
    """The host of the WebUI's model; None for anything else. Raises UnsupportedModelError for Flux, SD3 and others."""
    if getattr(model, "forge_objects", None) is None:
        return None
    unet = original(model.forge_objects.unet.model.diffusion_model)
    if not is_unet(unet):
        raise UnsupportedModelError(unet, "it is not a UNet of SD 1, SD 2 or SDXL")
    sites, depth = find_sites(in_running_order(unet))
    side = _trained_side(model, text_width(sites[0].block) if sites else None)
    modules, patch_keys = partial(in_running_order, unet), partial(_PatchHandle, model)
    return Host("UNet", unet, sites, depth, side, _ARGUMENTS, lambda *_: "", modules, patch_keys=patch_keys)


def _trained_side(model: Any, width: int | None) -> float:
    """Side of the latent that the model was trained at; ``width`` is None where the weights are packed."""
    if getattr(model, "is_sdxl", False) or width in _SDXL_WIDTHS:
        return 128
    return 96 if width == 1024 and _predicts_velocity(model.forge_objects.unet.model) else 64  # the SD2 of 768 pixels


def _predicts_velocity(inner: Any) -> bool:
    """Forge keeps a text in the predictor, the others an enum beside the UNet."""
    in_forge = getattr(getattr(inner, "predictor", None), "prediction_type", "")
    in_others = getattr(getattr(inner, "model_type", None), "name", "")
    return in_forge == "v_prediction" or in_others == "V_PREDICTION"


class _PatchHandle:
    """Adds a patch to the model's current patcher; ``remove`` gives the patcher its own options back.

    The patch goes into a copy of the dicts that lead to it. ``clone`` of the patcher would also copy every object that
    other extensions have in the options, and so lose what those objects learn in a step.
    """

    def __init__(self, model: Any, patch: KeysPatch) -> None:
        self._patcher = model.forge_objects.unet
        self._before = self._patcher.model_options
        options = self._before.get("transformer_options", {})
        patches = options.get("patches", {})
        # last, so that it gets what the patches of others have left
        patches = {**patches, "attn1_patch": [*patches.get("attn1_patch", ()), patch]}
        self._ours = {**self._before, "transformer_options": {**options, "patches": patches}}
        self._patcher.model_options = self._ours

    def remove(self) -> None:
        """Take the patch off, unless something else has replaced the options."""
        if self._patcher.model_options is self._ours:
            self._patcher.model_options = self._before
