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


def a_target(draw, grid, whole):
    return grid if whole else TokenGrid(draw(st.integers(1, grid.height)), draw(st.integers(1, grid.width)))


def a_strided(draw, grid, batch, seed, whole):
    factor, turn = 1 if whole else draw(st.integers(1, 8)), draw(st.integers(0, 10**6))
    made = stride(grid.size, factor, turn)
    left = len(range(made.row, grid.height, factor)) * len(range(made.column, grid.width, factor))
    return left, lambda x, rows: made, f"stride {factor}, turn {turn}"


def a_kept(draw, grid, batch, seed, whole):
    target, resample = a_target(draw, grid, whole), draw(st.sampled_from(["nearest", "nearest-exact"]))
    return target.tokens, lambda x, rows: downsample(grid.size, target.size, resample), f"{resample} to {target}"


def a_resampled(draw, grid, batch, seed, whole):
    target = a_target(draw, grid, whole)
    resample = draw(st.sampled_from(["bilinear", "bicubic", "area", "max"]))
    return target.tokens, lambda x, rows: downsample(grid.size, target.size, resample), f"{resample} to {target}"


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


METHODS = {"strided": a_strided, "kept": a_kept, "resampled": a_resampled}
METHODS |= {"similarity": a_similarity, "cluster": a_cluster}
every_family = pytest.mark.parametrize("family", METHODS)
ALL = slice(None)


def close(actual, expected, added=0):
    """Within a few roundings of the dtype and one of float32 for each number ``added``, at the scale of the largest."""
    rounding = 4 * torch.finfo(actual.dtype).eps + added * torch.finfo(torch.float32).eps
    room = rounding * float(expected.abs().max())
    torch.testing.assert_close(actual, expected, rtol=0, atol=room)


@every_family
@given(data=st.data())
@examples(100)
def test_shapes_and_dtype_are_right_and_values_finite(family, data):
    case = data.draw(cases(family))
    x = case.random(scale=1e4)
    reduction = case.build(x, ALL)
    merged = reduction.merge(x)
    spread = reduction.unmerge(merged)
    assert merged.shape == (case.batch, case.left, case.channels)
    assert spread.shape == x.shape
    assert merged.dtype == spread.dtype == case.dtype
    assert merged.isfinite().all()
    assert spread.isfinite().all()
    values = torch.ones(case.batch, case.tokens, case.channels + 3, dtype=case.dtype)  # others than the compared ones
    assert reduction.merge(values).shape == (case.batch, case.left, case.channels + 3)
    assert reduction.unmerge(reduction.merge(values)).shape == values.shape


@every_family
@given(data=st.data())
@examples(60)
def test_where_nothing_is_taken_away_nothing_changes(family, data):
    case = data.draw(cases(family, whole=True))
    x = case.random()
    reduction = case.build(x, ALL)
    assert case.left == case.tokens
    if family == "resampled":
        close(reduction.merge(x), x)
        close(reduction.unmerge(reduction.merge(x)), x)
    else:
        assert reduction.unmerge(reduction.merge(x)).equal(x)
    if family == "kept":
        assert reduction.merge(x).equal(x)


@every_family
@given(data=st.data(), value=st.sampled_from([1.0, -0.3, 1e-3, 60000.0, 0.0]))
@examples(100)
def test_an_even_image_stays_even(family, data, value):
    case = data.draw(cases(family))
    x = case.random()[:, :1] * 0 + torch.linspace(value / 2, value, case.channels).to(case.dtype)
    x = x.expand(-1, case.tokens, -1)
    reduction = case.build(x, ALL)
    merged = reduction.merge(x)
    close(merged, x[:, : case.left], added=case.tokens)
    close(reduction.unmerge(merged), x, added=case.tokens)


@every_family
@given(data=st.data())
@examples(100)
def test_no_value_leaves_the_range_of_its_channel(family, data):
    case = data.draw(cases(family).filter(lambda case: "bicubic" not in case.text))
    x = case.random() + 0.5
    reduction = case.build(x, ALL)
    merged = reduction.merge(x)
    room = 2 * torch.finfo(case.dtype).eps + case.tokens * torch.finfo(torch.float32).eps
    for values in (merged, reduction.unmerge(merged)):
        assert (values >= x.amin(1, keepdim=True) - room).all()
        assert (values <= x.amax(1, keepdim=True) + room).all()


@every_family
@given(data=st.data())
@examples(100)
def test_an_image_does_not_depend_on_its_batch(family, data):
    case = data.draw(cases(family))
    x = case.random()
    together = case.build(x, ALL)
    merged = together.merge(x)
    spread = together.unmerge(merged)
    for row in range(case.batch):
        rows = slice(row, row + 1)
        alone = case.build(x[rows], rows)
        if family == "resampled":
            close(alone.merge(x[rows]), merged[rows])
            close(alone.unmerge(merged[rows]), spread[rows])
        else:
            assert alone.merge(x[rows]).equal(merged[rows])
            assert alone.unmerge(merged[rows]).equal(spread[rows])


@every_family
@given(data=st.data())
@examples(40)
def test_the_input_is_left_as_it_was_and_gives_the_same_output_again(family, data):
    case = data.draw(cases(family))
    x = case.random()
    before, reduction = x.clone(), case.build(x, ALL)
    merged = reduction.merge(x)
    first, spread = merged.clone(), reduction.unmerge(merged)
    assert x.equal(before)
    assert merged.equal(first)
    again = case.build(before, ALL)
    assert again.merge(before).equal(first)
    assert again.unmerge(first).equal(spread)
