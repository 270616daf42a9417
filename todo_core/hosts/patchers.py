"""Models whose UNet stands in a patcher: ComfyUI's, and those of Forge, Forge Classic, reForge and Forge Neo.

A patcher's options hold functions that each block calls. One kind is ``attn1_patch``: (input, keys, values, options) ->
(input, keys, values) of self-attention, before the projections. Other features project the keys themselves, so a hook
on attn1 would miss them; a patch does not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..errors import UnsupportedModelError
from .host import Host, KeysPatch, isinstance_str, original
from .ldm_layers import ARGUMENTS, in_running_order, network_of, predicts_velocity, sampler_of, trained_side


def find(model: Any) -> Host | None:
    """The host of a ModelPatcher, which the node of ``todo_core.comfyui`` gives to ``detect``, or of Forge's model.

    None for anything else. Raises UnsupportedModelError for Flux, SD3 and others.
    """
    if getattr(model, "forge_objects", None) is None and not isinstance_str(model, "ModelPatcher"):
        return None
    inner = _patcher(model).model
    unet = original(getattr(inner, "diffusion_model", inner))
    if network_of(unet) != "UNet":
        named = model if hasattr(model, "forge_objects") else inner  # as SD3 and Flux, whose parts have other names
        raise UnsupportedModelError(named, f"its {type(unet).__name__} is not a UNet of SD 1, SD 2 or SDXL")
    side = trained_side(unet, velocity=predicts_velocity(inner), is_sdxl=getattr(model, "is_sdxl", False))
    modules, patch_keys = partial(in_running_order, unet), partial(PatchHandle, model)
    return Host("UNet", unet, modules, side, ARGUMENTS, sampler=sampler_of(inner), patch_keys=patch_keys)


def _patcher(model: Any) -> Any:
    """The patcher of the moment: in Forge, other features put another one there in mid-pass."""
    return model.forge_objects.unet if hasattr(model, "forge_objects") else model


def with_keys_patch(options: dict[str, Any], patch: KeysPatch) -> dict[str, Any]:
    """``model_options`` with one more patch, the last: it gets what the patches of others have left.

    Only the dicts that lead to the patch are copied. ``clone`` of a patcher would also copy every object that other
    extensions have in the options, and so lose what those objects learn in a step.
    """
    transformer = options.get("transformer_options", {})
    patches = transformer.get("patches", {})
    patches = {**patches, "attn1_patch": [*patches.get("attn1_patch", ()), patch]}
    return {**options, "transformer_options": {**transformer, "patches": patches}}


class PatchHandle:
    """Adds a patch to the options of a model's patcher; ``remove`` gives the patcher its own options back."""

    def __init__(self, model: Any, patch: KeysPatch) -> None:
        self._patcher = _patcher(model)
        self._before = self._patcher.model_options
        self._ours = with_keys_patch(self._before, patch)
        self._patcher.model_options = self._ours

    def remove(self) -> None:
        """Take the patch off, unless something else has replaced the options."""
        if self._patcher.model_options is self._ours:
            self._patcher.model_options = self._before
