"""The same picture as baseline, reduced, and with fewer steps, from one first pass: time and image difference."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from todo_core.image_difference import Difference, difference
from todo_core.settings import Settings, preset_name

from .passes import LatentModel, OnStep, Sampled, decode_image, first_pass, hires_passes, warm_up
from .request import Request

WARM_UP, FIRST, REDUCED_FIRST, HIRES, PLAIN = "warm-up", "first", "reduced first", "hires", "plain"  # `OnStep` hears
UNCERTAIN = 0.05  # a speed that may be off by more is uncertain
SLACK = 0.1  # of a step: plain steps may take so much less time


@dataclass(frozen=True)
class Timing:
    """Seconds per step of a baseline and a reduced pass that alternated.

    Each step is compared with the baseline's step beside it: what else the machine does slows both. Each of the kinds,
    which do different work, counts with its median, so that one slow step changes nothing. Steps of an empty kind do
    all the baseline's work, and count as its steps where those differ.
    """

    baseline: Sequence[float]
    reduced: Sequence[float]
    kinds: Sequence[Hashable] = ()

    @property
    def _noise(self) -> float:
        """How much the baseline's steps differ, which all do the same work; relative to their median."""
        return _spread(self.baseline) / statistics.median(self.baseline)

    @property
    def _shares(self) -> list[list[float]]:
        """A reduced step's time over that of its baseline step, by kind."""
        shares: dict[Hashable, list[float]] = {}
        is_busy, kinds = self._noise > UNCERTAIN, self.kinds or [True] * len(self.reduced)
        for kind, before, after in zip(kinds, self.baseline, self.reduced, strict=True):
            shares.setdefault(kind, []).append(after / before if kind or not is_busy else 1.0)
        return [*shares.values()]

    @property
    def speed(self) -> float:
        """How many times faster the reduced pass is."""
        return len(self.reduced) / sum(len(kind) * statistics.median(kind) for kind in self._shares)

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of a pass without disturbance: baseline, reduced."""
        baseline = len(self.baseline) * statistics.median(self.baseline)
        return baseline, baseline / self.speed

    @property
    def is_uncertain(self) -> bool:
        """Whether steps of a kind differ so much that the sum says little; one alone may be off as the baseline's."""
        off = 0.0
        for kind in self._shares:
            off += math.sqrt(len(kind)) * (_spread(kind) if len(kind) > 1 else self._noise * kind[0])
        return off > UNCERTAIN * len(self.reduced) / self.speed


def _spread(values: Sequence[float]) -> float:
    """The distance of the quartiles."""
    ordered, quarter = sorted(values), len(values) // 4
    return ordered[-1 - quarter] - ordered[quarter]


@dataclass(frozen=True)
class Comparison:
    """A baseline hires pass and a reduced one, with their images, uint8 (h, w, 3).

    `reduced_first` is `first` unless the settings reduce the first pass. `plain` steps are the baseline with so many.
    """

    request: Request
    settings: Settings
    first: Sampled
    reduced_first: Sampled
    baseline: Sampled
    reduced: Sampled
    baseline_image: np.ndarray
    reduced_image: np.ndarray
    plain: int = 0

    @property
    def name(self) -> str:
        """The name of the preset, or how many plain steps."""
        return f"{self.plain} plain steps" if self.plain else preset_name(self.settings)

    @property
    def acted(self) -> bool:
        """Whether less was computed than in the baseline."""
        return bool(self.plain) or self.reduced.record.acted

    @property
    def timing(self) -> Timing:
        """Times of the two hires passes. Plain steps take a share of the baseline's time: they do the same work."""
        seconds, calls = self.baseline.step_seconds, self.reduced.step_seconds
        if self.plain:
            return Timing(seconds, [each * len(calls) / len(seconds) for each in seconds])
        return Timing(seconds, calls, self.reduced.kinds)

    @cached_property
    def difference(self) -> Difference:
        """Difference of the reduced image from the baseline."""
        return difference(self.baseline_image, self.reduced_image)


def most_different(baseline: np.ndarray, image: np.ndarray, side: int) -> tuple[slice, slice]:
    """Rows and columns of the square where two images (h, w, 3) differ most, by a summed-area table (Crow 1984)."""
    squares = np.square(baseline.astype(float) - image).sum(-1)
    sums = np.pad(squares, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    windows = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    top, left = map(int, np.unravel_index(np.argmax(windows), windows.shape))
    return slice(top, top + side), slice(left, left + side)


def reduces_first_pass(settings: Settings) -> bool:
    """Whether the settings act in the first pass."""
    return settings.includes("first") and settings.method != "none"


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


def plain_steps(model: LatentModel, beside: Comparison, *, on_step: OnStep | None = None) -> Comparison:
    """The baseline with as many steps as take the time of another hires pass, or up to one more."""
    steps = beside.request.hires_steps
    count = min(steps, math.ceil(steps / beside.timing.speed - SLACK))
    request, made = replace(beside.request, hires_steps=count), beside.baseline
    if count < steps:
        (made,) = hires_passes(model, request, [beside.first], [None], on_step=_named(PLAIN, on_step))
    asked = replace(beside, request=request, settings=Settings(method="none"), plain=count)
    return replace(asked, reduced_first=beside.first, reduced=made, reduced_image=decode_image(model, made))


def _named(name: str, on_step: OnStep | None) -> OnStep | None:
    return on_step and (lambda _, step, steps: on_step(name, step, steps))
