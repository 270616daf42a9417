"""Settings x model x pass -> Plan: what will happen at each level, and why a level is not reduced."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from .. import reduction
from ..hosts import Host, Level
from ..hosts.compiled_code import is_compiled
from ..hosts.host import IMAGE_PIXELS
from ..settings import SETTINGS, Settings
from .token_grid import TokenGrid

LEVELS = (1, 2)
# Start and end are compared with step / steps up to this: 7 / 10 in floats must not be less than 0.7.
_ROUNDING = 1e-6
# auto reduces from this many times the trained side on: 1.25 is the smallest measured.
_ENLARGED = 1.2
# The interval of auto from so many steps on, found on the pocket model (docs/research)
AUTO_INTERVALS = {6: 2}
AUTO_INTERVALS_OF_WHOLE_STEPS = {6: 2, 16: 3}
FEWEST_PREDICTED = 4  # steps of a pass: the first two and the last are computed
_LARGEST_FACTOR = int(SETTINGS["factor_1"].maximum)
_LARGEST_IN_DEEP_MODELS = 3  # of auto


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


@dataclass(frozen=True)
class DeepPlan:
    """What happens to the deep transformers, those below level 1: they run in every ``interval``-th step.

    ``why`` is a clause that says why they run in every step; it is empty where they do not. With ``is_whole``, all this
    holds for the whole UNet.
    """

    transformers: int
    interval: int | Literal["auto"] = 1
    why: str = ""
    is_whole: bool = False

    @property
    def predicts(self) -> bool:
        """Whether they are predicted in some steps of a pass that is long enough."""
        return not self.why

    def interval_of(self, steps: int | None) -> int:
        """The interval in a pass of so many steps. ``auto`` needs to know how many, for it predicts no last step."""
        if self.interval != "auto":
            return self.interval
        return max((interval for fewest, interval in self._of_auto.items() if (steps or 0) >= fewest), default=1)

    @property
    def _of_auto(self) -> dict[int, int]:
        return AUTO_INTERVALS_OF_WHOLE_STEPS if self.is_whole else AUTO_INTERVALS

    def computes(self, step: int, steps: int | None, computed: Sequence[int]) -> bool:
        """Whether they run in ``step`` of ``steps``, after these computed steps. The first two and the last one are."""
        is_due = len(computed) < 2 or step - computed[-1] >= self.interval_of(steps)
        return is_due or (steps is not None and step + 1 >= steps)

    def computed_steps(self, steps: int, within: Collection[int] | None = None) -> list[int]:
        """The steps of a pass of so many in which they run. Only those ``within``, or all, can be predicted."""
        computed: list[int] = []
        others: list[int] = []
        for step in range(steps):
            if not self.predicts or (within is not None and step not in within):
                others.append(step)
            elif self.computes(step, steps, computed):
                computed.append(step)
        return sorted(computed + others)

    def why_nothing_in(self, steps: int) -> str:
        """Why nothing is predicted in a pass of so many steps; empty where something is."""
        if self.why:
            return self.why
        if self.interval_of(steps) == 1:
            return f"auto predicts only in passes of {min(self._of_auto)} or more steps"
        if steps < FEWEST_PREDICTED:
            return f"the interval predicts only in passes of {FEWEST_PREDICTED} or more steps"
        return ""

    def __str__(self) -> str:
        how = f"computed in 1 of {self.interval} steps"
        if self.interval == "auto":
            each = [f"in 1 of {interval} from {fewest} steps on" for fewest, interval in self._of_auto.items()]
            how = f"computed {', '.join(each)}"
        what = "whole model" if self.is_whole else f"below level 1: {self.transformers} transformers"
        return f"{what}, {f'not predicted: {self.why}' if self.why else how}"


@dataclass(frozen=True)
class Plan:
    """What will happen in a pass: to ``levels`` inside the window, and to those of ``after`` past its end.

    The deep transformers are predicted inside the window.
    """

    settings: Settings
    size: TokenGrid  # of the latent
    levels: tuple[LevelPlan, ...]
    deep: DeepPlan
    after: tuple[LevelPlan, ...] = ()
    why: str = ""  # why the whole pass is not reduced

    @property
    def reduces(self) -> bool:
        """Whether anything is reduced, at any level and any time, or predicted."""
        return not self.why and (self.deep.predicts or any(level.reduces for level in (*self.levels, *self.after)))

    @property
    def reason(self) -> str:
        """Why nothing is reduced, as a clause; empty where something is."""
        if self.why or self.reduces:
            return self.why
        is_auto = self.settings.method == "downsample" and self.settings.factor_1 == "auto"  # level 1 says what to do
        return self.levels[0].why if is_auto else "; ".join(dict.fromkeys(level.why for level in self.levels))

    @property
    def nothing_to_reduce(self) -> str:
        """What a plan that reduces nothing says: its size in image pixels, and the reason."""
        return f"nothing to reduce at {self.pixels}: {self.reason}."

    @property
    def pixels(self) -> str:
        """The size of the image."""
        return f"{self.size.width * IMAGE_PIXELS} x {self.size.height * IMAGE_PIXELS}"

    def at(self, progress: float) -> tuple[LevelPlan, ...]:
        """The levels that are reduced after this part of the pass, from 0 to 1."""
        if self.why or progress < self.settings.start - _ROUNDING:
            return ()
        return tuple(level for level in (self.levels if self._is_before_end(progress) else self.after) if level.reduces)

    def predicts_at(self, progress: float) -> bool:
        """Whether the deep transformers are run or predicted by their interval after this part of the pass."""
        is_inside = progress >= self.settings.start - _ROUNDING and self._is_before_end(progress)
        return is_inside and not self.why and self.deep.predicts

    def computed_steps(self, steps: int) -> list[int]:
        """The steps of a pass of so many in which the deep transformers, or the whole UNet, run."""
        return self.deep.computed_steps(steps, [step for step in range(steps) if self.predicts_at(step / steps)])

    def _is_before_end(self, progress: float) -> bool:
        return self.settings.end >= 1 or progress < self.settings.end - _ROUNDING

    def __str__(self) -> str:
        if self.why:
            return f"nothing to reduce: {self.why}"
        lines = [str(level) for level in self.levels]
        lines += [f"past {self.settings.end:g}: {level}" for level in self.after]
        lines += [str(self.deep)] if self.settings.interval != 1 else []
        return "\n".join(lines)


def make_plan(settings: Settings, host: Host, size: TokenGrid, *, why: str = "") -> Plan:
    """The plan for a pass at a latent of ``size``. With a ``why`` from the caller, nothing is reduced."""
    if settings.method == "none":
        why = why or "the method is none"
    levels = _plan_levels(settings, settings.method, host, size)
    after: tuple[LevelPlan, ...] = ()
    if settings.afterwards != "none" and settings.end < 1:
        after = _plan_levels(settings, settings.afterwards, host, size)
    return Plan(settings, size, levels, plan_deep(settings, host, size), after, why)


def settings_of_pass(
    settings: Settings, host: Host, size: TokenGrid, steps: int, why_not_whole: str
) -> tuple[Settings, str]:
    """The settings for a pass of so many steps at a latent of ``size``, and a note for the user, if there is one.

    They say ``deep`` or ``whole`` where ``predict`` is ``auto``. ``why_not_whole`` says why whole steps cannot be
    predicted; it is empty where they can. Then deep transformers are, and where the user has asked for whole steps, the
    note says so. ``auto`` predicts whole steps where the interval is at least the factor that level 1 would get, and
    leaves factors that the user has set to act. In a pass that is too short for whole steps, deep transformers and auto
    factors act.
    """
    is_auto = settings.predict == "auto"
    deep, whole = replace(settings, predict="deep"), replace(settings, predict="whole")
    planned = plan_deep(whole, host, size)
    if settings == deep or planned.why_nothing_in(steps):
        return deep, ""
    if is_auto and not _saves_enough(planned.interval_of(steps), settings, host, size):
        return deep, ""
    if why_not_whole:
        return deep, "" if is_auto else f"{why_not_whole}: layers below level 1 are predicted"
    return whole, ""


def _saves_enough(interval: int, settings: Settings, host: Host, size: TokenGrid) -> bool:
    """Whether whole steps save about as much as auto factors would."""
    if not settings.may_predict_whole:
        return False
    level = host.level(1)
    return auto_factor(level, size.halved(level.depth)) <= interval


def plan_deep(settings: Settings, host: Host, size: TokenGrid) -> DeepPlan:
    """The interval of a pass at a latent of ``size``."""
    planned = DeepPlan(len(host.deep_transformers), settings.interval, is_whole=settings.predicts_whole)
    if why := why_never_predicted(settings, host):
        return replace(planned, interval=1, why=why)
    if settings.interval == "auto" and size.scale(host.trained_side) < _ENLARGED:
        return replace(planned, interval=1, why="auto predicts only in passes that enlarge the image")
    return planned


def why_never_predicted(settings: Settings, host: Host) -> str:
    """Why nothing of a model is predicted in a pass of any size; empty where something may be."""
    if settings.interval == 1:
        return "the interval is 1"
    if settings.predicts_whole:
        if host.network != "UNet":
            return "whole steps of the UNet are predicted"
    elif not host.deep_transformers:
        return "this model has no transformer below level 1"
    elif settings.interval == "auto" and is_compiled(host.unet):  # a predicted transformer would run uncompiled
        return "auto predicts no deep transformers in a compiled model"
    return ""


def _plan_levels(settings: Settings, method: str, host: Host, size: TokenGrid) -> tuple[LevelPlan, ...]:
    levels = [host.level(number) for number in LEVELS]
    return tuple(plan_level(settings, method, level, size.halved(level.depth)) for level in levels)


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
        return replace(
            full, why=f"the factor of level {level.number} is 1" if chosen == 1 else _why_auto_is_1(level, full.grid)
        )
    if chosen == "auto" and settings.predicts_whole:
        return replace(full, why="auto keeps all tokens where whole steps are predicted")
    target = full.grid.strided(factor) if settings.rotates else full.grid.reduced(factor)
    return replace(full, target_grid=target, keys=target.tokens, amount=factor)


def _why_auto_is_1(level: Level, grid: TokenGrid) -> str:
    if grid.scale(level.trained_side) >= _ENLARGED:
        return "auto reduces only level 1 at this size"
    pixels = f"{level.trained_pixels:g}"
    return f"this model was trained at {pixels} x {pixels}. Set a factor to reduce anyway"


def auto_factor(level: Level, grid: TokenGrid) -> int:
    """The factor of ``auto``: how many times longer than in training a side is, as the nearest whole number.

    Halves round down. From 1.2 times on it is at least 2. Level 2 takes 2 where level 1 takes 4 or more, and 1 below.
    In SDXL, and where else level 2 has more blocks than level 1, 3 is the largest. The rule was found on the pocket
    models (docs/research).
    """
    scale = grid.scale(level.trained_side)
    largest = _LARGEST_IN_DEEP_MODELS if level.in_deep_model else _LARGEST_FACTOR
    factor = min(max(2, math.ceil(scale - 0.5)), largest) if scale >= _ENLARGED else 1
    if level.number == 1:
        return factor
    return 2 if factor >= 4 else 1


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
