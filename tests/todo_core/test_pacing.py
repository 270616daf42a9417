"""The gap between computed steps, against a naive reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from todo_core import pacing
from todo_core.hosts.conditions import row_weights
from todo_core.pacing import LONGEST, UNKNOWN_GUIDANCE, Pace, gap_of

ALPHA_BARS = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
costs = st.floats(0, 10)
tolerances = st.floats(0, 1)
lengths = st.integers(1, 150)


def naive_gap(cost: float, tolerance: float, steps: int) -> int:
    allowed = [k for k in range(1, LONGEST + 1) if cost * sum(j * j for j in range(k)) <= tolerance * k / steps]
    broken = [k for k in range(1, LONGEST + 1) if k not in allowed]
    return min(broken, default=LONGEST + 1) - 1 or 1


@given(costs, tolerances, lengths)
def test_the_gap_is_the_longest_that_the_error_allows(cost, tolerance, steps):
    assert gap_of(cost, tolerance, steps) == naive_gap(cost, tolerance, steps)


@given(costs, tolerances, tolerances, lengths)
def test_a_larger_tolerance_never_computes_more(cost, one, other, steps):
    assert gap_of(cost, min(one, other), steps) <= gap_of(cost, max(one, other), steps)


@pytest.mark.parametrize("cost", [math.nan, math.inf])
def test_an_error_that_is_no_number_computes_the_next_step(cost):
    assert gap_of(cost, 1.0, 10) == 1


def test_without_tolerance_each_step_is_computed_and_without_error_few_are():
    assert gap_of(1e-9, 0.0, 10) == 1
    assert gap_of(0.0, 0.08, 10) == LONGEST


def test_the_noise_schedule_is_that_of_stable_diffusion():
    found = pacing._alpha_bar(torch.arange(1000.0)).numpy()
    assert np.abs(found / ALPHA_BARS - 1).max() < 0.004


def naive_cost(errors, outputs, weights, times, since) -> float:
    """By loops over transformers and images, in float64."""
    ratios = []
    for error, output in zip(errors, outputs, strict=True):
        images = len(error) // len(weights)
        rows = [
            [sum(w * y[i + k * images] for k, w in enumerate(weights)) for i in range(images)] for y in (error, output)
        ]
        ratios.append([(e**2).mean() / (y**2).mean() for e, y in zip(*rows, strict=True)])
    worst = max(np.mean(of_image) for of_image in zip(*ratios, strict=True))
    before, after = (0.5 * math.log(ALPHA_BARS[t] / (1 - ALPHA_BARS[t])) for t in times)
    step = (after - before) / since
    return math.sqrt(worst) / since**2 * math.sqrt(1 - ALPHA_BARS[times[1]]) * (1 - math.exp(-step))


@pytest.mark.parametrize("weights", [(6.0, -5.0), (-5.0, 6.0), (1.0,)])
@pytest.mark.parametrize("since", [1, 2, 5])
def test_the_cost_is_that_of_the_naive_reference(weights, since):
    noise = np.random.default_rng(0)
    shapes = [(2 * len(weights), 8, 4, 6), (2 * len(weights), 16, 2, 3)]
    errors, outputs = ([noise.normal(size=shape) for shape in shapes] for _ in range(2))
    pace = Pace()
    pace.computed(torch.tensor(700.0), 1)
    for error, output in zip(errors, outputs, strict=True):
        pace.measure(torch.tensor(error), torch.tensor(output), weights)
    pace.computed(torch.tensor(500.0), since)
    assert float(pace._cost) == pytest.approx(naive_cost(errors, outputs, weights, (700, 500), since), rel=0.01)


def test_rows_that_nobody_can_pair_count_by_the_worst_and_as_with_a_usual_guidance():
    error, output = torch.ones(3, 2, 2, 2), torch.ones(3, 2, 2, 2)
    error[1] = 2
    assert pacing._squares(error, None, is_error=True).tolist() == [UNKNOWN_GUIDANCE**2 * n for n in (1, 4, 1)]
    assert pacing._squares(output, (6.0, -5.0), is_error=False).tolist() == [1, 1, 1], "three rows are no two halves"


def test_the_first_gap_needs_an_error():
    pace = Pace()
    assert pace.gap(1.0, 10) == 1
    pace.computed(torch.tensor(900.0), 1)
    assert pace.gap(1.0, 10) == 1
    pace.measure(torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), (1.0,))
    pace.computed(torch.tensor(800.0), 1)
    assert pace.gap(1e-9, 10) == LONGEST


def test_two_calls_at_one_time_tell_nothing():
    """Heun's second call. Any gap would follow from a step of no length."""
    pace = Pace()
    pace.computed(torch.tensor(900.0), 1)
    pace.measure(torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), (1.0,))
    pace.computed(torch.tensor(900.0), 1)
    assert pace.gap(1.0, 10) == 1


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
