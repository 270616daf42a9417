"""The gap between computed steps, and the weights of steps, against naive references."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.naive import examples
from todo_core.hosts.conditions import weights_of_parts
from todo_core.patching.planning import light_steps
from todo_core.patching.steps import Row, Step, rows_of
from todo_core.patching.time.pacing import LONGEST, UNKNOWN_GUIDANCE, Budget, Guided, Pace
from todo_core.patching.time.prediction import Hold, Line

ALPHA_BARS = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
costs = st.floats(0, 1) | st.sampled_from([math.nan, math.inf])
weights_of_steps = st.lists(st.floats(0.001, 1), min_size=1, max_size=30).map(tuple)


def naive_growth(way, after, spacing):
    return after**0.5 if way is Hold else after**2 + after * spacing


def naive_gaps(costs, tolerance, weights, way):
    """The computed steps of a pass, from the third on, by all that each gap would spend."""
    steps, spent, computed, least = len(weights), 0.0, [1, 2], math.inf
    while computed[-1] < steps - 1:
        before, last = computed[-2:]
        cost, grown = costs[last], [naive_growth(way, j, last - before) for j in range(LONGEST)]
        gaps = range(1, 1 + min(LONGEST, steps - 1 - last))
        spend = {k: spent + sum((cost * grown[j] * weights[last + j] for j in range(1, k)), 0.0) for k in gaps}
        may = {k: total * steps / (last + k + 1) for k, total in spend.items()}
        if 2 in may and cost * grown[1] >= 1:
            may[2] = max(may[2], cost * grown[1])
        least = min(least, may.get(2, math.inf))
        broken = [k for k, needed in may.items() if k > 1 and not needed <= tolerance]
        gap = min(broken, default=max(may) + 1) - 1
        computed.append(last + gap)
        after = costs[last + gap]
        known = math.sqrt(cost * after) if cost * after < math.inf else cost
        spent += sum(known * grown[j] * weights[last + j] for j in range(1, gap)) if gap > 1 else 0.0
    return computed, least


@examples(300)
@given(st.lists(costs, min_size=30, max_size=30), st.floats(0, 1), weights_of_steps, st.sampled_from([Line, Hold]))
@example([1e-9] * 30, 0.0, (0.1,) * 9, Line)
@example([0.0] * 30, 0.08, (0.1,) * 9, Line)
@example([math.inf] * 3 + [0.01] * 27, 0.08, (0.1,) * 9, Hold)
def test_the_gaps_are_the_longest_that_the_budget_of_the_pass_allows(costs, tolerance, weights, way):
    budget, computed = Budget(), [1, 2]
    while computed[-1] < len(weights) - 1:
        now = [*computed]
        computed.append(now[-1] + budget.gap(costs[now[-1]], tolerance, weights, now, way.growth))
        for step in range(now[-1] + 1, computed[-1]):
            budget.predict(step)
            again = budget.gap(costs[now[-1]], tolerance, weights, now, way.growth)
            assert now[-1] + again == computed[-1], "asked again"
    expected, least = naive_gaps(costs, tolerance, weights, way)
    assert computed == expected
    assert budget.least_tolerance == pytest.approx(least, nan_ok=True)


@examples(200)
@given(weights_of_steps, st.floats(0, 1))
def test_the_light_steps_are_those_that_the_heavier_ends_leave(weights, most):
    first, end = light_steps(weights, most)
    left, steps = [*weights], [*range(len(weights))]
    while len(left) > 1 and sum(left) > most:
        at = 0 if left[0] >= left[-1] else -1
        left.pop(at), steps.pop(at)
    assert [*range(first, end)] == steps


def naive_cost(errors, outputs, weights, spacings, way=Line):
    """By loops over transformers and images, in float64. Rows that nobody can pair are images of their own.

    ``spacings`` are the steps between the last three computed ones.
    """
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
    return math.sqrt(worst) / naive_growth(way, spacings[1], spacings[0])


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 49), st.integers(1, 6), st.integers(0, 2)), min_size=2, max_size=5),
    st.sampled_from([(6.0, -5.0), (-5.0, 6.0), (1.0,), (7.5, -5.5, -1.0), None]),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 10**6),
    st.sampled_from([Line, Hold]),
)
@example([(45, 1, 0), (40, 1, 2), (35, 5, 2), (35, 2, 1), (40, 1, 1)], (6.0, -5.0), 2, True, 0, Line)
def test_the_cost_is_that_of_the_errors_since_the_last_computed_step(steps, weights, images, is_split, seed, way):
    """In one call, or in one for each part. Two steps at one time tell nothing, as Heun's: any gap would follow."""
    pace, draw, before, cost, earlier = Pace(), np.random.default_rng(seed), None, None, 1
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
        pace.end_step(torch.tensor(20.0 * time), since, way.growth)
        if transformers and before is not None:
            cost = math.inf if time == before else naive_cost(errors, outputs, weights, (earlier, since), way)
        before, earlier = time, since
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
        ([0, 0, 1], 3, [3.5, 3.5, -6]),  # two prompts that are combined
        ([2], 2, [None, None]),  # a guider that is not known to have so many
        ([0, 1], 3, [None] * 3),
        (None, 2, [None] * 2),
    ],
)
def test_a_call_of_comfyui_and_forge_tells_the_parts_of_its_rows(parts, count, weights):
    step, options = Step(rows=rows_of((4, 5))), {"transformer_options": {"cond_or_uncond": parts} if parts else None}
    told = weights_of_parts((7.0, -6.0), options)
    rows = step.rows_of_parts(count, told) if told else step.next_rows(count)
    assert [row.weight for row in rows] == weights
    assert weights_of_parts(None, options) is None
