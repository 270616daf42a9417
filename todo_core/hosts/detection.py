"""Find the adapter that knows a model."""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedModelError
from . import diffusers, ldm
from .host import Host


def detect(model: Any) -> Host:
    """The host of ``model``. Raises UnsupportedModelError by name where there is nothing to reduce."""
    for adapter in (ldm, diffusers):
        host = adapter.find(model)
        if host is not None and host.sites:
            return host
        if host is not None:
            raise UnsupportedModelError(host.unet, "its UNet has no spatial self-attention")
    raise UnsupportedModelError(
        model, "it is no UNet of ldm, sgm or diffusers, no pipeline that has one and no ControlNet of diffusers"
    )
