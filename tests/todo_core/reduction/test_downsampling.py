"""ToDo's downsampling: strides compared with plain lists, resampling with torch and with exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tests.naive import examples, kept_tokens, pooled, random_tokens, to_image, to_tokens, token_ids
from todo_core.reduction import downsample, stride, turns_per_cycle

NEAREST = ["nearest", "nearest-exact"]
POSITION = {"nearest": Fraction(0), "nearest-exact": Fraction(1, 2)}
DIVISIBLE = [
    ((8, 8), (4, 4)),
    ((6, 10), (3, 5)),
    ((12, 6), (3, 6)),
    ((9, 15), (3, 3)),
    ((20, 5), (4, 1)),
    ((7, 7), (7, 7)),
]
UNEVEN = [
    ((5, 5), (2, 2)),
    ((7, 5), (3, 2)),
    ((13, 9), (5, 4)),
    ((11, 16), (3, 7)),
    ((24, 17), (23, 5)),
    ((8, 1), (3, 1)),
]


@st.composite
def size_and_target(draw, side=30):
    size = draw(st.integers(1, side)), draw(st.integers(1, side))
    return size, (draw(st.integers(1, size[0])), draw(st.integers(1, size[1])))


GRIDS = st.tuples(st.integers(1, 40), st.integers(1, 40))
FACTORS = st.integers(1, 8)
TURNS = st.integers(0, 10_000)


def kept(size, target, resample):
    """The numbers of the tokens that a resampling keeps."""
    return [int(token) for token in downsample(size, target, resample).merge(token_ids(size))[0, :, 0]]


def strided(size, factor, turn, exact=True):
    """The numbers of the tokens that a stride keeps."""
    return [int(token) for token in stride(size, factor, turn, exact=exact).merge(token_ids(size))[0, :, 0]]


# strides ------------------------------------------------------------------------------------------------------------


@given(GRIDS, FACTORS, TURNS, st.booleans())
@examples(300)
def test_a_stride_keeps_every_such_row_and_column_from_its_first_token_on(size, factor, turn, exact):
    tokens = strided(size, factor, turn, exact)
    row, column = divmod(tokens[0], size[1])
    assert row < factor
    assert column < factor
    assert tokens == [y * size[1] + x for y in range(row, size[0], factor) for x in range(column, size[1], factor)]


@given(GRIDS, FACTORS, TURNS, st.booleans())
@examples(300)
def test_turns_in_a_row_keep_every_token_exactly_once(size, factor, first, exact):
    turns = range(first, first + turns_per_cycle(size, factor))
    seen = [token for turn in turns for token in strided(size, factor, turn, exact)]
    assert sorted(seen) == list(range(size[0] * size[1]))


def test_a_cycle_has_the_positions_of_a_cell_and_never_more_than_the_grid_has():
    assert turns_per_cycle((135, 240), 3) == 9
    assert turns_per_cycle((2, 240), 3) == 6
    assert turns_per_cycle((1, 1), 8) == 1


@pytest.mark.parametrize("size", [(135, 240), (64, 64), (5, 3), (1, 7), (7, 1), (1, 1)])
@pytest.mark.parametrize("factor", [2, 3, 4, 8])
def test_turn_0_begins_where_the_mode_has_its_token(size, factor):
    assert strided(size, factor, 0, exact=False)[0] == 0
    row, column = (min(factor, side) // 2 for side in size)
    assert strided(size, factor, 0, exact=True)[0] == row * size[1] + column


@pytest.mark.parametrize(("size", "target"), [(s, t) for s, t in DIVISIBLE if s[0] * t[1] == s[1] * t[0]])
@pytest.mark.parametrize("resample", NEAREST)
def test_turn_0_on_a_divisible_grid_is_torchs_own_mode(resample, size, target):
    factor = size[0] // target[0]
    assert strided(size, factor, 0, resample == "nearest-exact") == kept(size, target, resample)


@pytest.mark.parametrize("factor", range(2, 9))
@pytest.mark.parametrize("exact", [True, False])
def test_successive_turns_are_about_half_a_cell_apart(exact, factor):
    positions = factor * factor
    kept_positions = []
    for turn in range(2 * positions):
        row, column = divmod(strided((3 * factor, 2 * factor), factor, turn, exact)[0], 2 * factor)
        kept_positions.append(row * factor + column)
    steps = {(after - before) % positions for before, after in zip(kept_positions, kept_positions[1:], strict=False)}
    assert len(steps) == 1
    assert abs(steps.pop() - positions / 2) <= 2
    assert len(set(kept_positions)) == positions


def test_the_walk_over_a_cell_of_nine_is_the_one_in_the_docstring():
    walk = [strided((3, 3), 3, turn, exact=False)[0] for turn in range(9)]
    assert walk == [0, 5, 1, 6, 2, 7, 3, 8, 4]


@given(GRIDS, FACTORS, TURNS)
@examples(300)
def test_each_token_gets_the_result_of_its_own_cell_or_of_the_one_before(size, factor, turn):
    reduction = stride(size, factor, turn)
    tokens = strided(size, factor, turn)
    rows, columns = sorted({t // size[1] for t in tokens}), sorted({t % size[1] for t in tokens})
    given_back = reduction.unmerge(reduction.merge(token_ids(size)))[0, :, 0]
    for token, giver in enumerate(given_back.long().tolist()):
        row, column = divmod(token, size[1])
        cell = min(row // factor, len(rows) - 1), min(column // factor, len(columns) - 1)
        assert divmod(giver, size[1]) == (rows[cell[0]], columns[cell[1]])


@given(GRIDS, FACTORS, TURNS)
@examples(100)
def test_a_token_that_a_stride_keeps_gets_its_own_result_back(size, factor, turn):
    reduction = stride(size, factor, turn)
    y = reduction.merge(random_tokens(size))
    assert reduction.merge(reduction.unmerge(y)).equal(y)


@pytest.mark.parametrize("factor", [0, -1])
def test_a_stride_below_1_is_refused(factor):
    with pytest.raises(ValueError, match="must be 1 or more"):
        stride((4, 4), factor, 0)


def test_a_stride_makes_views_and_one_copy():
    """No index tensor is built, and none is sent to a device: only slices, then the copy of what is kept."""
    names = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(function.__name__.split(".")[0])
            return function(*args, **(kwargs or {}))

    x = random_tokens((135, 240))
    with Watch():
        stride((135, 240), 3, 5).merge(x)
    assert set(names) <= {"view", "slice", "clone", "_unsafe_view", "alias"}
    assert names.count("clone") == 1


# resampling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resample", [*NEAREST, "area"])
@pytest.mark.parametrize(("size", "target"), DIVISIBLE)
def test_merging_a_divisible_grid_is_torchs_interpolation(resample, size, target):
    x = random_tokens(size)
    expected = to_tokens(F.interpolate(to_image(x, size), size=target, mode=resample))
    torch.testing.assert_close(downsample(size, target, resample).merge(x), expected)


@pytest.mark.parametrize("resample", ["bilinear", "bicubic", "area"])
@pytest.mark.parametrize(("size", "target"), DIVISIBLE + UNEVEN)
def test_merging_by_averages_is_torchs_interpolation_of_the_grid(resample, size, target):
    x = random_tokens(size)
    expected = to_tokens(F.interpolate(to_image(x, size), size=target, mode=resample))
    torch.testing.assert_close(downsample(size, target, resample).merge(x), expected)


@pytest.mark.parametrize("resample", ["bilinear", "bicubic", "area"])
@pytest.mark.parametrize(("size", "target"), DIVISIBLE + UNEVEN)
def test_unmerging_averages_is_torchs_interpolation_back(resample, size, target):
    y = random_tokens(target)
    expected = to_tokens(F.interpolate(to_image(y, target), size=size, mode=resample))
    torch.testing.assert_close(downsample(size, target, resample).unmerge(y), expected)


@given(size_and_target(), st.sampled_from(NEAREST))
@examples(200)
def test_nearest_keeps_the_token_that_exact_fractions_name(case, resample):
    size, target = case
    assert kept(size, target, resample) == kept_tokens(size, target, POSITION[resample])


@pytest.mark.parametrize(("resample", "pool"), [("max", np.max), ("area", np.mean)])
@pytest.mark.parametrize(("size", "target"), DIVISIBLE + UNEVEN)
def test_pooling_takes_the_whole_window_of_each_token(resample, pool, size, target):
    x = random_tokens(size)
    torch.testing.assert_close(downsample(size, target, resample).merge(x), pooled(x, size, target, pool))


@pytest.mark.parametrize(("size", "target"), DIVISIBLE)
def test_a_maximum_is_given_back_to_its_whole_cell(size, target):
    y = random_tokens(target)
    tall, wide = size[0] // target[0], size[1] // target[1]
    spread = downsample(size, target, "max").unmerge(y)
    for row in range(size[0]):
        for column in range(size[1]):
            assert spread[:, row * size[1] + column].equal(y[:, row // tall * target[1] + column // wide])


@given(size_and_target(), st.sampled_from(NEAREST))
@examples(200)
def test_kept_tokens_are_distinct_and_in_order(case, resample):
    size, target = case
    tokens = kept(size, target, resample)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == target[0] * target[1]


@given(size_and_target(), st.sampled_from(NEAREST))
@examples(200)
def test_a_kept_token_gets_its_own_result_back(case, resample):
    size, target = case
    reduction = downsample(size, target, resample)
    y = random_tokens(target)
    assert reduction.merge(reduction.unmerge(y)).equal(y)


@given(size_and_target(), st.sampled_from(NEAREST))
@examples(200)
def test_no_result_travels_further_than_a_cell(case, resample):
    size, target = case
    reduction = downsample(size, target, resample)
    giver = reduction.unmerge(reduction.merge(token_ids(size)))[0, :, 0]
    for token, other in enumerate(giver.long().tolist()):
        (row, column), (other_row, other_column) = divmod(token, size[1]), divmod(other, size[1])
        assert abs(row - other_row) < size[0] / target[0] + 1
        assert abs(column - other_column) < size[1] / target[1] + 1


@pytest.mark.parametrize(("size", "target"), DIVISIBLE)
def test_unmerging_fixed_nearest_is_torchs_nearest_upsampling(size, target):
    y = random_tokens(target)
    expected = to_tokens(F.interpolate(to_image(y, target), size=size, mode="nearest"))
    assert downsample(size, target, "nearest").unmerge(y).equal(expected)


@pytest.mark.parametrize("target", [(0, 2), (2, 0), (-1, 2), (5, 2), (2, 7)])
@pytest.mark.parametrize("resample", ["nearest", "area"])
def test_a_target_outside_the_grid_is_refused(target, resample):
    with pytest.raises(ValueError, match="must lie between"):
        downsample((4, 6), target, resample)


def test_tokens_that_are_no_contiguous_block_are_read_right():
    x = random_tokens((6, 4), channels=5)
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    for resample in [*NEAREST, "bilinear", "bicubic", "area", "max"]:
        reduction = downsample((6, 4), (3, 3), resample)
        torch.testing.assert_close(reduction.merge(strided), reduction.merge(x))


@pytest.mark.parametrize("resample", ["nearest-exact", "max"])
@pytest.mark.parametrize("target", [(50, 50), (5, 103)])
def test_a_grid_first_seen_in_inference_mode_can_be_learned_through_later(target, resample):
    size = 101, 103  # no other test's, so that nothing of it is remembered yet
    with torch.inference_mode():
        first = downsample(size, target, resample)
        first.unmerge(first.merge(token_ids(size)))
    x = token_ids(size).requires_grad_()
    second = downsample(size, target, resample)
    second.unmerge(second.merge(x)).sum().backward()
    assert x.grad.sum() == size[0] * size[1]
