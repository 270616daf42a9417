"""One picture twice, unreduced and reduced, from the same first pass: what it costs and what it saves."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from todo_core.image_difference import Difference, difference, heat_map
from todo_core.settings import Settings

from .passes import LatentModel, OnStep, Pass, first_pass, hires_pass, picture, warm_up
from .request import Request


@dataclass(frozen=True)
class Pair:
    """Two hires passes and their pictures, uint8 (h, w, 3). Settings for the hires pass alone have one first pass."""

    request: Request
    settings: Settings
    first: Pass
    reduced_first: Pass
    whole: Pass
    reduced: Pass
    whole_image: np.ndarray
    reduced_image: np.ndarray

    @property
    def planned(self) -> list[Pass]:
        """The passes for which the settings have a plan."""
        return [made for made in (self.reduced_first, self.reduced) if made.plan]

    @property
    def ratio(self) -> float:
        """How many times faster the reduced pass was: medians of the steps, so that one stray step does not count."""
        return statistics.median(self.whole.seconds) / statistics.median(self.reduced.seconds)

    @cached_property
    def difference(self) -> Difference:
        """Of the reduced picture to the whole one."""
        return difference(self.whole_image, self.reduced_image)

    @cached_property
    def heat_map(self) -> np.ndarray:
        """Where they differ."""
        return heat_map(self.whole_image, self.reduced_image)


def acts_first(settings: Settings) -> bool:
    """Whether the settings are for the first pass too, or alone."""
    return settings.passes in ("first", "all") and settings.method != "none"


def compare(model: LatentModel, request: Request, settings: Settings, *, on_step: OnStep | None = None) -> Pair:
    """Sample once at the base size, then the hires pass unreduced and reduced; both are warmed up before they count.

    Settings for the first pass act in a first pass of their own, so that the other one stays whole.
    """
    first = first_pass(model, request, on_step=on_step)
    reduced_first = first_pass(model, request, settings, on_step=on_step) if acts_first(settings) else first
    warm_up(model, request, first, settings)
    whole = hires_pass(model, request, first, on_step=on_step)
    reduced = hires_pass(model, request, reduced_first, settings, on_step=on_step)
    pictures = picture(model, whole), picture(model, reduced)
    return Pair(request, settings, first, reduced_first, whole, reduced, *pictures)
