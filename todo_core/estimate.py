"""How much work a plan saves in its pass.

Time follows work loosely: attention costs more time than its multiply-adds, on most devices. So work saved is no bound
of time saved.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .hosts import Host
from .patching.level_plan import tokens_left
from .patching.plan import Plan
from .work import Work, layout_of

USUAL_STEPS = 10  # of a hires pass


@dataclass(frozen=True)
class Estimate:
    """The work of a plan, averaged over its pass, and that of the unpatched model."""

    plan: Plan
    computed: set[int]  # steps in which what is predicted in the others runs
    steps: int
    unpatched: Work
    reduced: Work

    @classmethod
    def of(cls, host: Host, plan: Plan) -> Estimate:
        """The mean over the steps of the plan's pass."""
        layout, settings, steps = layout_of(host), plan.settings, plan.facts.steps or USUAL_STEPS
        computed = set(plan.computed_steps(steps))
        kinds = Counter((plan.at(step / steps), step not in computed) for step in range(steps))
        reduced = Work(0, 0)
        for (levels, predicts), count in kinds.items():
            if not (predicts and plan.deep.is_whole):
                reduced += layout.work(plan.size, tokens_left(levels), settings, predicts=predicts) * (count / steps)
        return cls(plan, computed, steps, layout.work(plan.size, {}, settings), reduced)

    @property
    def saved(self) -> float:
        """The share of the pass's work that is saved, from 0 to 1."""
        return 1 - self.reduced.total / self.unpatched.total
