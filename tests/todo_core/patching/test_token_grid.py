"""Token grids: read from real shapes, halved as convolutions halve, reduced without luck in the rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import examples
from todo_core.patching.token_grid import TokenGrid

SIDES = st.integers(1, 300)


def test_a_grid_is_read_from_height_and_width_of_a_4d_shape():
    grid = TokenGrid.of(torch.empty(2, 320, 5, 7).shape)
    assert (grid.height, grid.width, grid.size, grid.tokens) == (5, 7, (5, 7), 35)
    assert str(grid) == "5 x 7"


@pytest.mark.parametrize("shape", [(), (64,), (2, 4096), (2, 4096, 320), (1, 4, 8, 64, 64)])
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


@given(SIDES, SIDES, st.integers(100, 1600))
@examples(300)
def test_reducing_divides_each_side_and_rounds_down_but_not_below_1(height, width, hundredths):
    exact = [max(1, math.floor(side / Fraction(hundredths, 100))) for side in (height, width)]
    assert TokenGrid(height, width).reduced(hundredths / 100).size == tuple(exact)


@pytest.mark.parametrize(("side", "factor", "left"), [(96, 1.2, 80), (49, 0.7 * 7, 10), (66, 1.1, 60), (63, 2.1, 30)])
def test_a_factor_that_divides_a_side_is_not_defeated_by_its_float(side, factor, left):
    assert TokenGrid(side, side).reduced(factor).size == (left, left)


@given(SIDES, SIDES, st.floats(1, 1000))
@examples(200)
def test_a_reduced_grid_fits_inside_the_grid(height, width, factor):
    small = TokenGrid(height, width).reduced(factor)
    assert 1 <= small.height <= height
    assert 1 <= small.width <= width


@given(SIDES, SIDES)
@examples(50)
def test_a_factor_of_1_leaves_the_grid(height, width):
    assert TokenGrid(height, width).reduced(1.0) == TokenGrid(height, width)


@given(SIDES, SIDES, st.floats(1, 128))
@examples(200)
def test_the_auto_factor_is_never_below_1(height, width, side):
    factor = TokenGrid(height, width).auto_factor(side)
    assert factor >= 1
    if height * width <= side * side:
        assert factor == 1


@given(st.integers(8, 128), st.floats(1, 8), st.floats(0.25, 4))
@examples(300)
def test_the_auto_factor_leaves_about_the_wanted_tokens(side, scale, aspect):
    grid = TokenGrid(round(side * scale * math.sqrt(aspect)) + 1, round(side * scale / math.sqrt(aspect)) + 1)
    factor = grid.auto_factor(side)
    small = grid.reduced(factor)
    if factor > 1:
        # rounding down costs less than one row and one column
        assert (grid.height / factor - 1) * (grid.width / factor - 1) < small.tokens <= side * side
        assert (small.height + 1) * (small.width + 1) > side * side


@pytest.mark.parametrize(
    ("size", "factor"), [((64, 64), 1), ((128, 128), 2), ((96, 96), 1.5), ((64, 256), 2), ((32, 32), 1)]
)
def test_the_auto_factor_of_a_model_trained_on_64_squared(size, factor):
    assert TokenGrid(*size).auto_factor(64) == factor
