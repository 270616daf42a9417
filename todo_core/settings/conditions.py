"""When a setting matters: predicates on all of them, since most are of use only beside certain others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..reduction.downsampling import NEAREST


class Chosen(Protocol):
    """What these predicates read of ``Settings``."""

    @property
    def method(self) -> str: ...  # noqa: D102
    @property
    def methods(self) -> frozenset[str]: ...  # noqa: D102
    @property
    def resample(self) -> str: ...  # noqa: D102
    @property
    def target(self) -> str: ...  # noqa: D102
    @property
    def random(self) -> bool: ...  # noqa: D102


def acts(settings: Chosen) -> bool:
    """Anything is reduced at all."""
    return settings.method != "none"


def uses(*methods: str) -> Callable[[Chosen], bool]:
    """One of these methods can come to act."""
    return lambda settings: bool(settings.methods & set(methods))


def rotates(settings: Chosen) -> bool:
    """The resampling keeps one token of a cell, which may be another each time."""
    return "downsample" in settings.methods and settings.resample in NEAREST


def whole_module(settings: Chosen) -> bool:
    """Whole modules are shrunk, so that it matters which."""
    return settings.target == "all" and settings.method != "none"
