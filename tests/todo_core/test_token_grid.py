"""Token grids: read from real shapes, halved as convolutions halve, reduced without luck in the rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import examples
from todo_core.token_grid import TokenGrid

SIDES = st.integers(1, 300)
FACTORS = st.integers(1, 8)


def test_a_grid_is_read_from_height_and_width_of_a_4d_shape():
    grid = TokenGrid.of(torch.empty(2, 320, 5, 7).shape)
    assert (grid.height, grid.width, grid.size, grid.tokens) == (5, 7, (5, 7), 35)
    assert str(grid) == "5 x 7"


def test_a_video_has_the_grid_of_its_frames():
    assert TokenGrid.of((1, 4, 8, 64, 48)).size == (64, 48)


@pytest.mark.parametrize("shape", [(), (64,), (2, 4096), (2, 4096, 320), (1, 1, 4, 8, 64, 64)])
def test_no_other_shape_is_taken_for_a_grid(shape):
    with pytest.raises(ValueError, match="not from shape") as caught:
        TokenGrid.of(shape)
    assert str(tuple(shape)) in str(caught.value)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 9), (13, 8), (24, 17), (33, 31)])
@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_halving_is_that_of_a_stride_2_convolution(size, times):
    image = torch.zeros(1, 1, *size)
    for _ in range(times):
        image = torch.nn.Conv2d(1, 1, kernel_size=3, stride=2, padding=1)(image)
    assert TokenGrid(*size).halved(times) == TokenGrid.of(image.shape)


@given(SIDES, SIDES, FACTORS)
@examples(200)
def test_reducing_divides_each_side_and_rounds_down_but_not_below_1(height, width, factor):
    exact = [max(1, math.floor(Fraction(side, factor))) for side in (height, width)]
    assert TokenGrid(height, width).reduced(factor).size == tuple(exact)


@given(SIDES, SIDES, FACTORS)
@examples(200)
def test_a_strided_grid_has_the_lines_of_the_stride_that_begins_first(height, width, factor):
    lines = tuple(len(range(0, side, factor)) for side in (height, width))
    assert TokenGrid(height, width).strided(factor).size == lines


@given(SIDES, SIDES)
@examples(50)
def test_a_factor_of_1_leaves_the_grid(height, width):
    grid = TokenGrid(height, width)
    assert grid.reduced(1) == grid.strided(1) == grid


@pytest.mark.parametrize(("size", "scale"), [((64, 64), 1), ((96, 96), 1.5), ((64, 256), 2), ((32, 32), 0.5)])
def test_the_scale_is_the_root_of_how_many_times_the_tokens_it_has(size, scale):
    assert TokenGrid(*size).scale(64) == scale
