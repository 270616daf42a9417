"""What each step of a pass adds to the latent, from the noise of its schedule.

The weight of a step is sigma (1 - exp(-h)), as in DPM-Solver (arXiv 2206.00927): alpha^2 + sigma^2 = 1, and h is the
length of the step in log(alpha / sigma). Karras schedules have heavy steps at the start, uniform ones at the start and
at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

Weights = tuple[float, ...]  # one a step


def step_weights(noise: Sequence[float], steps: int | None = None) -> Weights:
    """The weights of the steps between these levels of noise, sigma / alpha, the last of which may be 0.

    ``steps`` is how many steps the caller counts, where it is another number: a sampler of second order has almost two
    calls a step.
    """
    each = [_weight(before, after) for before, after in pairwise(noise)]
    count = len(each) if steps is None else steps
    return tuple(each[number * len(each) // count] * len(each) / count for number in range(count)) if each else ()


def _weight(before: float, after: float) -> float:
    """Noise rises where a schedule is turned round."""
    more = max(before, after)
    return before / math.hypot(1, before) * (1 - min(before, after) / more) if more else 0.0


def light_steps(weights: Weights, share: float) -> tuple[int, int]:
    """The first step, and the one after the last, of those that together have at most this share of the weight.

    The heavier end of the pass is left out first; one step always stays.
    """
    first, end = 0, len(weights)
    while end - first > 1 and sum(weights[first:end]) > share * sum(weights):
        if weights[first] >= weights[end - 1]:
            first += 1
        else:
            end -= 1
    return first, end
