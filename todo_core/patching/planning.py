"""Settings x model x pass -> Plan: all decisions of a pass are made here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..course import MOST_GROWTH
from ..hosts import Host
from ..hosts.compiled_code import is_compiled
from ..reason import Reason, Why
from ..settings import SETTINGS, Settings
from ..settings.declaration import ends_early
from ..token_grid import TokenGrid
from .estimate import Estimate
from .facts import HELD, Pass
from .plan import Plan
from .space.level_plan import LEVELS, LevelPlan
from .space.methods import plan_level
from .time import pacing
from .time.prediction import Hold, Line
from .time.prediction_plan import AUTO_FEWEST, NAMES, Part, PredictionPlan, Way
from .work import layout_of

# auto predicts deep transformers that have this part of a step's work: 0.5 to 0.6 in SDXL, 0.1 to 0.3 in SD 1.5
WORTH_PREDICTING = 1 / 3
# auto reduces tokens in more steps where that saves this part of a call, and predictions save less of the pass: in SD
# 1.5 from 1024 px on, beside held images from 768 px on. In steps that together have this weight they move the image as
# far as predictions with this tolerance do, beside held images half as far: at denoising 0.5 in all steps of a pass
WORTH_REDUCING, WORTH_BESIDE_HELD, WEIGHT_ALONE, OF_TOKENS = 0.25, 0.16, 2.1, 0.08
# The error of deep layers is measured inside, and shows three to four times as much as that of whole steps
OF_DEEP = 1 / 4
# Tokens are reduced in steps that together have this weight, for each unit of tolerance
LIGHT = 6.25
LIGHT_UNKNOWN = 0.3  # the start where the weights are not known


def make_plan(settings: Settings, host: Host, facts: Pass) -> Plan:
    """What will happen in a pass. All decisions are made here; nothing changes the settings afterwards."""
    plan = _plan(settings, host, facts)
    if plan.reduces:
        return plan
    changes = ((name, changed) for name, changed in _changes(plan, host) if _plan(changed, host, facts).reduces)
    advice = (Reason.SET(SETTINGS[name].label, getattr(changed, name)) for name, changed in changes)
    return replace(plan, advice=next(advice, None))


def _plan(settings: Settings, host: Host, facts: Pass) -> Plan:
    whole = _plan_whole(settings, host, facts)
    levels = _plan_levels(settings, settings.method, host, facts.size)
    deep = _plan_deep(settings, host, facts, levels)
    if settings.predict == "whole" and whole.predicts:
        deep = replace(deep, why=Reason.WHOLE_INSTEAD)
    has_after = settings.afterwards != "none" and ends_early(settings)
    after = _plan_levels(settings, settings.afterwards, host, facts.size) if has_after else ()
    start, end = _window(settings, facts, LIGHT * settings.tolerance)
    plan = _tokens_or_predictions(Plan(settings, facts, levels, start, end, whole, deep, after), host)
    if host.network != "UNet":
        return replace(plan, whole=replace(plan.whole, why=plan.whole.why or Reason.NOT_THE_UNET))
    return plan


def _tokens_or_predictions(plan: Plan, host: Host) -> Plan:
    """Beside a line, *auto* keeps all tokens: it multiplies the noise of their moving position.

    Where fewer tokens save more, they are reduced in more steps, and predictions get what they leave of the tolerance.
    """
    settings, facts, parts = plan.settings, plan.facts, plan.parts.values()
    is_auto = settings.interval == settings.factor_1 == "auto" and settings.method == "downsample"
    if not is_auto or not any(level.reduces for level in plan.levels):
        return plan
    of_a_call = layout_of(host).share_saved(facts.size, {(plan.levels, False): 1}, 1)
    start, end = _window(settings, facts, WEIGHT_ALONE)
    of_the_pass = 100 * of_a_call * (end - start)
    kept, instead = (why(of_the_pass, facts.pixels) for why in (Reason.FEWER_WOULD_SAVE, Reason.FEWER_TOKENS))
    predictions, of_tokens, is_worth = plan, OF_TOKENS, of_a_call >= WORTH_REDUCING
    if any(part.predicts and part.way is Line for part in parts):
        predictions = replace(plan, levels=tuple(_with_all_tokens(level, kept) for level in plan.levels))
    elif plan.whole.predicts:
        of_tokens, is_worth = OF_TOKENS / 2, of_a_call >= WORTH_BESIDE_HELD
    is_steady = facts.course is not None and facts.course.growth <= MOST_GROWTH
    if not (is_worth and is_steady) or settings.tolerance < OF_TOKENS or settings.predict != "auto":
        return predictions
    left = 1 - of_tokens / settings.tolerance
    whole, deep = (
        replace(part, tolerance=(part.tolerance or 0) * left, why=part.why or (None if left else instead))
        for part in parts
    )
    tokens = replace(plan, start=start, end=end, whole=whole, deep=deep)
    return max(predictions, tokens, key=lambda each: Estimate.of(host, each).saved)


def _plan_levels(settings: Settings, method: str, host: Host, size: TokenGrid) -> tuple[LevelPlan, ...]:
    levels = [host.level(number) for number in LEVELS]
    return tuple(plan_level(settings, method, level, size.halved(level.depth)) for level in levels)


def _with_all_tokens(level: LevelPlan, why: Why) -> LevelPlan:
    """The level with all its tokens."""
    return replace(level, keys=level.grid.tokens, target_grid=None, amount=0, why=level.why or why)


def _window(settings: Settings, facts: Pass, most: float) -> tuple[float, float]:
    """The shares of the pass after which the reduction of tokens begins and ends: steps of ``most`` weight together."""
    first, last, steps = 0.0, 1.0, facts.steps
    if settings.window == "steps" and facts.weights:
        first, last = (step / len(facts.weights) for step in light_steps(facts.weights, most))
    elif settings.window == "steps" and steps and steps > 1:
        first = LIGHT_UNKNOWN
    start = first if settings.start == "auto" else settings.start
    end = last if settings.end == "auto" else settings.end
    if start >= end:  # one of them was set by hand
        return settings.widest_window
    return start, end


def light_steps(weights: Sequence[float], most: float) -> tuple[int, int]:
    """The first step, and the one after the last, of those that together have at most this weight.

    The heavier end of the pass is left out first: Karras schedules have heavy steps at the start, uniform ones at both
    ends. One step always stays.
    """
    first, end = 0, len(weights)
    while end - first > 1 and sum(weights[first:end]) > most:
        if weights[first] >= weights[end - 1]:
            first += 1
        else:
            end -= 1
    return first, end


def _plan_whole(settings: Settings, host: Host, facts: Pass) -> PredictionPlan:
    """Whole steps: by name, or by ``auto`` where the sampler has told what it does."""
    asked = settings.predict == "whole" or (settings.predict == "auto" and settings.interval in ("auto", 1))
    way = Hold if facts.course and facts.course.holds else Line
    plan = _by_interval("whole", settings, facts, way, computed_first=way.computed_first)
    why = _why_off(settings, facts) or (None if asked else Reason.LAYERS_ALONE)
    if not why and facts.holder:
        why = HELD[facts.holder]
    elif not why:
        by_hand = settings.interval != "auto"
        why = facts.course.why_not(whole=True, by_hand=by_hand) if facts.course else facts.doubt
    if not why and facts.is_video:
        why = Reason.VIDEO
    is_unknown = settings.predict == "auto" and facts.course is None
    return replace(plan, why=why or plan.why or (Reason.UNKNOWN if is_unknown else None))


def _plan_deep(settings: Settings, host: Host, facts: Pass, levels: Sequence[LevelPlan]) -> PredictionPlan:
    """The deep transformers: by ``auto`` where they are a good part of a step's work."""
    plan = _by_interval("deep", settings, facts, Line, computed_first=2)
    why = _why_off(settings, facts)
    if not why and not host.deep_transformers:
        why = Reason.NOTHING_DEEP
    if not why and settings.interval == "auto":
        if not _is_worth_predicting(host, facts, levels):
            why = Reason.TOO_LITTLE
        elif facts.course:
            why = facts.course.why_not(whole=False)
        if not why and is_compiled(host.unet):  # a predicted transformer would run uncompiled
            why = Reason.COMPILED
    return replace(plan, why=why or plan.why)


