"""The same picture twice, baseline and reduced, from one first pass: the time and the image difference."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from todo_core.image_difference import Difference, difference, heat_map
from todo_core.settings import Settings

from .passes import LatentModel, OnStep, Pass, decode_image, first_pass, hires_passes, warm_up
from .request import Request

WARM_UP, FIRST, REDUCED_FIRST, HIRES = "warm-up", "first", "reduced first", "hires"  # what `OnStep` is told
UNCERTAIN = 1.2  # slowest baseline step over the fastest; all baseline steps do the same work


@dataclass(frozen=True)
class Timing:
    """Seconds per step of a baseline and a reduced pass that alternated. All figures come from these steps.

    ``predicted`` are the steps in which something was predicted: they take much less time than the others.
    """

    baseline: Sequence[float]
    reduced: Sequence[float]
    predicted: Collection[int] = ()

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of all steps: baseline, reduced."""
        return sum(self.baseline), sum(self.reduced)

    @property
    def speed(self) -> float:
        """Seconds of the baseline over those of the reduced pass."""
        baseline, reduced = self.seconds
        return baseline / reduced

    @property
    def typical_speed(self) -> float:
        """The speed if each step took the median of its kind: one slow step changes nothing."""
        kinds: tuple[list[float], list[float]] = ([], [])
        for step, seconds in enumerate(self.reduced):
            kinds[step in self.predicted].append(seconds)
        reduced = sum(len(kind) * statistics.median(kind) for kind in kinds if kind)
        return len(self.baseline) * statistics.median(self.baseline) / reduced

    @property
    def is_uncertain(self) -> bool:
        """Whether the machine was busy with something else: the baseline's steps differ by more than 20 %."""
        return max(self.baseline) > UNCERTAIN * min(self.baseline)


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
    def timing(self) -> Timing:
        """Times of the two hires passes."""
        return Timing(self.baseline.step_seconds, self.reduced.step_seconds, self.reduced.record.predicted_in)

    @property
    def speedup(self) -> float:
        """Seconds of the baseline over those of the reduced pass."""
        return self.timing.speed

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
    return settings.includes("first") and settings.method != "none"


def compare(model: LatentModel, request: Request, settings: Settings, *, on_step: OnStep | None = None) -> Comparison:
    """Compare one reduced hires pass with the baseline; see `compare_all`."""
    return compare_all(model, request, [settings], on_step=on_step)[0]


def compare_all(
    model: LatentModel, request: Request, variants: Sequence[Settings], *, on_step: OnStep | None = None
) -> list[Comparison]:
    """Sample the first pass once, then the baseline and all reduced hires passes, step by step in turn.

    A warm-up comes first. Settings for the first pass get a first pass of their own.
    """
    everything = [None, *variants]
    warm_up(model, request, everything, on_step=_named(WARM_UP, on_step))
    first = first_pass(model, request, on_step=on_step)
    own = _named(REDUCED_FIRST, on_step)
    firsts = [
        first_pass(model, request, settings, on_step=own) if settings and reduces_first_pass(settings) else first
        for settings in everything
    ]
    baseline, *reduced = hires_passes(model, request, firsts, everything, on_step=on_step)
    image = decode_image(model, baseline)
    return [
        Comparison(request, settings, first, own_first, baseline, each, image, decode_image(model, each))
        for settings, own_first, each in zip(variants, firsts[1:], reduced, strict=True)
    ]


def _named(name: str, on_step: OnStep | None) -> OnStep | None:
    return on_step and (lambda _, step, steps: on_step(name, step, steps))
