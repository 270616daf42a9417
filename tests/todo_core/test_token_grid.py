"""Token grids: read from real shapes, halved as convolutions halve, reduced without luck in the rounding."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import examples
from todo_core.token_grid import TokenGrid

SIDES = st.integers(1, 300)


def test_a_grid_is_read_from_no_other_shape():
    for shape in [(), (64,), (2, 4096), (2, 4096, 320), (1, 1, 4, 8, 64, 64)]:
        with pytest.raises(ValueError, match="not from shape") as caught:
            TokenGrid.of(shape)
        assert str(shape) in str(caught.value)


@given(SIDES, SIDES, st.integers(1, 8))
@examples(200)
def test_reducing_rounds_down_but_not_below_1_and_a_stride_counts_from_the_first_line(height, width, factor):
    grid = TokenGrid(height, width)
    assert grid.reduced(factor).size == tuple(max(1, math.floor(Fraction(side, factor))) for side in grid.size)
    assert grid.strided(factor).size == tuple(len(range(0, side, factor)) for side in grid.size)
    assert grid.reduced(1) == grid.strided(1) == grid
