"""What the runner needs of whatever makes the images: a stage for each scene, which shoots it in one way or another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ...sampling.request import Request
from ..running.variants import Variant


@dataclass
class Shot:
    """One image and what it took. Times are in seconds, ``steps`` those of each step of the hires pass."""

    image: np.ndarray  # uint8 (h, w, 3)
    steps: list[float]
    first_seconds: float
    hires_seconds: float
    whole_seconds: float
    infotext: str = ""
    plan: str = ""
    notes: Sequence[str] = ()
    peak_mib: float | None = None
    peak_kind: str = "not available"
    more: dict[str, Any] = field(default_factory=dict)


class Stage(Protocol):
    """One scene: its first pass is sampled, or known to come out the same every time."""

    def shoot(self, variant: Variant) -> Shot:
        """The image in this way, timed."""

    def pace(self) -> list[float]:
        """Seconds of a few unreduced steps of the hires pass now, to time a variant against its own minute."""

    def warm_up(self, variant: Variant) -> None:
        """Let kernels, caches and memory for this variant come to be before it counts."""


class Backend(Protocol):
    """Makes stages. ``about`` goes into the report: what ran, on what."""

    about: dict[str, str]

    def stage(self, request: Request) -> Stage:
        """Get ready for a scene."""
