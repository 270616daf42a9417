"""How much work a plan saves in its pass; where the measured error decides, how much it usually does.

Time follows work loosely: attention costs more time than its multiply-adds, on most devices. So work saved is no bound
of time saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..hosts import Host
from .plan import Plan
from .time.pacing import Budget
from .time.prediction import Hold
from .time.prediction_plan import Part
from .work import layout_of

USUAL_STEPS = 10  # of a hires pass
# C of `pacing` at guidance 6 to 7, about, after a step in which the logarithm of the noise falls by 1: of a line, of
# one in deep layers, of an image that is held. Lines and held images grow with these powers of the fall
_OF_A_LINE, _OF_DEEP, _OF_A_HELD_IMAGE = 1.0, 0.3, 0.7
_GROWTH_OF_LINES, _GROWTH_OF_HELD_IMAGES = 1.5, 0.5


@dataclass(frozen=True)
class Estimate:
    """What a plan does in its pass, and the share of the work that it saves, from 0 to 1.

    ``predicted`` has the steps in which each part is predicted; where the measured error decides, as many as it usually
    is. The deep transformers are so in steps in which the model runs.
    """

    plan: Plan
    steps: int
    predicted: dict[Part, set[int]]
    saved: float

    @classmethod
    def of(cls, host: Host, plan: Plan) -> Estimate:
        """The mean over the steps of the plan's pass.

        >>> from todo_core import apply_patch
        >>> session = apply_patch(unet, factor_1=2, interval=1, start=0)
        >>> print(f"{Estimate.of(session.host, session.plan).saved:.0%}")
        46%
        """
        steps = plan.facts.steps or USUAL_STEPS
        whole = _usually_predicted(plan, "whole", [*range(steps)])
        ran = [step for step in range(steps) if step not in whole]
        deep = {*_usually_predicted(plan, "deep", ran)}
        calls = Counter((plan.at(step / steps), step in deep) for step in ran)
        saved = layout_of(host).share_saved(plan.facts.size, calls, steps)
        return cls(plan, steps, {"whole": {*whole}, "deep": deep}, saved)

    @property
    def is_usual(self) -> bool:
        """Whether the number of predicted steps is no more than usual."""
        planned = self.plan.parts
        return any(where and planned[name].tolerance is not None for name, where in self.predicted.items())


def _usually_predicted(plan: Plan, name: Part, steps: Sequence[int]) -> list[int]:
    """The ones of these steps of the pass in which a part is usually predicted."""
    part, count, computed, budget = plan.parts[name], len(steps), list[int](), Budget()
    course, tolerance = plan.facts.course, part.tolerance
    weights = [course.weights[step] for step in steps] if course else []
    of_a_line = _OF_A_LINE if name == "whole" else _OF_DEEP

    def cost(step: int) -> float:
        fall = course.fall(steps[step]) if course else 0.0
        if part.way is Hold:
            return _OF_A_HELD_IMAGE * fall**_GROWTH_OF_HELD_IMAGES
        return of_a_line * fall**_GROWTH_OF_LINES

    for step in range(count):
        gap = None if tolerance is None else budget.gap(cost(step), tolerance, weights, computed, part.way.growth)
        if part.computes(step, count, computed, gap):
            computed.append(step)
        else:
            budget.predict(step)
    return [steps[step] for step in range(count) if step not in computed]
