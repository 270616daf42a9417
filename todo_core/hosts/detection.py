"""Find the adapter that recognises a model."""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedModelError
from . import diffusers, forge, ldm
from .host import Host


def detect(model: Any) -> Host:
    """The host of ``model``. Raises UnsupportedModelError if it has nothing to reduce."""
    for adapter in (forge, ldm, diffusers):
        host = adapter.find(model)
        if host is not None and host.sites:
            return host
        if host is not None:
            raise UnsupportedModelError(host.unet, "its UNet has no spatial self-attention")
    raise UnsupportedModelError(
        model, "it is not a UNet of ldm, sgm or diffusers, a pipeline with one, or a ControlNet of diffusers"
    )
