"""When a setting matters: predicates on all of them, since most are of use only beside certain others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .reduction.downsample import NEAREST

if TYPE_CHECKING:
    from .settings import Settings


def acts(settings: Settings) -> bool:
    """Anything is reduced at all."""
    return settings.method != "none"


def uses(*methods: str) -> Callable[[Settings], bool]:
    """One of these methods can come to act."""
    return lambda settings: bool(settings.methods & set(methods))


def rotates(settings: Settings) -> bool:
    """The resampling keeps one token of a cell, which may be another each time."""
    return "downsample" in settings.methods and settings.resample in NEAREST


def whole_module(settings: Settings) -> bool:
    """Whole modules are shrunk, so that it matters which."""
    return settings.target == "all" and settings.method != "none"
