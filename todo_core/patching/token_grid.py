"""Token grids: how many tokens a level has, from the 4-D tensor that the spatial transformer sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Floats may give 79.99999999999999 for 96 / 1.2, which must count as 80.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class TokenGrid:
    """``height`` x ``width`` tokens. Sequences (b, h*w, c) have them row by row."""

    height: int
    width: int

    @classmethod
    def of(cls, shape: Sequence[int]) -> TokenGrid:
        """The grid of a 4-D tensor of this shape, (b, c, h, w)."""
        if len(shape) != 4:
            raise ValueError(f"a token grid is read from a (b, c, h, w) tensor, not from shape {tuple(shape)}")
        return cls(int(shape[2]), int(shape[3]))

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
        return TokenGrid(-(-self.height // 2**times), -(-self.width // 2**times))

    def reduced(self, factor: float) -> TokenGrid:
        """Each side divided by ``factor`` >= 1 and rounded down, never below 1."""
        return TokenGrid(_shrunk(self.height, factor), _shrunk(self.width, factor))

    def auto_factor(self, side: float) -> float:
        """The factor that leaves about ``side`` x ``side`` tokens; never below 1."""
        return max(1.0, math.sqrt(self.tokens) / side)

    def __str__(self) -> str:
        return f"{self.height} x {self.width}"


def _shrunk(side: int, factor: float) -> int:
    return max(1, math.floor(side / factor + _ROUNDING))
