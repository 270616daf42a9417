"""What happens to the self-attention of one level: the method, the factor that auto chooses, and the tokens left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from .. import reduction
from ..hosts import Level
from ..settings import Settings
from ..token_grid import TokenGrid

LEVELS = (1, 2)
# auto reduces where the image's sides are so many times longer than in training: 1.25 is the smallest measured.
AUTO_FROM = 1.2
# 3 loses 0.9 to 6.1 dB to it from twice to four times the trained side, and 4 more (docs/results)
AUTO_FACTOR = 2


@dataclass(frozen=True)
class LevelPlan:
    """What a method does to the self-attention of one level.

    ``keys`` is the number of tokens left of ``grid.tokens``, and ``target_grid`` their grid, for downsample. If the
    factor does not divide the grid, the kept position decides how many are left; these are the most. ``amount`` is the
    factor or the ratio; for ``auto`` it is the factor in use. ``why`` is a clause that says why nothing is reduced; it
    is empty where something is.
    """

    level: int
    blocks: int
    method: str
    grid: TokenGrid
    keys: int
    amount: float = 0
    target_grid: TokenGrid | None = None
    why: str = ""

    @property
    def reduces(self) -> bool:
        """Whether anything is reduced here."""
        return not self.why

    def __str__(self) -> str:
        what = f"level {self.level}: {self.grid}"
        if self.why:
            return f"{what}, {self.grid.tokens:,} tokens, not reduced: {self.why}"
        to = f" ({self.target_grid})" if self.target_grid else ""
        return f"{what}, {self.grid.tokens:,} tokens -> {self.keys:,} by {self.method}{to}, {self.blocks} blocks"


def tokens_left(levels: Iterable[LevelPlan]) -> dict[int, int]:
    """The number of tokens that is left, by level; of the levels that are reduced."""
    return {level.level: level.keys for level in levels if level.reduces}


@lru_cache(maxsize=512)
def plan_level(settings: Settings, method: str, level: Level, grid: TokenGrid) -> LevelPlan:
    """One level with a token grid of any size. Pure and cached: the hooks call it for grids that nobody planned."""
    full = LevelPlan(level.number, level.blocks, method, grid, grid.tokens)
    if not level.blocks:
        return replace(full, why=f"this model has no attention at level {level.number}")
    if method == "none":
        return replace(full, why="the method is none")
    if settings.target == "all" and not (settings.attn or settings.crossattn or settings.mlp):
        return replace(full, why="target is all, but attn, crossattn and mlp are off")
    planned = _downsampled(full, settings, level) if method == "downsample" else _grouped(full, settings)
    if planned.keys < grid.tokens or planned.why:
        return planned
    return replace(planned, why=f"a grid of {grid} is too small to lose a token")


def _downsampled(full: LevelPlan, settings: Settings, level: Level) -> LevelPlan:
    chosen = settings.factor_1 if full.level == 1 else settings.factor_2
    factor = chosen if isinstance(chosen, int) else auto_factor(level, full.grid)
    if factor == 1:
        why = f"the factor of level {level.number} is 1" if chosen == 1 else _why_auto_is_1(level, full.grid)
        return replace(full, why=why)
    target = full.grid.strided(factor) if settings.rotates else full.grid.reduced(factor)
    return replace(full, target_grid=target, keys=target.tokens, amount=factor)


def _why_auto_is_1(level: Level, grid: TokenGrid) -> str:
    if grid.scale(level.trained_side) >= AUTO_FROM:
        return "auto reduces only level 1 at this size"
    return f"this model was trained at {level.trained_pixels:g} x {level.trained_pixels:g}"


def auto_factor(level: Level, grid: TokenGrid) -> int:
    """The factor of ``auto``: level 2 stays whole."""
    return AUTO_FACTOR if level.number == 1 and grid.scale(level.trained_side) >= AUTO_FROM else 1


def _grouped(full: LevelPlan, settings: Settings) -> LevelPlan:
    """By similarity or cluster."""
    ratio = settings.ratio_1 if full.level == 1 else settings.ratio_2
    if ratio == 0:
        return replace(full, why=f"the ratio of level {full.level} is 0")
    tokens = full.grid.tokens
    if full.method == "similarity":
        keys = tokens - reduction.removable(full.grid.size, ratio, (settings.sy, settings.sx))
    else:
        keys = max(1, round(tokens * (1 - ratio)))
    return replace(full, keys=keys, amount=ratio)
