"""Adapters for the model libraries, one small file each. They recognise a model without importing its library."""

from .detection import detect, find_controlnet
from .host import (
    Handle,
    Host,
    KeysPatch,
    Level,
    Site,
    blocks_of,
    counts_calls,
    has_foreign_forward,
    isinstance_str,
    weight_shape,
)

__all__ = [
    "Handle",
    "Host",
    "KeysPatch",
    "Level",
    "Site",
    "blocks_of",
    "counts_calls",
    "detect",
    "find_controlnet",
    "has_foreign_forward",
    "isinstance_str",
    "weight_shape",
]
