"""How much work a plan saves in its pass; where the measured error decides, how much it usually does.

Time follows work loosely: attention costs more time than its multiply-adds, on most devices. So work saved is no bound
of time saved.
"""

from __future__ import annotations

from dataclasses import dataclass

from .hosts import Host
from .patching import usual
from .patching.plan import Plan
from .patching.time.prediction_plan import Part


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
        steps = plan.facts.steps or usual.STEPS
        return cls(plan, steps, usual.usually_predicted(plan), usual.share_saved(plan, host))

    @property
    def is_usual(self) -> bool:
        """Whether the number of predicted steps is no more than usual."""
        planned = self.plan.parts
        return any(where and planned[name].tolerance is not None for name, where in self.predicted.items())
