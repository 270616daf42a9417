"""What is predicted between steps, and in which steps it is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..space.level_plan import Reason
from .prediction import Hold, Line

Way = type[Line] | type[Hold]
Part = Literal["whole", "deep"]
PARTS: tuple[Part, ...] = ("whole", "deep")
WHOLE, DEEP = "whole steps", "layers below level 1"  # in words


@dataclass(frozen=True)
class PredictionPlan:
    """A part of the UNet that is predicted in some steps: the whole of it, or the transformers below level 1.

    It runs in every ``interval``-th step; with a ``tolerance``, in those that the measured error asks for, and
    ``interval`` is the longest gap (`pacing`). ``why`` says why it runs in every step. It ``may_change`` once steps,
    schedule and sampler of a pass are known.
    """

    what: str
    interval: int = 1
    tolerance: float | None = None
    way: Way = Line
    computed_first: int = Line.computed_first  # steps of a pass; its last one is computed too
    why: Reason | None = None
    may_change: bool = False

    @property
    def predicts(self) -> bool:
        """Whether it is predicted in some steps."""
        return self.why is None

    def computes(
        self, step: int, steps: int | None, computed: Sequence[int], gap: Callable[[], int] | None = None
    ) -> bool:
        """Whether it runs in ``step`` of ``steps``, after these computed steps. The first ones and the last one do.

        ``gap`` tells the one that the last errors allow, where they decide.
        """
        if not self.predicts or len(computed) < self.computed_first or (steps is not None and step + 1 >= steps):
            return True
        return step - computed[-1] >= (gap() if gap else self.interval)

    def computed_steps(self, steps: int) -> list[int]:
        """The steps of a pass of so many in which it runs; the fewest, where the measured error decides."""
        computed: list[int] = []
        for step in range(steps):
            if self.computes(step, steps, computed):
                computed.append(step)
        return computed

    def __str__(self) -> str:
        if self.why:
            return f"{self.what}, not predicted: {self.why}"
        if self.tolerance is None:
            return f"{self.what}, computed in 1 of {self.interval} steps"
        return f"{self.what}, computed as the error asks, tolerance {self.tolerance:g}"
