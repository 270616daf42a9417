"""The methods: how many tokens each leaves of a level, and how it reduces them.

A new method is an entry of ``METHODS`` and a name in ``settings.declaration.Method``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from ... import reduction
from ...hosts import Level
from ...reduction import Reduction
from ...settings import METHOD_NONE, Settings
from ...token_grid import TokenGrid
from .level_plan import LevelPlan, Reason

# auto reduces where the image's sides are so many times longer than in training: 1.25 is the smallest measured.
AUTO_FROM = 1.2
AUTO_FEWEST = 256  # tokens: a grid of 16 x 16; the smallest measured has 32 x 32
# 3 loses 1.5 to 4 dB to it, and 4 more (docs/results)
AUTO_FACTOR = 2


@dataclass(frozen=True)
class Place:
    """Where in a pass tokens are reduced. ``seeds`` returns one seed for each row; only random methods ask for them."""

    step: int
    rank: int  # of the block in its level
    seeds: Callable[[], Sequence[int]]


@dataclass(frozen=True)
class Method:
    """``plan`` completes the plan of a level that would stay whole; ``reduce`` makes the reduction of (b, h*w, c)."""

    plan: Callable[[LevelPlan, Settings, Level], LevelPlan]
    reduce: Callable[[Tensor, LevelPlan, Settings, Place], Reduction]


@lru_cache(maxsize=512)
def plan_level(settings: Settings, method: str, level: Level, grid: TokenGrid) -> LevelPlan:
    """One level with a token grid of any size. Pure and cached: the hooks call it for grids that nobody planned."""
    full = LevelPlan(level.number, level.blocks, method, grid, grid.tokens)
    if not level.blocks:
        return replace(full, why=f"this model has no attention at level {level.number}")
    if method == "none":
        return replace(full, why=METHOD_NONE)
    if settings.target == "all" and not (settings.attn or settings.crossattn or settings.mlp):
        return replace(full, why="target is all, but attn, crossattn and mlp are off")
    planned = METHODS[method].plan(full, settings, level)
    if planned.keys < grid.tokens or planned.why:
        return planned
    return replace(planned, why=f"a grid of {grid} is too small to lose a token")


def _plan_downsample(full: LevelPlan, settings: Settings, level: Level) -> LevelPlan:
    chosen = settings.factor_1 if full.level == 1 else settings.factor_2
    if chosen == 1:
        return replace(full, why=f"the factor of level {level.number} is 1")
    if chosen == "auto" and (why := _why_not_auto(full, level)):
        return replace(full, why=why)
    factor = AUTO_FACTOR if chosen == "auto" else chosen
    target = full.grid.strided(factor) if settings.rotates else full.grid.reduced(factor)
    return replace(full, target_grid=target, keys=target.tokens, amount=factor, rotates=settings.rotates)


def _why_not_auto(full: LevelPlan, level: Level) -> Reason | None:
    if full.grid.scale(level.trained_side) < AUTO_FROM:
        return f"this model was trained at {level.trained_pixels:g} x {level.trained_pixels:g}"
    if full.level > 1:
        return "auto reduces only level 1 at this size"
    return f"auto keeps fewer than {AUTO_FEWEST} tokens" if full.grid.tokens < AUTO_FEWEST else None


def _downsample(tokens: Tensor, plan: LevelPlan, settings: Settings, place: Place) -> Reduction:
    size, target = plan.grid.size, plan.target_grid
    if plan.rotates or target is None:
        is_exact = settings.resample == "nearest-exact"
        return reduction.stride(size, int(plan.amount), place.step + place.rank, exact=is_exact)
    return reduction.downsample(size, target.size, settings.resample)


def _plan_similarity(full: LevelPlan, settings: Settings, level: Level) -> LevelPlan:
    ratio = _ratio(full, settings)
    keys = full.grid.tokens - reduction.removable(full.grid.size, ratio, (settings.sy, settings.sx))
    return _by_ratio(full, ratio, keys)


def _similarity(tokens: Tensor, plan: LevelPlan, settings: Settings, place: Place) -> Reduction:
    size, cell, draws = plan.grid.size, (settings.sy, settings.sx), None
    if settings.random:
        draws = _on_device(reduction.random_draws(place.seeds(), place.step, place.rank, size, cell), tokens.device)
    return reduction.match(tokens, size, plan.amount, cell, draws)


def _plan_cluster(full: LevelPlan, settings: Settings, level: Level) -> LevelPlan:
    ratio = _ratio(full, settings)
    return _by_ratio(full, ratio, max(1, round(full.grid.tokens * (1 - ratio))))


def _cluster(tokens: Tensor, plan: LevelPlan, settings: Settings, place: Place) -> Reduction:
    return reduction.cluster(tokens, plan.keys)


def _ratio(full: LevelPlan, settings: Settings) -> float:
    return settings.ratio_1 if full.level == 1 else settings.ratio_2


def _by_ratio(full: LevelPlan, ratio: float, keys: int) -> LevelPlan:
    return replace(full, keys=keys, amount=ratio, why=None if ratio else f"the ratio of level {full.level} is 0")


def _on_device(x: Tensor, device: torch.device) -> Tensor:
    """A copy that nothing waits for: a GPU reads it from pinned memory, which torch keeps until then."""
    if device.type != "cuda":
        return x.to(device)
    return torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=True).copy_(x).to(device, non_blocking=True)


METHODS = {
    "downsample": Method(_plan_downsample, _downsample),
    "similarity": Method(_plan_similarity, _similarity),
    "cluster": Method(_plan_cluster, _cluster),
}
