"""The same picture twice, baseline and reduced, from one first pass: the time and the image difference."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from todo_core.image_difference import Difference, difference, heat_map
from todo_core.settings import Settings

from .passes import LatentModel, OnStep, Pass, decode_image, first_pass, hires_pass, warm_up
from .request import Request


@dataclass(frozen=True)
class Comparison:
    """A baseline hires pass and a reduced one, with their images, uint8 (h, w, 3).

    `reduced_first` is `first` unless the settings reduce the first pass.
    """

    request: Request
    settings: Settings
    first: Pass
    reduced_first: Pass
    baseline: Pass
    reduced: Pass
    baseline_image: np.ndarray
    reduced_image: np.ndarray

    @property
    def planned_passes(self) -> list[Pass]:
        """The passes that have a plan."""
        return [each for each in (self.reduced_first, self.reduced) if each.plan]

    @property
    def speedup(self) -> float:
        """Median baseline step over median reduced step. The median ignores a single slow step."""
        return statistics.median(self.baseline.step_seconds) / statistics.median(self.reduced.step_seconds)

    @cached_property
    def difference(self) -> Difference:
        """Difference of the reduced image from the baseline."""
        return difference(self.baseline_image, self.reduced_image)

    @cached_property
    def heat_map(self) -> np.ndarray:
        """Where the two images differ."""
        return heat_map(self.baseline_image, self.reduced_image)


def reduces_first_pass(settings: Settings) -> bool:
    """Whether the settings act in the first pass."""
    return settings.passes in ("first", "all") and settings.method != "none"


def compare(model: LatentModel, request: Request, settings: Settings, *, on_step: OnStep | None = None) -> Comparison:
    """Sample the first pass once, then the baseline hires pass and the reduced one. Both are warmed up before timing.

    Settings for the first pass get a second, reduced first pass. The baseline always starts from the full one.
    """
    first = first_pass(model, request, on_step=on_step)
    reduced_first = first_pass(model, request, settings, on_step=on_step) if reduces_first_pass(settings) else first
    warm_up(model, request, first, settings)
    baseline = hires_pass(model, request, first, on_step=on_step)
    reduced = hires_pass(model, request, reduced_first, settings, on_step=on_step)
    images = decode_image(model, baseline), decode_image(model, reduced)
    return Comparison(request, settings, first, reduced_first, baseline, reduced, *images)
