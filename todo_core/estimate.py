"""How much work a plan saves in its pass; where the measured error decides, how much it usually does.

Time follows work loosely: attention costs more time than its multiply-adds, on most devices. So work saved is no bound
of time saved.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from .hosts import Host
from .patching.plan import Plan
from .patching.time.prediction import Hold
from .patching.time.prediction_plan import Part
from .patching.work import layout_of

USUAL_STEPS = 10  # of a hires pass
# of the steps that can be predicted, those that usually are with a tolerance of 0.07, and more with each doubling of it
# (docs/results: 10 steps in both layouts)
_USUAL: dict[Part, tuple[float, float]] = {"whole": (0.35, 0.2), "deep": (0.5, 0.1)}
_USUAL_HELD = (0.2, 0.2)  # of whole steps whose denoised image is held
_DEEP_ALONE = (0.6, 0.3)  # where no whole step is predicted


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
        whole = _usually_predicted(plan, "whole", steps)
        ran = [step for step in range(steps) if step not in whole]
        deep = {ran[index] for index in _usually_predicted(plan, "deep", len(ran))}
        calls = Counter((plan.at(step / steps), step in deep) for step in ran)
        saved = layout_of(host).share_saved(plan.facts.size, calls, steps)
        return cls(plan, steps, {"whole": {*whole}, "deep": deep}, saved)

    @property
    def is_usual(self) -> bool:
        """Whether the number of predicted steps is no more than usual."""
        planned = self.plan.parts
        return any(where and planned[name].tolerance is not None for name, where in self.predicted.items())


def _usually_predicted(plan: Plan, name: Part, steps: int) -> list[int]:
    """The steps of so many in which a part is predicted; those in the middle, where the measured error decides."""
    part = plan.parts[name]
    possible = sorted({*range(steps)} - {*part.computed_steps(steps)}) if part.predicts else []
    if part.tolerance is None or not possible:
        return possible
    usual, more = _USUAL_HELD if part.way is Hold else _USUAL[name] if plan.whole.predicts else _DEEP_ALONE
    share = min(1, max(0, usual + more * math.log2(max(plan.settings.tolerance, 0.01) / 0.07)))
    count = round(len(possible) * share)
    return [possible[index * len(possible) // count] for index in range(count)] if count else []
