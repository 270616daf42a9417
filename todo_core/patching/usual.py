"""What a plan usually does: in how many steps it predicts where the measured error decides, and what it saves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..hosts import Host
from .plan import Plan
from .time.pacing import Budget
from .time.prediction import Hold
from .time.prediction_plan import Part
from .work import layout_of

STEPS = 10  # of a hires pass
# C of `pacing` at guidance 6 to 7, about: of a line in ten steps, where it grows with the square of a step's length,
# of one in deep layers, and of an image that is held
_OF_A_LINE, _OF_DEEP, _OF_A_HELD_IMAGE = 0.25, 0.06, 0.4


def usually_predicted(plan: Plan) -> dict[Part, set[int]]:
    """The steps in which each part is usually predicted: the deep transformers in steps in which the model runs."""
    steps = range(plan.facts.steps or STEPS)
    whole = _predicted(plan, "whole", steps)
    deep = _predicted(plan, "deep", [step for step in steps if step not in whole])
    return {"whole": {*whole}, "deep": {*deep}}


def share_saved(plan: Plan, host: Host) -> float:
    """The share of the pass's work that is usually saved, from 0 to 1: the mean over its steps."""
    steps, predicted = plan.facts.steps or STEPS, usually_predicted(plan)
    ran = [step for step in range(steps) if step not in predicted["whole"]]
    calls = Counter((plan.at(step / steps), step in predicted["deep"]) for step in ran)
    return layout_of(host).share_saved(plan.facts.size, calls, steps)


def _predicted(plan: Plan, name: Part, steps: Sequence[int]) -> list[int]:
    """The ones of these steps of the pass in which a part is usually predicted."""
    part, count, computed, budget = plan.parts[name], len(steps), list[int](), Budget()
    weights = [plan.facts.weights[step] for step in steps] if plan.facts.weights else []
    of_all = plan.facts.steps or STEPS
    of_a_line = _OF_A_LINE if name == "whole" else _OF_DEEP
    cost = _OF_A_HELD_IMAGE if part.way is Hold else of_a_line * (STEPS / of_all) ** 2

    for step in range(count):
        tolerance = part.tolerance
        gap = None if tolerance is None else budget.gap(cost, tolerance, weights, computed, part.way.growth)
        if part.computes(step, count, computed, gap):
            computed.append(step)
        else:
            budget.predict(step)
    return [steps[step] for step in range(count) if step not in computed]
