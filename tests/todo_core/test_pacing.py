"""The gap between computed steps, and the weights of steps, against naive references."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.naive import examples
from todo_core.hosts.conditions import weights_of_parts
from todo_core.patching.steps import Row, Step, rows_of
from todo_core.patching.time.pacing import LONGEST, UNKNOWN_GUIDANCE, Guided, Pace, gap_of
from todo_core.patching.time.schedule import light_steps, step_weights

ALPHA_BARS = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
costs = st.floats(0, 1) | st.sampled_from([math.nan, math.inf])
weights_of_steps = st.lists(st.floats(0.001, 1), min_size=1, max_size=30).map(tuple)


def naive_gap(cost, tolerance, steps, weights):
    sums = {
        k: sum(cost * j * j * weights[j - 1] for j in range(1, k))
        for k in range(2, LONGEST + 1)
        if k <= len(weights) + 1
    }
    broken = [k for k, error in sums.items() if not error <= tolerance * k / steps]
    return min(broken, default=max(sums, default=1) + 1) - 1


@examples(300)
@given(costs, st.floats(0, 1), st.integers(1, 150), weights_of_steps)
@example(1e-9, 0.0, 10, (0.1,) * 9)
@example(0.0, 0.08, 10, (0.1,) * 9)
def test_the_gap_is_the_longest_that_the_error_allows(cost, tolerance, steps, weights):
    assert gap_of(cost, tolerance, steps, weights) == naive_gap(cost, tolerance, steps, weights)


@pytest.mark.parametrize(
    ("noise", "steps", "expected"),
    [
        ((1, 0), None, [2**-0.5]),  # all that is left
        ((3, 3), None, [0]),
        ((0, 1), None, [0]),
        ((4, 2, 0), None, [4 / 17**0.5 / 2, 2 / 5**0.5]),
        ((4, 2, 0), 4, [1 / 17**0.5, 1 / 17**0.5, 1 / 5**0.5, 1 / 5**0.5]),  # two calls a step
        ((2, 4), None, [2 / 5**0.5 / 2]),  # turned round
        ((), None, []),
    ],
)
def test_the_weight_of_a_step_is_what_it_adds_to_the_latent(noise, steps, expected):
    assert step_weights(noise, steps) == pytest.approx(expected)


@examples(200)
@given(weights_of_steps, st.floats(0, 1))
def test_the_light_steps_are_those_that_the_heavier_ends_leave(weights, share):
    first, end = light_steps(weights, share)
    left, steps = [*weights], [*range(len(weights))]
    while len(left) > 1 and sum(left) > share * sum(weights):
        at = 0 if left[0] >= left[-1] else -1
        left.pop(at), steps.pop(at)
    assert [*range(first, end)] == steps


def naive_cost(errors, outputs, weights, since):
    """By loops over transformers and images, in float64. Rows that nobody can pair are images of their own."""
    ratios, of_errors = [], 1
    if weights is None or abs(sum(weights) - 1) > 1e-9:
        weights, of_errors = (1,), UNKNOWN_GUIDANCE
    for error, output in zip(errors, outputs, strict=True):
        images = len(error) // len(weights)
        rows = [
            [sum(w * y[i + k * images] for k, w in enumerate(weights)) for i in range(images)] for y in (error, output)
        ]
        ratios.append([((of_errors * e) ** 2).mean() / (y**2).mean() for e, y in zip(*rows, strict=True)])
    worst = max(np.mean(of_image) for of_image in zip(*ratios, strict=True))
    return math.sqrt(worst) / since**2


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 49), st.integers(1, 6), st.integers(0, 2)), min_size=2, max_size=5),
    st.sampled_from([(6.0, -5.0), (-5.0, 6.0), (1.0,), (7.5, -5.5, -1.0), None]),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 10**6),
)
@example([(45, 1, 0), (40, 1, 2), (35, 5, 2), (35, 2, 1), (40, 1, 1)], (6.0, -5.0), 2, True, 0)
def test_the_cost_is_that_of_the_errors_since_the_last_computed_step(steps, weights, images, is_split, seed):
    """In one call, or in one for each part. Two steps at one time tell nothing, as Heun's: any gap would follow."""
    pace, draw, before, cost = Pace(), np.random.default_rng(seed), None, None
    rows = rows_of(range(images), weights or (None,))
    for time, since, transformers in steps:
        shapes = [(len(rows), 8, 4, 6), (len(rows), 16, 2, 3)][:transformers]
        errors, outputs = ([size * draw.normal(size=shape) for shape in shapes] for size in (draw.random(), 1))
        for pair in zip(errors, outputs, strict=True):
            guided, (error, output) = Guided(), map(torch.tensor, pair)
            for first in range(0, len(rows), images) if is_split else (0,):
                part = slice(first, first + images if is_split else None)
                assert first == 0 or (guided.takes(output[part]) and not guided.is_complete)
                guided.add(error[part], output[part], rows[part])
            assert guided.is_complete
            pace.measure(guided.errors())
        pace.end_step(torch.tensor(20.0 * time), since)
        if transformers and before is not None:
            cost = math.inf if time == before else naive_cost(errors, outputs, weights, since)
        before = time
        assert (pace.cost is None) == (cost is None)
        assert cost is None or float(pace.cost) == pytest.approx(cost, rel=0.01)


def test_rows_that_do_not_make_one_image_count_as_unknown():
    """NGMS leaves the negative prompt out; of ComfyUI's areas, calls have several sizes."""
    guided, error = Guided(), torch.ones(1, 2, 3, 3)
    guided.add(error, 2 * error, [Row(weight=7.0)])
    assert not guided.is_complete
    assert not guided.takes(torch.ones(1, 2, 3, 4))
    assert guided.errors().tolist() == pytest.approx([UNKNOWN_GUIDANCE**2 / 4])
    assert guided.errors(is_all=True).tolist() == pytest.approx([1 / 4])


@pytest.mark.parametrize(
    ("parts", "count", "weights"),
    [
        ([1, 0], 2, [-6, 7]),
        ([0], 2, [7, 7]),
        ([0, 0, 1], 3, [7, 7, -6]),
        ([0, 1], 3, [None] * 3),
        (None, 2, [None] * 2),
    ],
)
def test_a_call_of_comfyui_and_forge_tells_the_parts_of_its_rows(parts, count, weights):
    step, options = Step(rows=rows_of((4, 5))), {"transformer_options": {"cond_or_uncond": parts} if parts else None}
    told = weights_of_parts(7.0, options)
    rows = step.rows_of_parts(count, told) if told else step.next_rows(count)
    assert [row.weight for row in rows] == weights
    assert weights_of_parts(None, options) is None
