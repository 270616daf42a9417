"""Which steps of a pass weigh little: a step's weight is how far an error in it moves the image (`samplers`).

Karras schedules have heavy steps at the start, uniform ones at the start and at the end.
"""

from __future__ import annotations

Weights = tuple[float, ...]  # one a step


def light_steps(weights: Weights, most: float) -> tuple[int, int]:
    """The first step, and the one after the last, of those that together have at most this weight.

    The heavier end of the pass is left out first; one step always stays.
    """
    first, end = 0, len(weights)
    while end - first > 1 and sum(weights[first:end]) > most:
        if weights[first] >= weights[end - 1]:
            first += 1
        else:
            end -= 1
    return first, end
