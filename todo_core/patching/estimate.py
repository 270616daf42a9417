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
# C of `pacing` at guidance 6 to 7, about: of a line in ten steps, where it grows with the square of a step's length,
# of one in deep layers, and of an image that is held
_OF_A_LINE, _OF_DEEP, _OF_A_HELD_IMAGE = 0.25, 0.06, 0.4


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
    weights = [plan.facts.weights[step] for step in steps] if plan.facts.weights else []
    of_all = plan.facts.steps or USUAL_STEPS
    of_a_line = _OF_A_LINE if name == "whole" else _OF_DEEP
    cost = _OF_A_HELD_IMAGE if part.way is Hold else of_a_line * (USUAL_STEPS / of_all) ** 2

    for step in range(count):
        tolerance = part.tolerance
        gap = None if tolerance is None else budget.gap(cost, tolerance, weights, computed, part.way.growth)
        if part.computes(step, count, computed, gap):
            computed.append(step)
        else:
            budget.predict(step)
    return [steps[step] for step in range(count) if step not in computed]
