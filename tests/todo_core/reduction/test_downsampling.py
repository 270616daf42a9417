"""ToDo's downsampling on any grid: strides beside plain lists, resampling beside torch and exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import examples, interpolated, kept_line, kept_tokens, pooled, random_tokens, token_ids
from todo_core.reduction import downsample, stride

POSITION = {"nearest": Fraction(0), "nearest-exact": Fraction(1, 2)}
RESAMPLES = [*POSITION, "bilinear", "bicubic", "area", "max"]
SIDES, FACTORS, TURNS = st.integers(1, 40), st.integers(1, 8), st.integers(0, 10_000)
GRIDS = st.tuples(SIDES, SIDES)


@st.composite
def size_and_target(draw):
    """Half of them divisible."""
    target = draw(st.integers(1, 30)), draw(st.integers(1, 30))
    if draw(st.booleans()):
        return tuple(draw(st.integers(kept, 30)) for kept in target), target
    return tuple(kept * draw(st.integers(1, 30 // kept)) for kept in target), target


def kept_of(reduction):
    """The numbers of the tokens that a reduction keeps."""
    return [int(token) for token in reduction.merge(token_ids(reduction.size))[0, :, 0]]


@given(GRIDS, FACTORS, TURNS, st.booleans())
@examples(300)
def test_a_stride_keeps_rows_and_columns_and_each_token_gets_its_own_cell_or_the_one_before(size, factor, turn, exact):
    reduction = stride(size, factor, turn, exact=exact)
    tokens = kept_of(reduction)
    row, column = divmod(tokens[0], size[1])
    assert max(row, column) < factor
    rows, columns = range(row, size[0], factor), range(column, size[1], factor)
    assert tokens == [y * size[1] + x for y in rows for x in columns]
    given_back = reduction.unmerge(reduction.merge(token_ids(size)))[0, :, 0].reshape(size).tolist()
    for y in range(size[0]):
        for x in range(size[1]):
            cell = min(y // factor, len(rows) - 1), min(x // factor, len(columns) - 1)
            assert given_back[y][x] == rows[cell[0]] * size[1] + columns[cell[1]]


@given(GRIDS, FACTORS, TURNS, st.booleans())
@examples(200)
def test_turns_in_a_row_keep_every_token_exactly_once(size, factor, first, exact):
    turns = range(first, first + min(factor, size[0]) * min(factor, size[1]))
    seen = [token for turn in turns for token in kept_of(stride(size, factor, turn, exact=exact))]
    assert sorted(seen) == list(range(size[0] * size[1]))


@given(GRIDS, FACTORS)
@examples(100)
def test_turn_0_begins_where_the_mode_has_its_token(size, factor):
    cell = [min(factor, side) for side in size]
    assert kept_of(stride(size, factor, 0, exact=False))[0] == 0
    assert kept_of(stride(size, factor, 0))[0] == cell[0] // 2 * size[1] + cell[1] // 2
    whole = size[0] * factor, size[1] * factor
    for resample in POSITION:
        modes_own = kept_of(downsample(whole, size, resample))
        assert kept_of(stride(whole, factor, 0, exact=resample == "nearest-exact")) == modes_own


def test_the_walk_over_a_cell_of_nine_is_the_one_in_the_docstring():
    walk = [kept_of(stride((3, 3), 3, turn, exact=False))[0] for turn in range(9)]
    assert walk == [0, 5, 1, 6, 2, 7, 3, 8, 4]


def cells_of(side, kept, position):
    """For each of ``side`` tokens, the cell whose result it gets: a kept one its own, others that of their share."""
    line = kept_line(side, kept, position)
    return [line.index(i) if i in line else i * kept // side for i in range(side)]


def naive_merge(x, size, target, resample):
    if resample in POSITION:
        return x[:, kept_tokens(size, target, POSITION[resample])]
    if resample in ("max", "area"):
        return pooled(x, size, target, np.max if resample == "max" else np.mean)
    return interpolated(x, size, target, resample)


def naive_unmerge(y, size, target, resample):
    if resample not in (*POSITION, "max"):
        return interpolated(y, target, size, resample)
    if resample == "max" and (size[0] % target[0] or size[1] % target[1]):
        return interpolated(y, target, size, "nearest")
    rows, columns = (cells_of(s, t, POSITION.get(resample, 0)) for s, t in zip(size, target, strict=True))
    return y[:, [row * target[1] + column for row in rows for column in columns]]


@pytest.mark.parametrize("resample", RESAMPLES)
@given(size_and_target(), st.booleans())
@examples(80)
def test_merging_and_unmerging_are_those_of_the_plain_definitions(resample, case, contiguous):
    size, target = case
    reduction, x, y = downsample(size, target, resample), random_tokens(size, channels=3), random_tokens(target)
    if not contiguous:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(reduction.merge(x), naive_merge(x, size, target, resample))
    torch.testing.assert_close(reduction.unmerge(y), naive_unmerge(y, size, target, resample))
    if resample in POSITION:
        assert reduction.merge(reduction.unmerge(y)).equal(y), "a kept token gets its own result back"


def test_what_cannot_be_is_refused():
    for target in [(0, 2), (2, 0), (-1, 2), (5, 2), (2, 7)]:
        for resample in ("nearest", "area"):
            with pytest.raises(ValueError, match="must lie between"):
                downsample((4, 6), target, resample)
    with pytest.raises(ValueError, match="is none of nearest, "):
        downsample((4, 6), (2, 3), "lanczos")
    for factor in (0, -1):
        with pytest.raises(ValueError, match="must be 1 or more"):
            stride((4, 4), factor, 0)


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
