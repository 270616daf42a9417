"""The interface between the measurement and whatever makes the images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ...sampling.request import Request
from ..variants import Variant


@dataclass
class TimedImage:
    """One image and its times in seconds. ``step_seconds`` are those of the hires pass.

    ``share`` is that of the request's hires steps which the pass makes.
    """

    image: np.ndarray  # uint8 (h, w, 3)
    step_seconds: list[float]
    first_seconds: float
    hires_seconds: float
    total_seconds: float
    infotext: str = ""
    plan: str = ""
    notes: Sequence[str] = ()
    peak_mib: float | None = None
    share: float = 1.0
    more: dict[str, Any] = field(default_factory=dict)


class PreparedScene(Protocol):
    """One scene whose first pass is sampled, or is the same for every request."""

    def generate(self, variant: Variant) -> TimedImage:
        """Make the image with a variant."""

    def time_baseline_steps(self) -> list[float]:
        """Seconds of a few baseline steps of the hires pass, measured now.

        They tell how fast the machine is at this moment, so that a variant is compared with its own time.
        """

    def warm_up(self, variant: Variant) -> None:
        """Prepare kernels, caches and memory for a variant before it is timed."""


class Backend(Protocol):
    """Prepares scenes. ``about`` goes into the report: what ran, and on what."""

    about: dict[str, str]

    def prepare(self, request: Request) -> PreparedScene:
        """Prepare a scene."""
