"""Token grids: read from real shapes, halved as convolutions halve, reduced without luck in the rounding."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import examples
from todo_core.token_grid import TokenGrid

SIDES = st.integers(1, 300)


def test_a_grid_is_read_from_a_shape_with_height_and_width_at_its_end_and_from_no_other():
    grid = TokenGrid.of(torch.empty(2, 320, 5, 7).shape)
    assert (grid.height, grid.width, grid.size, grid.tokens) == (5, 7, (5, 7), 35)
    assert str(grid) == "5 x 7"
    assert TokenGrid.of((1, 4, 8, 64, 48)).size == (64, 48), "of a video's frames"
    for shape in [(), (64,), (2, 4096), (2, 4096, 320), (1, 1, 4, 8, 64, 64)]:
        with pytest.raises(ValueError, match="not from shape") as caught:
            TokenGrid.of(shape)
        assert str(shape) in str(caught.value)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 3))
@examples(60)
def test_halving_is_that_of_a_stride_2_convolution(height, width, times):
    image = torch.zeros(1, 1, height, width)
    for _ in range(times):
        image = torch.nn.functional.conv2d(image, torch.zeros(1, 1, 3, 3), stride=2, padding=1)
    assert TokenGrid(height, width).halved(times) == TokenGrid.of(image.shape)


@given(SIDES, SIDES, st.integers(1, 8))
@examples(200)
def test_reducing_rounds_down_but_not_below_1_and_a_stride_counts_from_the_first_line(height, width, factor):
    grid = TokenGrid(height, width)
    assert grid.reduced(factor).size == tuple(max(1, math.floor(Fraction(side, factor))) for side in grid.size)
    assert grid.strided(factor).size == tuple(len(range(0, side, factor)) for side in grid.size)
    assert grid.reduced(1) == grid.strided(1) == grid


def test_the_scale_is_the_root_of_how_many_times_the_tokens_it_has():
    sizes = [(64, 64), (96, 96), (64, 256), (32, 32)]
    assert [TokenGrid(*size).scale(64) for size in sizes] == [1, 1.5, 2, 0.5]
