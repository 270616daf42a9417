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
from .patching.space.level_plan import tokens_left
from .patching.time.deep_plan import Kind
from .work import layout_of

USUAL_STEPS = 10  # of a hires pass
# of the steps that can be predicted, those that usually are with a tolerance of 0.16, and more with each doubling of it
# (docs/results: 10 and 20 Karras steps)
_USUAL: dict[Kind, tuple[float, float]] = {"whole": (0.44, 0.19), "deep": (0.97, 0.12)}


@dataclass(frozen=True)
class Estimate:
    """The work of a plan, averaged over its pass, and that of the unpatched model.

    Where the measured error decides, ``computed`` and ``reduced`` are the least, and ``most`` is without prediction.
    """

    plan: Plan
    computed: set[int]  # steps in which what is predicted in the others runs
    steps: int
    unpatched: float
    reduced: float
    most: float

    @classmethod
    def of(cls, host: Host, plan: Plan) -> Estimate:
        """The mean over the steps of the plan's pass."""
        steps = plan.facts.steps or USUAL_STEPS
        computed = set(plan.computed_steps(steps))
        reduced = most = _work(host, plan, steps, computed)
        if plan.deep.tolerance is not None:
            most = _work(host, plan, steps, set(range(steps)))
        return cls(plan, computed, steps, layout_of(host).work(plan.size, {}, plan.settings), reduced, most)

    @property
    def predicted(self) -> int:
        """In how many steps something is predicted; in how many it usually is, where the measured error decides."""
        possible, deep = self.steps - len(self.computed), self.plan.deep
        if deep.tolerance is None:
            return possible
        usual, more = _USUAL[deep.kind]
        return round(possible * min(1, max(0, usual + more * math.log2(max(deep.tolerance, 0.01) / 0.16))))

    @property
    def saved(self) -> float:
        """The share of the pass's work that is saved, from 0 to 1."""
        part = self.predicted / max(1, self.steps - len(self.computed))
        return 1 - (self.most + (self.reduced - self.most) * part) / self.unpatched


def _work(host: Host, plan: Plan, steps: int, computed: set[int]) -> float:
    """The mean over the steps, of which these are computed."""
    layout, work = layout_of(host), 0.0
    kinds = Counter((plan.at(step / steps), step not in computed) for step in range(steps))
    for (levels, predicts), count in kinds.items():
        if not (predicts and plan.deep.is_whole):
            work += layout.work(plan.size, tokens_left(levels), plan.settings, predicts=predicts) * (count / steps)
    return work
