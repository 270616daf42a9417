"""What is predicted between steps, and in which steps it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...course import Course
from ...reason import Reason, Why
from .prediction import Hold, Line

Way = type[Line] | type[Hold]
Part = Literal["whole", "deep"]
AUTO_FEWEST = 6  # steps of a pass in which auto predicts
PARTS: tuple[Part, ...] = ("whole", "deep")
NAMES: dict[Part, str] = {"whole": "whole steps", "deep": "layers below level 1"}
# why a part is not predicted until steps, schedule and sampler of a pass are known, or its calls are other than told
NOT_YET = {Reason.STEPS_UNKNOWN, Reason.SCHEDULE_UNKNOWN, Reason.UNKNOWN, Reason.WHOLE_INSTEAD}


@dataclass(frozen=True)
class PredictionPlan:
    """A part of the UNet that is predicted in some steps: the whole of it, or the transformers below level 1.

    It runs in every ``interval``-th step; with a ``tolerance``, in those that the measured error asks for, and
    ``interval`` is the longest gap (`pacing`). ``why`` says why it runs in every step. By the ``course`` of the pass
    the next computed step makes up what predictions have missed.
    """

    part: Part
    interval: int = 1
    tolerance: float | None = None
    way: Way = Line
    computed_first: int = Line.computed_first  # steps at the start of a pass
    why: Why | None = None
    course: Course | None = None

    @property
    def predicts(self) -> bool:
        """Whether it is predicted in some steps."""
        return self.why is None

    @property
    def may_predict(self) -> bool:
        """Whether it is predicted in some steps, or may be once more is known of the pass."""
        return self.why is None or self.why in NOT_YET

    @property
    def computed_last(self) -> int:
        """How many steps at the end of the pass are computed."""
        return self.course.computed_last if self.course and self.tolerance is not None else 1

    def computes(self, step: int, steps: int | None, computed: Sequence[int], gap: int | None = None) -> bool:
        """Whether it runs in ``step`` of ``steps``, after these computed steps. The first ones and the last ones do.

        ``gap`` is the one that the last errors allow, where they decide.
        """
        if not self.predicts or len(computed) < self.computed_first or self.is_over(step, steps):
            return True
        return step - computed[-1] >= (gap or self.interval)

    def is_over(self, step: int, steps: int | None) -> bool:
        """Whether this step and all after it are computed, whatever was measured."""
        return steps is not None and step + self.computed_last >= steps

    def made_up(self, step: int, predicted: Sequence[int], computed: Sequence[int]) -> float:
        """What a step's output must have besides, for each unit of the error that its own prediction would have had.

        The errors in the steps ``predicted`` since the last ``computed`` one follow from that error.
        """
        course, way = self.course, self.way
        if not course or not course.moves or len(computed) < 2:
            return 0.0
        last, spacing = computed[-1], computed[-1] - computed[-2]
        errors = {each: way.growth(each - last, spacing) for each in (*predicted, step)}
        own = errors.pop(step)
        return way.made_up * course.made_up(step, errors) / own

    def __str__(self) -> str:
        if self.why:
            return f"{NAMES[self.part]}, not predicted: {self.why}"
        if self.tolerance is None:
            return f"{NAMES[self.part]}, computed in 1 of {self.interval} steps"
        return f"{NAMES[self.part]}, computed as the error asks, tolerance {self.tolerance:g}"
