"""The gap between computed steps, against a naive reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.naive import examples
from todo_core.hosts.conditions import row_weights
from todo_core.patching.time.pacing import LONGEST, UNKNOWN_GUIDANCE, Pace, gap_of, step_weight

ALPHA_BARS = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
costs = st.floats(0, 0.1) | st.sampled_from([math.nan, math.inf])  # those of real passes; larger ones allow no gap


def naive_gap(cost: float, tolerance: float, steps: int) -> int:
    allowed = [k for k in range(1, LONGEST + 1) if cost * sum(j * j for j in range(k)) <= tolerance * k / steps]
    broken = [k for k in range(1, LONGEST + 1) if k not in allowed]
    return min(broken, default=LONGEST + 1) - 1 or 1


@examples(300)
@given(costs, st.floats(0, 1), st.integers(1, 150))
@example(1e-9, 0.0, 10)
@example(0.0, 0.08, 10)
def test_the_gap_is_the_longest_that_the_error_allows(cost, tolerance, steps):
    assert gap_of(cost, tolerance, steps) == naive_gap(cost, tolerance, steps)


def test_the_noise_schedule_is_that_of_stable_diffusion():
    sigmas = step_weight(torch.arange(1000.0), torch.tensor(math.inf)).double().numpy()
    assert np.abs((1 - sigmas**2) / ALPHA_BARS - 1).max() < 0.004


def naive_cost(errors, outputs, weights, times, since) -> float:
    """By loops over transformers and images, in float64. Rows that nobody can pair are images of their own."""
    ratios, of_errors = [], 1
    if weights is None or len(errors[0]) % len(weights):
        weights, of_errors = (1,), UNKNOWN_GUIDANCE
    for error, output in zip(errors, outputs, strict=True):
        images = len(error) // len(weights)
        rows = [
            [sum(w * y[i + k * images] for k, w in enumerate(weights)) for i in range(images)] for y in (error, output)
        ]
        ratios.append([((of_errors * e) ** 2).mean() / (y**2).mean() for e, y in zip(*rows, strict=True)])
    worst = max(np.mean(of_image) for of_image in zip(*ratios, strict=True))
    before, after = (0.5 * math.log(ALPHA_BARS[t] / (1 - ALPHA_BARS[t])) for t in times)
    step = abs(after - before) / since
    return math.sqrt(worst) / since**2 * math.sqrt(1 - ALPHA_BARS[times[1]]) * (1 - math.exp(-step))


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 49), st.integers(1, 6), st.integers(0, 2)), min_size=2, max_size=5),
    st.sampled_from([(6.0, -5.0), (-5.0, 6.0), (1.0,), None]),
    st.integers(1, 4),
    st.integers(0, 10**6),
)
@example([(45, 1, 0), (40, 1, 2), (35, 5, 2), (35, 2, 1), (40, 1, 1)], (6.0, -5.0), 4, 0)
def test_the_cost_is_that_of_the_errors_since_the_last_computed_step(steps, weights, rows, seed):
    """Steps may go up, as in DDIM inversion. Two at one time tell nothing, as Heun's: any gap would follow."""
    pace, draw, before, cost = Pace(), np.random.default_rng(seed), None, math.inf
    for time, since, transformers in steps:
        shapes = [(rows, 8, 4, 6), (rows, 16, 2, 3)][:transformers]
        errors, outputs = ([size * draw.normal(size=shape) for shape in shapes] for size in (draw.random(), 1))
        for error, output in zip(errors, outputs, strict=True):
            pace.measure(torch.tensor(error), torch.tensor(output), weights)
        pace.computed(torch.tensor(20.0 * time), since)
        if transformers and before is not None:
            times = 20 * before, 20 * time
            cost = math.inf if time == before else naive_cost(errors, outputs, weights, times, since)
        before = time
        assert pace.cost() == pytest.approx(cost, rel=0.01)


@pytest.mark.parametrize(
    ("seeds", "options", "negative_first", "weights"),
    [
        ((1, 1), {}, False, [7, -6]),
        ((1, 2, 1, 2), {}, False, [7, -6]),
        ((1, 1), {}, True, [-6, 7]),
        ((1, 2), {}, False, None),  # the prompts of two images alone
        ((1,), {}, False, None),
        ((1, 1, 1, 1), {}, False, None),  # three prompts with AND
        ((1, 1, 2, 2, 1, 2), {}, False, None),
        ((1, 1), {"cond_or_uncond": [1, 0]}, False, [-6, 7]),
        ((1,), {"cond_or_uncond": [0]}, False, None),
        ((1, 1, 1), {"cond_or_uncond": [0, 0, 1]}, False, None),
    ],
)
def test_rows_are_paired_only_where_the_call_has_each_image_twice(seeds, options, negative_first, weights):
    kwargs = {"transformer_options": options}
    assert row_weights(7.0, kwargs, seeds, negative_first=negative_first) == weights
    assert row_weights(None, kwargs, seeds, negative_first=negative_first) is None
    assert row_weights(1.0, kwargs, seeds, negative_first=negative_first) == [1]
