"""Bootstrap intervals over prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

DRAWS = 2000
SEED = 0
MIN_PROMPTS = 5  # with fewer the interval is too narrow


def interval(figures: Any, statistic: Callable[..., Any]) -> tuple[float, float]:
    """The 95 % interval of ``statistic(figures, axis)`` by the percentile bootstrap (Efron 1979).

    ``figures`` has one row for each prompt, with NaN where an image is missing; ``statistic`` skips NaN. Rows are drawn
    as a whole, because images of one prompt are alike. Both ends are NaN with fewer than 5 prompts.
    """
    figures = np.asarray(figures, dtype=float)
    count = len(figures)
    if count < MIN_PROMPTS:
        return np.nan, np.nan
    drawn = figures[np.random.default_rng(SEED).integers(count, size=(DRAWS, count))]
    low, high = np.percentile(statistic(drawn.reshape(DRAWS, -1), axis=1), [2.5, 97.5])
    return float(low), float(high)
