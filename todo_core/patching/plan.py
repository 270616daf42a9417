"""Settings x model x pass -> Plan: what will happen at each level, and why nothing will where nothing will."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from .. import reduction
from ..hosts import Host
from ..settings import Settings
from .token_grid import TokenGrid

LEVELS = (1, 2)
# where the window's shares are compared with a step's: 7 / 10 is not less than 0.7
_ROUNDING = 1e-6


@dataclass(frozen=True)
class LevelPlan:
    """What a method does to the self-attention of one level.

    ``keys`` is the number of tokens left of ``grid.tokens``; ``target_grid`` their grid, for downsample;
    ``amount`` the factor or ratio, ``auto`` worked out. ``why`` says why nothing is reduced; empty where something is.
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
        """Whether anything happens here."""
        return not self.why

    def __str__(self) -> str:
        what = f"level {self.level}: {self.grid}"
        if self.why:
            return f"{what}, {self.grid.tokens:,} tokens, whole: {self.why}"
        to = f" ({self.target_grid})" if self.target_grid else ""
        return f"{what}, {self.grid.tokens:,} tokens -> {self.keys:,} by {self.method}{to}, {self.blocks} blocks"


@dataclass(frozen=True)
class Plan:
    """What will happen in a pass. ``levels`` within the window, ``after`` past its end, both empty-handed or not."""

    settings: Settings
    size: TokenGrid  # the latent's
    levels: tuple[LevelPlan, ...]
    after: tuple[LevelPlan, ...] = ()
    why: str = ""  # why the whole pass is left alone

    @property
    def reduces(self) -> bool:
        """Whether anything happens at any level at any time."""
        return not self.why and any(level.reduces for level in (*self.levels, *self.after))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why nothing happens, if nothing does."""
        if self.why:
            return (self.why,)
        return () if self.reduces else tuple(f"level {level.level}: {level.why}" for level in self.levels)

    def at(self, progress: float) -> tuple[LevelPlan, ...]:
        """The levels that are reduced at this share of the pass, 0 <= progress <= 1."""
        if self.why or progress < self.settings.start - _ROUNDING:
            return ()
        within = self.settings.end >= 1 or progress < self.settings.end - _ROUNDING
        return tuple(level for level in (self.levels if within else self.after) if level.reduces)

    def __str__(self) -> str:
        if self.why:
            return f"nothing: {self.why}"
        lines = [str(level) for level in self.levels]
        lines += [f"past {self.settings.end:g}: {level}" for level in self.after]
        return "\n".join(lines)


def make_plan(settings: Settings, host: Host, size: TokenGrid, *, why: str = "") -> Plan:
    """The plan for a pass at a latent of ``size``. A ``why`` from outside leaves the pass alone."""
    if settings.method == "none":
        why = why or "the method is none"
    levels = tuple(_level(settings, settings.method, host, size, level) for level in LEVELS)
    after: tuple[LevelPlan, ...] = ()
    if settings.afterwards != "none" and settings.end < 1:
        after = tuple(_level(settings, settings.afterwards, host, size, level) for level in LEVELS)
    return Plan(settings, size, levels, after, why)


def _level(settings: Settings, method: str, host: Host, size: TokenGrid, level: int) -> LevelPlan:
    blocks = host.blocks(level)
    grid = size.halved(host.depth + level - 1)
    return plan_level(settings, method, level, grid, host.trained_side_at(level), blocks)


@lru_cache(maxsize=512)
def plan_level(
    settings: Settings, method: str, level: int, grid: TokenGrid, trained_side: float, blocks: int
) -> LevelPlan:
    """One level: pure, so that a grid which the size did not foretell can be planned when it is seen."""
    whole = LevelPlan(level, blocks, method, grid, grid.tokens)
    if not blocks:
        return replace(whole, why=f"this model has no attention at level {level}")
    if method == "none":
        return replace(whole, why="the method is none")
    if settings.target == "all" and not (settings.attn or settings.crossattn or settings.mlp):
        return replace(whole, why="target is all, but none of attn, crossattn and mlp is on")
    planned = _downsampled(whole, settings, trained_side) if method == "downsample" else _merged(whole, settings)
    if planned.keys < grid.tokens or planned.why:
        return planned
    return replace(planned, why=f"{grid} is too small for it to take a token away")


def _downsampled(whole: LevelPlan, settings: Settings, trained_side: float) -> LevelPlan:
    factor = settings.factor_1 if whole.level == 1 else settings.factor_2
    if factor == "auto":
        factor = whole.grid.auto_factor(trained_side)
        if factor == 1:
            return replace(
                whole, why=f"auto keeps it, for the model was trained at about {trained_side:g} x {trained_side:g}"
            )
    if factor == 1:
        return replace(whole, why="its factor is 1")
    target = whole.grid.reduced(float(factor))
    return replace(whole, target_grid=target, keys=target.tokens, amount=float(factor))


def _merged(whole: LevelPlan, settings: Settings) -> LevelPlan:
    ratio = settings.ratio_1 if whole.level == 1 else settings.ratio_2
    if ratio == 0:
        return replace(whole, why="its ratio is 0")
    tokens = whole.grid.tokens
    if whole.method == "similarity":
        keys = tokens - reduction.removable(whole.grid.size, ratio, (settings.sy, settings.sx))
    else:
        keys = max(1, round(tokens * (1 - ratio)))
    return replace(whole, keys=keys, amount=ratio)
