"""When a setting has an effect. Most settings need certain values of others; these predicates say which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..reduction.downsampling import NEAREST


class Values(Protocol):
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


def acts(settings: Values) -> bool:
    """Whether anything is reduced."""
    return settings.method != "none"


def uses(*methods: str) -> Callable[[Values], bool]:
    """Whether one of these methods is in use."""
    return lambda settings: bool(settings.methods & set(methods))


def can_rotate(settings: Values) -> bool:
    """Whether the resampling keeps one token of each cell, whose position may rotate."""
    return "downsample" in settings.methods and settings.resample in NEAREST


def whole_module(settings: Values) -> bool:
    """Whether the whole input of modules is reduced."""
    return settings.target == "all" and settings.method != "none"
