"""Settings x model x pass -> Plan: what will happen at each level and in each step, and why where nothing will."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..hosts import Host
from ..hosts.compiled_code import is_compiled
from ..hosts.host import IMAGE_PIXELS
from ..samplers import ADDS_NOISE
from ..settings import SETTINGS, Settings
from ..token_grid import TokenGrid
from ..work import layout_of
from .space.level_plan import LEVELS, LevelPlan, Reason, tokens_left
from .space.methods import plan_level
from .time import pacing
from .time.deep_plan import COMPUTED_FIRST, WHAT, DeepPlan, Kind

AUTO_FEWEST = 6  # steps of a pass in which auto predicts
# auto predicts deep transformers that have this part of a step's work: 0.5 to 0.6 in SDXL, 0.1 to 0.3 in SD 1.5
WORTH_PREDICTING = 1 / 3
# deep layers are as close with this part of the tolerance of whole steps (docs/results)
OF_DEEP = 1 / 2
LITTLE_WORK = "little of this model's work is below level 1"
ALTERNATES = "the prompt changes in each step"
Holder = Literal["forward", "ControlNet", "pipeline"]
# why whole UNet calls cannot be predicted where something else has hold of the model
HELD: dict[Holder, Reason] = {
    "forward": "another forward is on the model",
    "ControlNet": "ControlNet is on",  # it will put a forward on the UNet
    "pipeline": "whole steps of a diffusers pipeline cannot be predicted",  # its UNet runs: too late for a forward
}
# Start and end are compared with step / steps up to this: 7 / 10 in floats must not be less than 0.7.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Pass:
    """What is known of a pass: facts alone. What follows from them is decided in ``make_plan``."""

    size: TokenGrid  # of its latent
    steps: int | None = None  # None where nobody knows
    adds_noise: bool | None = None  # the sampler may, between the steps; None where nobody knows the sampler
    holder: Holder | None = None  # what else has hold of the model
    is_video: bool = False
    alternates: bool = False  # the prompt changes in each step

    @property
    def pixels(self) -> str:
        """The size of the image."""
        return f"{self.size.width * IMAGE_PIXELS} x {self.size.height * IMAGE_PIXELS}"


@dataclass(frozen=True)
class Plan:
    """What will happen in a pass: to ``levels`` inside the window, and to those of ``after`` past its end.

    The deep transformers are predicted inside the window.
    """

    settings: Settings
    facts: Pass
    levels: tuple[LevelPlan, ...]
    deep: DeepPlan
    after: tuple[LevelPlan, ...] = ()
    advice: str = ""  # where nothing is reduced: what would help most

    @property
    def size(self) -> TokenGrid:
        """Of the latent."""
        return self.facts.size

    @property
    def reduces(self) -> bool:
        """Whether anything is reduced, at any level and any time, or predicted."""
        return self.deep.predicts or bool(self.reduced)

    @property
    def reduced(self) -> tuple[LevelPlan, ...]:
        """The plans of levels that are reduced at any time of the pass."""
        return tuple(level for level in (*self.levels, *self.after) if level.reduces)

    @property
    def reason(self) -> Reason | None:
        """Why nothing is reduced."""
        if self.reduces:
            return None
        settings, of_deep = self.settings, self.deep.note or self.deep.why
        if settings.method == "downsample" and settings.factor_1 == "auto":  # level 1 says what to do
            return self.levels[0].why
        is_off = settings.factor_1 == 1 if settings.method == "downsample" else settings.ratio_1 == 0
        if settings.interval != 1 and is_off:
            return of_deep
        whys = [level.why for level in self.levels] + ([of_deep] if settings.interval != 1 else [])
        return "; ".join(filter(None, dict.fromkeys(whys)))

    @property
    def nothing_to_reduce(self) -> str:
        """What a plan that reduces nothing says: its size in image pixels, the reason, and what would help."""
        return f"nothing to reduce at {self.facts.pixels}: {self.reason}.{f' {self.advice}.' if self.advice else ''}"

    def at(self, progress: float) -> tuple[LevelPlan, ...]:
        """The levels that are reduced after this part of the pass, from 0 to 1."""
        levels = self.levels if _is_inside(self.settings, progress) else ()
        if _is_past_end(self.settings, progress):
            levels = self.after
        return tuple(level for level in levels if level.reduces)

    def predicts_at(self, progress: float) -> bool:
        """Whether the deep transformers are run or predicted by their interval after this part of the pass."""
        return self.deep.predicts and _is_inside(self.settings, progress)

    def computed_steps(self, steps: int) -> list[int]:
        """The steps of a pass of so many in which the deep transformers, or the whole UNet, run."""
        return self.deep.computed_steps(steps, _steps_inside(self.settings, steps))

    def __str__(self) -> str:
        lines = [str(level) for level in self.levels]
        lines += [f"past {self.settings.end:g}: {level}" for level in self.after]
        lines += [str(self.deep)] if self.settings.interval != 1 else []
        return "\n".join(lines)


def make_plan(settings: Settings, host: Host, facts: Pass) -> Plan:
    """What will happen in a pass. All decisions are made here; nothing changes the settings afterwards."""
    plan = _plan(settings, host, facts)
    return plan if plan.reduces else replace(plan, advice=_advice(plan, host))


def _plan(settings: Settings, host: Host, facts: Pass) -> Plan:
    levels = _plan_levels(settings, settings.method, host, facts.size)
    after: tuple[LevelPlan, ...] = ()
    if settings.afterwards != "none" and settings.end < 1:
        after = _plan_levels(settings, settings.afterwards, host, facts.size)
    deep = _plan_deep(settings, host, facts, levels)
    if deep.predicts and facts.alternates:
        deep = DeepPlan(deep.transformers, why=ALTERNATES, note=f"{ALTERNATES}: nothing is predicted")
    return Plan(settings, facts, levels, deep, after)


def _plan_levels(settings: Settings, method: str, host: Host, size: TokenGrid) -> tuple[LevelPlan, ...]:
    levels = [host.level(number) for number in LEVELS]
    return tuple(plan_level(settings, method, level, size.halved(level.depth)) for level in levels)


def _plan_deep(settings: Settings, host: Host, facts: Pass, levels: Sequence[LevelPlan]) -> DeepPlan:
    """Whole steps where they are asked for and can be predicted, and the deep transformers elsewhere.

    By ``auto`` the deep transformers where that pays beside reduced tokens, whose moving position makes whole steps
    harder to predict (docs/results); elsewhere whole steps, if the sampler is known to add no noise.
    """
    if settings.method == "none" or settings.interval == 1:
        is_off = "the method is none" if settings.method == "none" else "the interval is 1"
        return DeepPlan(len(host.deep_transformers), why=is_off)
    note, is_auto = None, settings.predict == "auto"
    deep = _by_interval("deep", settings, host, facts)
    why = _why_not_deep(settings, host, facts, levels) or deep.why
    has_better = not why and any(level.reduces for level in levels)
    may_be_whole = is_auto and settings.interval == "auto" and facts.adds_noise is False and not has_better
    if settings.predict == "whole" or may_be_whole:
        whole = _by_interval("whole", settings, host, facts)
        note = _why_not_whole(facts) or whole.why
        if not note:
            return whole if host.network == "UNet" else replace(whole, why="whole steps of the UNet are predicted")
        if is_auto:  # the reason of what it would rather do
            why, note = why and note, None
    if why == LITTLE_WORK and is_auto and facts.adds_noise:
        why = f"the sampler adds noise, and {why}"
    does = "nothing is" if why else "layers below level 1 are"
    return replace(deep, why=why, note=note and f"{note}: {does} predicted")


def _why_not_whole(facts: Pass) -> Reason | None:
    """Why whole UNet calls are not predicted in a pass of any length."""
    if facts.holder:
        return HELD[facts.holder]
    if facts.is_video:
        return "whole steps of a video model cannot be predicted"
    return ADDS_NOISE if facts.adds_noise else None


def _by_interval(kind: Kind, settings: Settings, host: Host, facts: Pass) -> DeepPlan:
    """The interval in this pass, and why the pass is too short for it."""
    interval, fewest, steps, why = settings.interval, COMPUTED_FIRST[kind] + 2, facts.steps, None
    tolerance = None
    if interval == "auto":
        fewest, tolerance, interval = AUTO_FEWEST, settings.tolerance, pacing.LONGEST
        if settings.predict == "auto" and kind == "deep":
            tolerance *= OF_DEEP
        why = None if steps else "auto needs to know the number of steps"
    planned = DeepPlan(len(host.deep_transformers), int(interval), kind, tolerance, why)
    if steps and steps < fewest:
        why = f"{WHAT[kind]} need {fewest} or more steps"
    elif steps and settings.window == "steps":
        is_each = len(planned.computed_steps(steps, _steps_inside(settings, steps))) == steps
        why = "too few steps are between Start and End to predict one" if is_each else None
    return replace(planned, why=why)


def _why_not_deep(settings: Settings, host: Host, facts: Pass, levels: Sequence[LevelPlan]) -> Reason | None:
    """Why the deep transformers of a model are not predicted in a pass of any length."""
    if not host.deep_transformers:
        return "this model has no transformer below level 1"
    if settings.interval != "auto":
        return None
    if not _is_worth_predicting(settings, host, facts, levels):
        return LITTLE_WORK
    # a predicted transformer would run uncompiled
    return "auto predicts no deep transformers in a compiled model" if is_compiled(host.unet) else None


def _is_worth_predicting(settings: Settings, host: Host, facts: Pass, levels: Sequence[LevelPlan]) -> bool:
    """Whether the deep transformers have a good part of a step's work."""
    layout, left = layout_of(host), tokens_left(levels)
    whole, without = (layout.work(facts.size, left, settings, predicts=each) for each in (False, True))
    return without <= (1 - WORTH_PREDICTING) * whole


def _advice(plan: Plan, host: Host) -> str:
    """The change of a setting that would help most where nothing is reduced."""
    for name, changed in _changes(plan, host):
        if _plan(changed, host, plan.facts).reduces:
            return f"Set {SETTINGS[name].label} to {getattr(changed, name)}"
    return ""


def _changes(plan: Plan, host: Host) -> Iterator[tuple[str, Settings]]:
    """Changed settings to try, the best first."""
    settings = plan.settings
    yield "interval", replace(settings, interval="auto")
    if host.deep_transformers and _is_worth_predicting(settings, host, plan.facts, plan.levels):
        yield "interval", replace(settings, interval=2)
    is_downsample = settings.method == "downsample"
    yield ("factor_1", replace(settings, factor_1=2)) if is_downsample else ("ratio_1", replace(settings, ratio_1=0.5))


def _is_inside(settings: Settings, progress: float) -> bool:
    return progress >= settings.start - _ROUNDING and not _is_past_end(settings, progress)


def _is_past_end(settings: Settings, progress: float) -> bool:
    return settings.end < 1 and progress >= settings.end - _ROUNDING


def _steps_inside(settings: Settings, steps: int) -> list[int]:
    return [step for step in range(steps) if _is_inside(settings, step / steps)]
