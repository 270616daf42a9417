"""How much work a plan saves in its pass; where the measured error decides, from how much to how much.

Time follows work loosely: attention costs more time than its multiply-adds, on most devices. So work saved is no bound
of time saved.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .hosts import Host
from .patching.plan import Plan
from .patching.space.level_plan import tokens_left
from .work import layout_of

USUAL_STEPS = 10  # of a hires pass


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
    def saved(self) -> float:
        """The share of the pass's work that is saved, from 0 to 1; the largest, where the measured error decides."""
        return 1 - self.reduced / self.unpatched

    @property
    def saved_surely(self) -> float:
        """The smallest share."""
        return 1 - self.most / self.unpatched


def _work(host: Host, plan: Plan, steps: int, computed: set[int]) -> float:
    """The mean over the steps, of which these are computed."""
    layout, work = layout_of(host), 0.0
    kinds = Counter((plan.at(step / steps), step not in computed) for step in range(steps))
    for (levels, predicts), count in kinds.items():
        if not (predicts and plan.deep.is_whole):
            work += layout.work(plan.size, tokens_left(levels), plan.settings, predicts=predicts) * (count / steps)
    return work
