"""What happens to the self-attention of one level: the method, its amount, and the tokens left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ...reason import Why
from ...reduction import Reduction
from ...token_grid import TokenGrid

LEVELS = (1, 2)


@dataclass(frozen=True)
class Place:
    """Where in a pass tokens are reduced. ``seeds`` returns one seed for each row; only random methods ask for them."""

    step: int
    rank: int  # of the block in its level
    seeds: Callable[[], Sequence[int]]


Reducer = Callable[[Tensor, Place], Reduction]  # makes the reduction of tokens (b, h*w, c)


@dataclass(frozen=True)
class LevelPlan:
    """What a method does to the self-attention of one level.

    ``keys`` is the number of tokens left of ``grid.tokens``, and ``target_grid`` their grid, for downsample. If the
    factor does not divide the grid, the kept position decides how many are left; these are the most. ``amount`` is the
    factor or the ratio; for ``auto`` it is the factor in use. ``why`` says why nothing is reduced. ``modules`` of each
    block see the tokens that are left; with none, the keys of attn1 are made of them. ``compared`` is the number of
    pairs of tokens that the method compares.
    """

    level: int
    blocks: int
    method: str
    grid: TokenGrid
    keys: int
    amount: float = 0
    target_grid: TokenGrid | None = None
    modules: tuple[str, ...] = ()
    compared: int = 0
    reducer: Reducer | None = field(default=None, compare=False)
    why: Why | None = None

    @property
    def reduces(self) -> bool:
        """Whether anything is reduced here."""
        return self.why is None

    def reduction(self, tokens: Tensor, place: Place) -> Reduction:
        """The reduction of tokens (b, h*w, c). Raises ValueError where nothing is reduced."""
        if self.reducer is None:
            raise ValueError(str(self))
        return self.reducer(tokens, place)

    def __str__(self) -> str:
        what = f"level {self.level}: {self.grid}"
        if self.why:
            return f"{what}, {self.grid.tokens:,} tokens, not reduced: {self.why}"
        to = f" ({self.target_grid})" if self.target_grid else ""
        return f"{what}, {self.grid.tokens:,} tokens -> {self.keys:,} by {self.method}{to}, {self.blocks} blocks"
