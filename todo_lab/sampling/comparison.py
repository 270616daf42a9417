"""The same picture twice, baseline and reduced, from one first pass: the time and the image difference."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from todo_core.image_difference import Difference, difference
from todo_core.settings import Settings

from .passes import LatentModel, OnStep, Sampled, decode_image, first_pass, hires_passes, warm_up
from .request import Request

WARM_UP, FIRST, REDUCED_FIRST, HIRES = "warm-up", "first", "reduced first", "hires"  # what `OnStep` is told
UNCERTAIN = 0.05  # a speed that may be off by more is uncertain


@dataclass(frozen=True)
class Timing:
    """Seconds per step of a baseline and a reduced pass that alternated.

    Each step is compared with the baseline's step beside it: what else the machine does slows both. ``kinds`` tells
    steps apart that do different work; each kind counts with its median, so that one slow step changes nothing.
    """

    baseline: Sequence[float]
    reduced: Sequence[float]
    kinds: Sequence[Hashable] = ()

    @property
    def _shares(self) -> list[list[float]]:
        """A reduced step's time over that of its baseline step, by kind."""
        shares: dict[Hashable, list[float]] = {}
        for kind, before, after in zip(self.kinds or [0] * len(self.reduced), self.baseline, self.reduced, strict=True):
            shares.setdefault(kind, []).append(after / before)
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
        """Whether the steps of the most frequent kind differ so much that their median says little."""
        most = max(self._shares, key=len)
        most.sort()
        quarter = len(most) // 4
        return (most[-1 - quarter] - most[quarter]) / math.sqrt(len(most)) > UNCERTAIN * statistics.median(most)


@dataclass(frozen=True)
class Comparison:
    """A baseline hires pass and a reduced one, with their images, uint8 (h, w, 3).

    `reduced_first` is `first` unless the settings reduce the first pass.
    """

    request: Request
    settings: Settings
    first: Sampled
    reduced_first: Sampled
    baseline: Sampled
    reduced: Sampled
    baseline_image: np.ndarray
    reduced_image: np.ndarray

    @property
    def timing(self) -> Timing:
        """Times of the two hires passes."""
        return Timing(self.baseline.step_seconds, self.reduced.step_seconds, self.reduced.kinds)

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


def _named(name: str, on_step: OnStep | None) -> OnStep | None:
    return on_step and (lambda _, step, steps: on_step(name, step, steps))
