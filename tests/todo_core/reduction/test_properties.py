"""What every reduction owes every grid, batch and dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import cells, examples
from todo_core.reduction import Reduction, cluster, downsample, match, random_draws, stride
from todo_core.token_grid import TokenGrid

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@dataclass
class Case:
    """A way to reduce ``tokens`` to ``left``; ``build`` takes tokens and the rows of the batch that they are."""

    size: tuple[int, int]
    left: int
    build: Callable[[torch.Tensor, slice], Reduction]
    batch: int
    channels: int
    dtype: torch.dtype
    seed: int
    text: str

    @property
    def tokens(self):
        return self.size[0] * self.size[1]

    def random(self, scale=1.0):
        shape, generator = (self.batch, self.tokens, self.channels), torch.Generator().manual_seed(self.seed)
        return ((torch.rand(shape, generator=generator) * 2 - 1) * scale).to(self.dtype)

    def __repr__(self):
        return f"{self.text} on {self.size}, {self.batch} x {self.channels} {self.dtype}, seed {self.seed}"


@st.composite
def cases(draw, family, whole=False):
    """Any reduction of a family on any grid; ``whole`` ones take nothing away."""
    grid = TokenGrid(draw(st.integers(1, 97)), draw(st.integers(1, 61)))
    batch, seed = draw(st.integers(1, 5)), draw(st.integers(0, 2**32))
    left, build, text = METHODS[family](draw, grid, batch, seed, whole)
    channels, dtype = draw(st.integers(1, 8)), draw(st.sampled_from(DTYPES))
    return Case(grid.size, left, build, batch, channels, dtype, seed, text)


def a_strided(draw, grid, batch, seed, whole):
    factor, turn = 1 if whole else draw(st.integers(1, 8)), draw(st.integers(0, 10**6))
    made = stride(grid.size, factor, turn)
    left = len(range(made.row, grid.height, factor)) * len(range(made.column, grid.width, factor))
    return left, lambda x, rows: made, f"stride {factor}, turn {turn}"


def by(*resamples):
    def a_resampled(draw, grid, batch, seed, whole):
        side = (lambda most: most) if whole else (lambda most: draw(st.integers(1, most)))
        target, resample = TokenGrid(*map(side, grid.size)), draw(st.sampled_from(resamples))
        return target.tokens, lambda x, rows: downsample(grid.size, target.size, resample), f"{resample} to {target}"

    return a_resampled


def a_similarity(draw, grid, batch, seed, whole):
    cell = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    ratio = 0.0 if whole else draw(st.floats(0, 0.99))
    draws = draw(st.booleans()) and random_draws(range(seed, seed + batch), 0, 0, grid.size, cell)
    left = grid.tokens - min(int(grid.tokens * ratio), grid.tokens - len(cells(grid.size, cell)))

    def build(x, rows):
        return match(x, grid.size, ratio, cell, draws[rows] if draws is not False else None)

    return left, build, f"ratio {ratio}, cell {cell}, {'random' if draws is not False else 'first'} destinations"


def a_cluster(draw, grid, batch, seed, whole):
    left = grid.tokens if whole else draw(st.integers(1, grid.tokens))
    return left, lambda x, rows: cluster(x, left), f"{left} groups"


METHODS = {"strided": a_strided, "similarity": a_similarity, "cluster": a_cluster}
METHODS |= {"kept": by("nearest", "nearest-exact"), "resampled": by("bilinear", "bicubic", "area", "max")}
every_family = pytest.mark.parametrize("family", METHODS)
ALL = slice(None)


def room_of(x):
    """A few roundings of the dtype and one of float32 for each number that is added, at the scale of the largest."""
    eps = 4 * torch.finfo(x.dtype).eps + x.shape[1] * torch.finfo(torch.float32).eps
    return eps * float(x.abs().max())


@every_family
@given(data=st.data(), scale=st.sampled_from([1.0, 1e-3, 6e4, 0.0]), is_even=st.booleans())
@examples(150)
def test_on_any_grid_each_image_alone_is_reduced_to_finite_values_of_its_own_range(family, data, scale, is_even):
    """An even image stays even. The input stays as it was, so a second run gives the same."""
    case = data.draw(cases(family))
    x = case.random(scale)
    x = x[:, :1].expand(-1, case.tokens, -1) if is_even else x
    before, reduction = x.clone(), case.build(x, ALL)
    merged = reduction.merge(x)
    first, spread = merged.clone(), reduction.unmerge(merged)
    assert merged.shape == (case.batch, case.left, case.channels)
    assert spread.shape == x.shape
    assert merged.dtype == spread.dtype == case.dtype
    assert x.equal(before)
    assert merged.equal(first)
    for values in (merged, spread):
        assert values.isfinite().all()
        if is_even or "bicubic" not in case.text:
            assert (values >= x.amin(1, keepdim=True) - room_of(x)).all()
            assert (values <= x.amax(1, keepdim=True) + room_of(x)).all()
    for row in range(case.batch):
        rows = slice(row, row + 1)
        alone = case.build(x[rows], rows)
        room = room_of(x) if family == "resampled" else 0
        torch.testing.assert_close(alone.merge(x[rows]), merged[rows], rtol=0, atol=room)
        torch.testing.assert_close(alone.unmerge(merged[rows]), spread[rows], rtol=0, atol=room)
    values = torch.ones(case.batch, case.tokens, case.channels + 3, dtype=case.dtype)  # others than the compared ones
    assert reduction.unmerge(reduction.merge(values)).shape == values.shape


@every_family
@given(data=st.data())
@examples(60)
def test_where_nothing_is_taken_away_nothing_changes(family, data):
    case = data.draw(cases(family, whole=True))
    x = case.random()
    reduction = case.build(x, ALL)
    assert case.left == case.tokens
    room = room_of(x) if family == "resampled" else 0
    torch.testing.assert_close(reduction.unmerge(reduction.merge(x)), x, rtol=0, atol=room)
    if family in ("resampled", "kept"):
        torch.testing.assert_close(reduction.merge(x), x, rtol=0, atol=room)
