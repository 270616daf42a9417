"""Adapters for the model libraries, one small file each. They recognise a model without importing its library."""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedModelError
from . import diffusers, ldm, patchers
from .host import Host

__all__ = ["Host", "detect", "find_controlnet"]


def detect(model: Any) -> Host:
    """The host of ``model``. Raises UnsupportedModelError if it has nothing to reduce."""
    for adapter in (patchers, ldm, diffusers):
        host = adapter.find(model)
        if host is not None and host.sites:
            return host
        if host is not None:
            raise UnsupportedModelError(host.unet, "no spatial transformer in it has self-attention")
    raise UnsupportedModelError(
        model, "it is not a UNet or ControlNet of ldm, sgm or diffusers, or a pipeline with one"
    )


def find_controlnet(module: Any) -> Host | None:
    """The host of a ControlNet of ldm's layers; None for anything else, or if it has nothing to reduce."""
    host = ldm.find(module)
    return host if host is not None and host.network == "ControlNet" and host.sites else None
