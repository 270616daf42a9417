"""What happens to the self-attention of one level: the method, its amount, and the tokens left."""

from __future__ import annotations

from dataclasses import dataclass

from ...token_grid import TokenGrid

LEVELS = (1, 2)
Reason = str  # a clause that says why something is not done; None in its place: it is done


@dataclass(frozen=True)
class LevelPlan:
    """What a method does to the self-attention of one level.

    ``keys`` is the number of tokens left of ``grid.tokens``, and ``target_grid`` their grid, for downsample. If the
    factor does not divide the grid, the kept position decides how many are left; these are the most. ``amount`` is the
    factor or the ratio; for ``auto`` it is the factor in use. ``why`` says why nothing is reduced.
    """

    level: int
    blocks: int
    method: str
    grid: TokenGrid
    keys: int
    amount: float = 0
    target_grid: TokenGrid | None = None
    rotates: bool = False  # the kept position moves from step to step
    why: Reason | None = None

    @property
    def reduces(self) -> bool:
        """Whether anything is reduced here."""
        return self.why is None

    def __str__(self) -> str:
        what = f"level {self.level}: {self.grid}"
        if self.why:
            return f"{what}, {self.grid.tokens:,} tokens, not reduced: {self.why}"
        to = f" ({self.target_grid})" if self.target_grid else ""
        return f"{what}, {self.grid.tokens:,} tokens -> {self.keys:,} by {self.method}{to}, {self.blocks} blocks"
