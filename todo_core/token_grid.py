"""Token grids: how many tokens a level has, from the tensor that the spatial transformer sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TokenGrid:
    """``height`` x ``width`` tokens. Sequences (b, h*w, c) have them row by row.

    >>> grid = TokenGrid.of((2, 4, 96, 65))
    >>> print(grid, "->", grid.halved(1), "->", grid.halved(1).strided(2))
    96 x 65 -> 48 x 33 -> 24 x 17
    """

    height: int
    width: int

    @classmethod
    def of(cls, shape: Sequence[int]) -> TokenGrid:
        """The grid of a tensor of this shape: (b, c, h, w), or five dimensions with the frames of a video."""
        if len(shape) not in (4, 5):
            raise ValueError(f"a token grid is read from a (b, c, h, w) tensor, not from shape {tuple(shape)}")
        return cls(int(shape[-2]), int(shape[-1]))

    @property
    def tokens(self) -> int:
        """h * w."""
        return self.height * self.width

    @property
    def size(self) -> tuple[int, int]:
        """(h, w)."""
        return self.height, self.width

    def halved(self, times: int) -> TokenGrid:
        """The grid after this many stride-2 convolutions with padding 1; they round odd sides up."""
        return self.strided(2**times)

    def strided(self, factor: int) -> TokenGrid:
        """The most lines that are left if every ``factor``-th row and column stays."""
        return TokenGrid(-(-self.height // factor), -(-self.width // factor))

    def reduced(self, factor: int) -> TokenGrid:
        """Each side divided by ``factor`` >= 1 and rounded down, never below 1."""
        return TokenGrid(max(1, self.height // factor), max(1, self.width // factor))

    def scale(self, side: float) -> float:
        """How many times as long as ``side`` a side of this grid is, as the root of the number of tokens."""
        return math.sqrt(self.tokens) / side

    def __str__(self) -> str:
        return f"{self.height} x {self.width}"
