"""What ran in a pass, as settings and in words, and why nothing or less did. All programs read it here.

The plan knows why something cannot be done. Why it was planned and did not come about is known once the pass has run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..hosts import Host
from ..reason import Because, Reason, Why, Words, measured
from ..settings import SETTINGS, Settings
from .plan import Plan
from .record import Record
from .time.prediction_plan import Part
from .work import Kind, layout_of


class Ran(Words):
    """What the line of a pass says."""

    REDUCED = "ToDo reduced {}: {}"
    NOTHING = "ToDo reduced nothing in {}: {}"
    NO_PASS = "ToDo reduced nothing: {}"
    FOUND = "ToDo found {}."
    CANNOT = "ToDo cannot reduce {}: {}"
    STOPPED = "ToDo stopped in {}: {}"
    LEVEL = "level {} from {:,} to {:,} tokens ({}) in {} of {}"
    COMPUTED = "{} computed in {} of {}"
    OF_THESE = "{}, {} in {} of these {}"
    SKIPPED = "the model was not called in {}"
    CONTROLNET_TOO = "ControlNet too"
    CONTROLNET_ALONE = "in ControlNet alone"
    LESS = "{}{} % less work"
    MORE = "{}{} % more work"


def as_infotext(record: Record, plan: Plan | None, counts: Sequence[tuple[int, int]]) -> dict[str, str]:
    """The settings that had an effect, by their infotext keys; nothing where nothing was reduced.

    They make the same image again. Where a setting is auto, what was used stands behind it; ``counts`` are those of
    `Record.counts`.
    """
    if not record.acted or not plan:
        return {}
    settings = _settings_that_ran(record, plan)
    written = settings.to_infotext(without=_without_effect(record, settings))
    used = {name: value for name, value in _used(record, plan, counts).items() if getattr(settings, name) == "auto"}
    return written | {SETTINGS[name].infotext_key: f"auto ({value})" for name, value in used.items()}


def _settings_that_ran(record: Record, plan: Plan) -> Settings:
    """The settings of a plan, without what came to nothing."""
    settings, changed = plan.settings, dict[str, Any]()
    if not record.ran_in and settings.method != "downsample":
        changed |= {"method": "downsample", "factor_1": 1, "factor_2": 1}
    if not record.predicted and settings.interval != "auto":
        changed |= {"interval": 1}
    if settings.afterwards not in {level.method for level in record.ran_in}:
        changed |= {"afterwards": "none"}
    if settings.predict == "whole" and not plan.whole.predicts:
        changed |= {"predict": "deep"}
    return replace(settings, **changed)


def _without_effect(record: Record, settings: Settings) -> frozenset[str]:
    """Names of settings that are not written: the method without its tokens, and levels that were not reduced."""
    if not record.ran_in:
        return frozenset({"method"})
    if record.predicted:  # factors of 1 keep a level from being reduced when the image is repeated
        return frozenset()
    unused = {f"{kind}_{level}" for kind in ("factor", "ratio") for level in {1, 2} - record.levels.keys()}
    return frozenset(unused - ({"factor_1"} if settings.factor_1 == 1 else set()))  # auto would reduce level 1


def _used(record: Record, plan: Plan, counts: Sequence[tuple[int, int]]) -> dict[str, str]:
    """What stands for auto, by setting."""
    used = {f"factor_{level.level}": f"{level.amount:g}" for level in record.ran_in if level.method == "downsample"}
    if record.ran_in:
        used |= {"start": f"{plan.start:.2g}", "end": f"{plan.end:.2g}"}
    used["interval"] = " and ".join(f"{ran} of {of_all}" for ran, of_all in counts) or "1"
    if record.predicted:
        used["predict"] = " and ".join(name for name, part in record.parts.items() if part.predicted_calls)
    return used


def in_words(record: Record, steps: int, unit: str = "steps", skipped: int = 0) -> list[Why]:
    """Which levels were reduced, and how many of ``steps`` were computed.

    In ``skipped`` of the steps somebody else has not called the model.
    """
    steps_of: dict[tuple[int, int, int, str], set[int]] = {}
    for level, ran_in in record.ran_in.items():  # a refiner's plan may differ in what the line does not tell
        steps_of.setdefault((level.level, level.grid.tokens, level.keys, level.method), set()).update(ran_in)
    by_calls = record.is_mixed and unit != "steps"  # a call of the sampler may be several of the model
    of_all = _counted(record.counts(steps)[0][1] if by_calls else steps, unit)
    lines: list[Any] = [
        Ran.LEVEL(*level, record.calls_in(ran_in) if by_calls else len(ran_in), of_all)
        for level, ran_in in sorted(steps_of.items())
    ]
    lines += [_computed(record, steps, unit, skipped)] if record.predicted else []
    lines += [Ran.SKIPPED(skipped)] if skipped else []
    if "ControlNet" in record.networks:
        lines.append(Ran.CONTROLNET_TOO if "UNet" in record.networks else Ran.CONTROLNET_ALONE)
    return lines


def _computed(record: Record, steps: int, unit: str, skipped: int) -> Because:
    unit = "model calls" if record.is_mixed else unit
    (first, *more), ((ran, of_all), *counts) = record.predicted, record.counts(steps, skipped)
    line = Ran.COMPUTED(first.name, measured(ran), _counted(of_all, unit))
    for part, (ran, of_all) in zip(more, counts, strict=True):
        line = Ran.OF_THESE(line, part.name, measured(ran), measured(of_all))
    return line


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit.removesuffix('s') if number == 1 else unit}"


def work_saved(record: Record, plan: Plan, host: Host, steps: int) -> float | None:
    """The share of the UNet's work in these steps that was saved, from 0 to 1.

    None where it is not known: calls of one step had several sizes, only a ControlNet was reduced, or another model has
    a part of the guidance.
    """
    if record.networks == {"ControlNet"} or plan.facts.is_split:
        return None
    acted = record.steps
    calls: defaultdict[Kind, float] = defaultdict(float, {((), False): steps - len(acted)})
    for step in acted:
        levels = [level for level, ran_in in record.ran_in.items() if step in ran_in]
        if len({(level.level, level.grid, level.keys) for level in levels}) > len({level.level for level in levels}):
            return None
        ran, deep = 1 - record.whole.share_predicted(step), record.deep.share_predicted(step)
        for kind, share in (((*levels,), True), ran * deep), (((*levels,), False), ran * (1 - deep)):
            calls[kind] += share
    return layout_of(host).share_saved(plan.facts.size, calls, steps)


def less_work(saved: float, about: str = "") -> Because:
    """A share of the work, in words; ``about`` stands before a number that is no more than usual."""
    percent = round(100 * abs(saved))
    return (Ran.MORE if saved < 0 else Ran.LESS)(about if percent else "under ", measured(percent or 1))


def nothing_to_reduce(plan: Plan) -> Because:
    """What a plan that reduces nothing says: its size in image pixels, the reasons, and what would help."""
    told = Reason.NOTHING_TO_REDUCE(plan.facts.pixels, plan.reasons)
    return Reason.ADVISED(told, plan.advice) if plan.advice else told


def why_less(record: Record, plan: Plan | None, steps: int, steps_in_window: int) -> list[Why]:
    """Why nothing was reduced in a pass of ``steps``, or what else was not; then the notes.

    ``plan`` is that of a pass that has ended; of another one, nothing is told but notes.
    """
    if not record.acted:
        return _why_nothing(record, plan, steps, steps_in_window)
    return [*(_why_not_more(record, plan) if plan else ()), *record.noted]


def _why_nothing(record: Record, plan: Plan | None, steps: int, steps_in_window: int) -> list[Why]:
    if plan and plan.reasons:
        return [*plan.reasons]
    if notes := [note for note in record.noted if not plan or note != plan.note]:
        return notes
    if not steps or not plan:
        return [Reason.NO_STEP]
    if not steps_in_window:
        return [Reason.OUTSIDE]
    planned = [name for name, part in plan.parts.items() if part.predicts]
    return [_why_not_predicted(record, plan, planned[0]) if planned else Reason.NOT_CALLED]


def _why_not_more(record: Record, plan: Plan) -> list[Why]:
    """What of a plan did not come about, or auto has left out, although something was reduced."""
    reasons, planned = list[Why](), [name for name, part in plan.parts.items() if part.predicts]
    if planned and not record.predicted and not _is_told(record):
        reasons.append(Reason.NOTHING_PREDICTED(_why_not_predicted(record, plan, planned[0])))
    elif planned and record.begun_anew:
        reasons.append(Reason.BEGAN_ANEW(record.begun_anew))
    if (why := _why_no_whole_step(record, plan)) and (record.predicted or not planned):
        reasons.append(why)
    return reasons + ([Reason.TOKENS_KEPT(plan.why_all_tokens)] if plan.why_all_tokens else [])


def _why_no_whole_step(record: Record, plan: Plan) -> Why | None:
    """Why auto has predicted no whole step; None where it has, or was not asked to."""
    is_auto = plan.settings.predict == plan.settings.interval == "auto"
    if not is_auto or record.whole.predicted_calls or _is_told(record):
        return None
    return Reason.NO_WHOLE_STEP(_why_not_predicted(record, plan, "whole"))


def _is_told(record: Record) -> bool:
    """Whether a note says that nothing is predicted."""
    return any(note.code is Reason.UNPREDICTED for note in record.noted)


def _why_not_predicted(record: Record, plan: Plan, name: Part) -> Why:
    """Why nothing of a part was predicted."""
    part, least = plan.parts[name], record.parts[name].least_error
    if part.why:
        return part.why
    if part.tolerance is None or not part.tolerance < least < math.inf:
        return record.cause or record.begun_anew or Reason.TOO_FEW
    asked = plan.settings.tolerance  # by auto, each part has its own
    error = least * (asked / part.tolerance if part.tolerance else 1)
    return Reason.ABOVE(measured(math.ceil(100 * error) / 100), asked)


class IdleNotes:
    """Notes, and so logs, that a pass was not reduced, or no whole step predicted: where nobody asks what was done."""

    def __init__(self, record: Record) -> None:
        self._record, self._planned = record, False
        self._plan: Plan | None = None  # of the last call

    def add(self, plan: Plan, step: int, *, planned: bool) -> None:
        """A call of ``step`` has ended. Something was ``planned`` for it, or not."""
        self._plan, self._step, self._planned = plan, step, self._planned or planned
        if step + 1 == plan.facts.steps:
            self._tell(plan)

    def end(self) -> None:
        """No more calls of the pass will come. One with fewer steps than known was interrupted."""
        if self._plan and self._plan.facts.steps is None:
            self._tell(self._plan)
        self._plan, self._planned = None, False

    def _tell(self, plan: Plan) -> None:
        if self._record.acted and plan.facts.steps:  # a loop of one's own tells no steps, and predicts nothing by auto
            self._record.note(_why_no_whole_step(self._record, plan))
        if plan.settings.method == "none" or self._record.acted or self._record.noted:
            return
        whys = why_less(self._record, plan, self._step + 1, int(self._planned))
        nothing = Reason.NOTHING_REDUCED(plan.facts.pixels, tuple(whys))
        self._record.note(nothing_to_reduce(plan) if plan.reasons else nothing)
