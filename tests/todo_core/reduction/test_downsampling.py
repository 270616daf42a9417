"""ToDo's downsampling: compared with torch's interpolation and with exact fractions, and how positions rotate."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import examples, kept_tokens, pooled, random_tokens, to_image, to_tokens, token_ids
from todo_core.reduction import downsample, turns_per_cycle

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


@st.composite
def cell_and_target(draw):
    """A cell of (n, m) tokens, and how many cells there are down and across."""
    sides = st.integers(1, 6)
    return (draw(sides), draw(sides)), (draw(sides), draw(sides))


def kept(size, target, resample, turn):
    """The numbers of the tokens that are kept."""
    merged = downsample(size, target, resample, turn=turn).merge(token_ids(size))
    return [int(token) for token in merged[0, :, 0]]


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
    assert kept(size, target, resample, None) == kept_tokens(size, target, POSITION[resample])


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


@given(size_and_target(), st.sampled_from(NEAREST), st.integers(0, 10_000))
@examples(150)
def test_turns_in_a_row_keep_every_token_at_least_once(case, resample, first):
    size, target = case
    turns = range(first, first + turns_per_cycle(size, target))
    assert set().union(*(kept(size, target, resample, turn) for turn in turns)) == set(range(size[0] * size[1]))


@given(cell_and_target(), st.sampled_from(NEAREST), st.integers(0, 10_000))
@examples(100)
def test_turns_in_a_row_keep_every_token_of_a_divisible_grid_exactly_once(case, resample, first):
    cell, target = case
    size = cell[0] * target[0], cell[1] * target[1]
    turns = range(first, first + turns_per_cycle(size, target))
    seen = [token for turn in turns for token in kept(size, target, resample, turn)]
    assert sorted(seen) == list(range(size[0] * size[1]))


@given(size_and_target(), st.sampled_from(NEAREST))
@examples(200)
def test_turn_0_is_the_plain_modes_own_position(case, resample):
    assert kept(*case, resample, 0) == kept(*case, resample, None)


@pytest.mark.parametrize("resample", NEAREST)
@pytest.mark.parametrize(("size", "target"), DIVISIBLE)
def test_turn_0_is_the_plain_modes_own_position_on_a_divisible_grid(resample, size, target):
    assert kept(size, target, resample, 0) == kept_tokens(size, target, POSITION[resample])


@pytest.mark.parametrize("resample", NEAREST)
@pytest.mark.parametrize("factor", range(2, 9))
def test_consecutive_turns_stride_half_way_round_the_cell(resample, factor):
    parts = factor * factor
    kept_parts = []
    for turn in range(2 * parts):
        row, column = divmod(kept((3 * factor, 2 * factor), (3, 2), resample, turn)[0], 2 * factor)
        kept_parts.append(row * factor + column)
    strides = {(after - before) % parts for before, after in zip(kept_parts, kept_parts[1:], strict=False)}
    assert strides == {(parts // 2 + 1) % parts}
    assert len(set(kept_parts)) == parts


@given(cell_and_target(), st.sampled_from(NEAREST), st.integers(0, 100))
@examples(100)
def test_a_turn_keeps_the_same_position_of_every_cell(case, resample, turn):
    (tall, wide), (down, across) = case
    tokens = kept((tall * down, wide * across), (down, across), resample, turn)
    rows, columns = zip(*(divmod(token, wide * across) for token in tokens), strict=True)
    assert {(row % tall, column % wide) for row, column in zip(rows, columns, strict=True)} == {
        (rows[0], columns[0]),
    }
    expected = [(i // across, i % across) for i in range(down * across)]
    assert [(row // tall, column // wide) for row, column in zip(rows, columns, strict=True)] == expected


@given(size_and_target(), st.sampled_from(NEAREST), st.none() | st.integers(0, 10_000))
@examples(200)
def test_kept_tokens_are_distinct_and_in_order(case, resample, turn):
    size, target = case
    tokens = kept(size, target, resample, turn)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == target[0] * target[1]


@given(size_and_target(), st.sampled_from(NEAREST), st.none() | st.integers(0, 10_000))
@examples(200)
def test_a_kept_token_gets_its_own_result_back(case, resample, turn):
    size, target = case
    reduction = downsample(size, target, resample, turn=turn)
    y = random_tokens(target)
    assert reduction.merge(reduction.unmerge(y)).equal(y)


@given(size_and_target(), st.sampled_from(NEAREST), st.none() | st.integers(0, 10_000))
@examples(200)
def test_no_result_travels_further_than_a_cell(case, resample, turn):
    size, target = case
    reduction = downsample(size, target, resample, turn=turn)
    giver = reduction.unmerge(reduction.merge(token_ids(size)))[0, :, 0]
    for token, other in enumerate(giver.long().tolist()):
        (row, column), (other_row, other_column) = divmod(token, size[1]), divmod(other, size[1])
        assert abs(row - other_row) < size[0] / target[0] + 1
        assert abs(column - other_column) < size[1] / target[1] + 1


@given(cell_and_target(), st.sampled_from(NEAREST), st.none() | st.integers(0, 100))
@examples(100)
def test_on_a_divisible_grid_results_stay_in_their_cell(case, resample, turn):
    (tall, wide), (down, across) = case
    size = tall * down, wide * across
    given_back = downsample(size, (down, across), resample, turn=turn).unmerge(token_ids((down, across)))[0, :, 0]
    for token, cell in enumerate(given_back.tolist()):
        row, column = divmod(token, size[1])
        assert cell == row // tall * across + column // wide


@pytest.mark.parametrize(("size", "target"), DIVISIBLE)
def test_unmerging_fixed_nearest_is_torchs_nearest_upsampling(size, target):
    y = random_tokens(target)
    expected = to_tokens(F.interpolate(to_image(y, target), size=size, mode="nearest"))
    assert downsample(size, target, "nearest").unmerge(y).equal(expected)


@pytest.mark.parametrize("resample", ["bilinear", "bicubic", "area", "max"])
def test_the_turn_means_nothing_where_no_single_token_is_kept(resample):
    x = random_tokens((6, 6))
    turned = downsample((6, 6), (3, 3), resample, turn=2).merge(x)
    assert turned.equal(downsample((6, 6), (3, 3), resample).merge(x))


@pytest.mark.parametrize(("size", "target"), DIVISIBLE + UNEVEN)
def test_the_number_of_turns_is_that_of_the_largest_cells_parts(size, target):
    assert turns_per_cycle(size, target) == math.ceil(size[0] / target[0]) * math.ceil(size[1] / target[1])


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


@pytest.mark.parametrize("target", [(50, 50), (5, 103)])
def test_a_grid_first_seen_in_inference_mode_can_be_learned_through_later(target):
    size = 101, 103  # no other test's, so that nothing of it is remembered yet
    with torch.inference_mode():
        first = downsample(size, target)
        first.unmerge(first.merge(token_ids(size)))
    x = token_ids(size).requires_grad_()
    second = downsample(size, target)
    second.unmerge(second.merge(x)).sum().backward()
    assert x.grad.sum() == size[0] * size[1]
