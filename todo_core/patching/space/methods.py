"""The methods: how many tokens each leaves of a level, and how it reduces them.

A new method is an entry of ``METHODS`` and a name in ``settings.declaration.Method``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from ... import reduction
from ...hosts.host import Level
from ...reason import Reason, Why
from ...reduction import Reduction
from ...reduction.downsampling import Size
from ...settings import Settings
from ...token_grid import TokenGrid
from .level_plan import LevelPlan, Place, Reducer

# auto reduces where the image's sides are so many times longer than in training: 1.25 is the smallest measured.
AUTO_FROM = 1.2
AUTO_FEWEST = 256  # tokens: a grid of 16 x 16; the smallest measured has 32 x 32
# 3 loses 1.5 to 4 dB to it, and 4 more (docs/results)
AUTO_FACTOR = 2


# of a block, and the settings that choose them with target all
MODULES = {"attn1": "attn", "attn2": "crossattn", "ff": "mlp"}


@lru_cache(maxsize=512)
def plan_level(settings: Settings, method: str, level: Level, grid: TokenGrid) -> LevelPlan:
    """One level with a token grid of any size. Pure and cached: the hooks call it for grids that nobody planned."""
    chosen = tuple(name for name, setting in MODULES.items() if getattr(settings, setting))
    modules = chosen if settings.target == "all" else ()
    full = LevelPlan(level.number, level.blocks, method, grid, grid.tokens, modules=modules)
    if not level.blocks:
        return replace(full, why=Reason.NO_ATTENTION(level.number))
    if method == "none":
        return replace(full, why=Reason.METHOD_NONE)
    if settings.target == "all" and not modules:
        return replace(full, why=Reason.NO_TARGET)
    planned = METHODS[method](full, settings, level)
    if planned.keys < grid.tokens or planned.why:
        return planned
    return replace(planned, why=Reason.TOO_SMALL(grid))


def _plan_downsample(full: LevelPlan, settings: Settings, level: Level) -> LevelPlan:
    chosen = settings.factor_1 if full.level == 1 else settings.factor_2
    if chosen == 1:
        return replace(full, why=Reason.FACTOR_1(level.number))
    if chosen == "auto" and (why := _why_not_auto(full, level)):
        return replace(full, why=why)
    factor = AUTO_FACTOR if chosen == "auto" else chosen
    reducer: Reducer
    if settings.rotates:
        target = full.grid.strided(factor)
        reducer = partial(_strided, full.grid.size, factor, settings.resample == "nearest-exact")
    else:
        target = full.grid.reduced(factor)
        reducer = partial(_downsampled, full.grid.size, target.size, settings.resample)
    return replace(full, target_grid=target, keys=target.tokens, amount=factor, reducer=reducer)


def _why_not_auto(full: LevelPlan, level: Level) -> Why | None:
    if full.grid.scale(level.trained_side) < AUTO_FROM:
        return Reason.TRAINED_AT(level.trained_pixels)
    if full.level > 1:
        return Reason.LEVEL_1_ALONE
    return Reason.FEW_TOKENS(AUTO_FEWEST) if full.grid.tokens < AUTO_FEWEST else None


def _strided(size: Size, factor: int, exact: bool, tokens: Tensor, place: Place) -> Reduction:
    return reduction.stride(size, factor, place.step + place.rank, exact=exact)


def _downsampled(size: Size, target: Size, resample: str, tokens: Tensor, place: Place) -> Reduction:
    return reduction.downsample(size, target, resample)


def _plan_similarity(full: LevelPlan, settings: Settings, level: Level) -> LevelPlan:
    size, cell, ratio = full.grid.size, (settings.sy, settings.sx), _ratio(full, settings)
    tokens, stay = full.grid.tokens, reduction.cell_count(size, cell)
    keys, full = tokens - reduction.removable(size, ratio, cell), replace(full, compared=(tokens - stay) * stay)
    return _by_ratio(full, ratio, keys, partial(_matched, size, ratio, cell, settings.random))


def _matched(size: Size, ratio: float, cell: Size, is_random: bool, tokens: Tensor, place: Place) -> Reduction:
    draws = None
    if is_random:
        draws = _on_device(reduction.random_draws(place.seeds(), place.step, place.rank, size, cell), tokens.device)
    return reduction.match(tokens, size, ratio, cell, draws)


def _plan_cluster(full: LevelPlan, settings: Settings, level: Level) -> LevelPlan:
    ratio = _ratio(full, settings)
    keys = max(1, round(full.grid.tokens * (1 - ratio)))
    return _by_ratio(full, ratio, keys, partial(_clustered, keys))


def _clustered(keys: int, tokens: Tensor, place: Place) -> Reduction:
    return reduction.cluster(tokens, keys)


def _ratio(full: LevelPlan, settings: Settings) -> float:
    return settings.ratio_1 if full.level == 1 else settings.ratio_2


def _by_ratio(full: LevelPlan, ratio: float, keys: int, reducer: Reducer) -> LevelPlan:
    return replace(full, keys=keys, amount=ratio, reducer=reducer, why=None if ratio else Reason.RATIO_0(full.level))


def _on_device(x: Tensor, device: torch.device) -> Tensor:
    """A copy that nothing waits for: a GPU reads it from pinned memory, which torch keeps until then."""
    if device.type != "cuda":
        return x.to(device)
    return torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=True).copy_(x).to(device, non_blocking=True)


METHODS = {"downsample": _plan_downsample, "similarity": _plan_similarity, "cluster": _plan_cluster}