def _why_off(settings: Settings, facts: Pass) -> Why | None:
    """Why nothing is predicted, whichever part it is of."""
    if settings.method == "none":
        return Reason.METHOD_NONE
    if settings.interval == 1:
        return Reason.INTERVAL_1
    return Reason.ALTERNATES if facts.alternates else Reason.SPLIT if facts.is_split else None


def _by_interval(part: Part, settings: Settings, facts: Pass, way: Way, computed_first: int) -> PredictionPlan:
    """The interval in this pass, and why the pass is too short for it, or too little is known of it."""
    interval, steps = settings.interval, facts.steps
    fewest, tolerance = computed_first + 2, None
    why: Why | None = None
    if interval == "auto":
        fewest, computed_first, interval = AUTO_FEWEST, way.computed_first, pacing.LONGEST
        tolerance = settings.tolerance * (OF_DEEP if (part, settings.predict) == ("deep", "auto") else 1)
        why = None if facts.weights else Reason.SCHEDULE_UNKNOWN if steps else Reason.STEPS_UNKNOWN
    if tolerance is not None and facts.doubt:  # the sampler may make another number of steps
        why = facts.doubt
    elif steps and steps < fewest:
        why = Reason.TOO_FEW_STEPS(NAMES[part], fewest, steps)
    course = facts.course if part == "whole" else None
    return PredictionPlan(part, int(interval), tolerance, way, computed_first, why, course)


def _is_worth_predicting(host: Host, facts: Pass, levels: Sequence[LevelPlan]) -> bool:
    """Whether the deep transformers have a good part of a step's work."""
    layout = layout_of(host)
    whole, without = (layout.work(facts.size, levels, predicts=each) for each in (False, True))
    return without <= (1 - WORTH_PREDICTING) * whole


def _changes(plan: Plan, host: Host) -> Iterator[tuple[str, Settings]]:
    """Changed settings to try, the best first: none that the user has switched off."""
    settings = plan.settings
    if settings.interval != 1:
        yield "interval", replace(settings, interval="auto")
        # a short pass may be a part of one: the interval would act in the other parts too
        is_short = (plan.facts.steps or AUTO_FEWEST) < AUTO_FEWEST
        if not is_short and host.deep_transformers and _is_worth_predicting(host, plan.facts, plan.levels):
            yield "interval", replace(settings, interval=2)
    if settings.method != "downsample":
        yield "ratio_1", replace(settings, ratio_1=0.5)
    elif settings.factor_1 == "auto":
        yield "factor_1", replace(settings, factor_1=2)
