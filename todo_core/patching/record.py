"""What really ran in a pass, which may be less than what was planned. Infotext and lines are written from it."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .plan import Plan
from .space.level_plan import LevelPlan, Reason
from .time.prediction_plan import DEEP, Part

NOT_ALIKE = "too few steps in a row are alike"
UNPREDICTED = "nothing is predicted"

log = logging.getLogger("todo_core")


@dataclass
class PartRecord:
    """What ran of a part that is predicted in some steps: the whole UNet, or its layers below level 1."""

    name: str
    predicted_calls: Counter[int] = field(default_factory=Counter)  # by step
    computed_calls: Counter[int] = field(default_factory=Counter)
    least_error: float = math.inf  # the least tolerance with which a step would have been predicted

    @property
    def predicted_in(self) -> set[int]:
        """The steps in which every call was predicted."""
        return self.predicted_calls.keys() - self.computed_calls.keys()

    def clear(self) -> None:
        """Another pass begins."""
        self.predicted_calls.clear()
        self.computed_calls.clear()
        self.least_error = math.inf


@dataclass(repr=False)
class Record:
    """Which plans ran in which steps and networks, what was predicted, and notes about what was not reduced."""

    ran_in: dict[LevelPlan, set[int]] = field(default_factory=dict)
    networks: set[str] = field(default_factory=set)  # "UNet", "ControlNet"
    notes: list[str] = field(default_factory=list)
    cause: Reason = NOT_ALIKE  # why nothing was predicted of what could be
    called_in: set[int] = field(default_factory=set)  # steps in which the model has run, or was predicted
    whole: PartRecord = field(default_factory=lambda: PartRecord("whole model"))
    deep: PartRecord = field(default_factory=lambda: PartRecord(DEEP))
    _logged: set[str] = field(default_factory=set)  # notes, of all passes

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a patched model has run nothing."""
        return Record, ()

    def __repr__(self) -> str:
        ran = [f"level {plan.level} by {plan.method} in {len(steps)} steps" for plan, steps in self.ran_in.items()]
        ran += [f"{part.name} predicted in {len(part.predicted_in)} steps" for part in self.predicted]
        return f"<Record: {'; '.join([*ran, *self.notes]) or 'nothing was reduced yet'}>"

    @property
    def parts(self) -> dict[Part, PartRecord]:
        """Whole UNet calls, and the layers below level 1 in the calls that ran."""
        return {"whole": self.whole, "deep": self.deep}

    @property
    def predicted(self) -> list[PartRecord]:
        """The parts of which something was predicted."""
        return [part for part in self.parts.values() if part.predicted_calls]

    @property
    def acted(self) -> bool:
        """Whether anything was reduced or predicted."""
        return bool(self.ran_in or self.predicted)

    @property
    def levels(self) -> dict[int, LevelPlan]:
        """The last plan of each level that was reduced."""
        return {plan.level: plan for plan in self.ran_in}

    @property
    def steps(self) -> set[int]:
        """All steps in which anything was reduced or predicted."""
        return set().union(*(part.predicted_calls for part in self.predicted), *self.ran_in.values())

    @property
    def methods(self) -> set[str]:
        """The methods that reduced something."""
        return {plan.method for plan in self.ran_in}

    def summary(self, steps: int, unit: str = "steps", plan: Plan | None = None, skipped: int = 0) -> str:
        """Which levels were reduced, how many of ``steps`` were computed below level 1, and the notes; in one line.

        ``plan`` is that of a pass that has ended: the line then says so if nothing of it was predicted. In ``skipped``
        of the steps somebody else has not called the model.
        """
        of_all = f"of {_counted(steps, unit)}"
        steps_of: dict[tuple[int, int, int, str], set[int]] = {}
        for level, ran_in in self.ran_in.items():  # a refiner's plan may differ in what the line does not tell
            steps_of.setdefault((level.level, level.grid.tokens, level.keys, level.method), set()).update(ran_in)
        lines = [
            f"level {level} from {tokens:,} to {left:,} tokens ({method}) in {len(ran_in)} {of_all}"
            for (level, tokens, left, method), ran_in in sorted(steps_of.items())
        ]
        told = any(note.endswith(UNPREDICTED) for note in self.notes)
        if self.predicted:
            lines.append(self._computed(steps, unit, skipped))
        elif plan and not told and (plan.predicts or plan.settings.interval not in (1, "auto")):
            lines.append(f"nothing predicted: {self._why_nothing_predicted(plan)}")
        is_auto = plan and not told and plan.settings.predict == plan.settings.interval == "auto"
        if plan and is_auto and not self.whole.predicted_calls and (self.predicted or not plan.predicts):
            lines.append(f"no whole step predicted: {self._why_not(plan, 'whole')}")
        if plan and (why := plan.why_all_tokens):
            lines.append(f"all tokens kept: {why}")
        lines += [f"the model was not called in {skipped}"] if skipped else []
        if "ControlNet" in self.networks:
            lines.append("ControlNet too" if "UNet" in self.networks else "in ControlNet alone")
        return "; ".join([*lines, *self.notes])

    def computed(self, steps: int, skipped: int = 0) -> list[tuple[int, int]]:
        """Of each predicted part, how often it was computed, and of how often: in steps, or in calls.

        Calls count where some step has both kinds. Layers count in the steps in which the model ran.
        """
        found, ran, of_all = [], steps - skipped, steps
        for part in self.predicted:
            ran -= len(part.predicted_in)
            if self._counts_calls:
                ran = part.computed_calls.total()
                of_all = ran + part.predicted_calls.total()
            found.append((ran, of_all))
            of_all = ran
        return found

    @property
    def _counts_calls(self) -> bool:
        """Whether some step has calls of both kinds, as with Heun in ComfyUI."""
        return any(part.predicted_calls.keys() & part.computed_calls.keys() for part in self.predicted)

    def _computed(self, steps: int, unit: str, skipped: int) -> str:
        """``computed`` in words."""
        unit, parts = "model calls" if self._counts_calls else unit, list[str]()
        for part, (ran, of_all) in zip(self.predicted, self.computed(steps, skipped), strict=True):
            of_what = f"these {of_all}" if parts else _counted(of_all, unit)
            parts.append(f"{part.name} {'' if parts else 'computed '}in {ran} of {of_what}")
        return ", ".join(parts)

    def why_nothing_ran(self, plan: Plan | None, steps: int, steps_in_window: int) -> str:
        """Why a pass of ``steps`` was not reduced although its plan, None if no step ran, reduces something."""
        notes = [note for note in self.notes if not plan or note != plan.note]
        if notes:
            return "; ".join(notes)
        if not steps or not plan:
            return "no step ran"
        if not steps_in_window:
            return "no step is between Start and End"
        return self._why_nothing_predicted(plan) if plan.predicts else "its self-attention was not called"

    def _why_nothing_predicted(self, plan: Plan) -> str:
        planned: list[Part] = [name for name, part in plan.parts.items() if part.predicts]
        return self._why_not(plan, planned[0]) if planned else plan.why_not_predicted or self.cause

    def _why_not(self, plan: Plan, name: Part) -> str:
        """Why nothing of a part was predicted."""
        part, least = plan.parts[name], self.parts[name].least_error
        if part.why or part.tolerance is None or not part.tolerance < least < math.inf:
            return part.why or self.cause
        asked = plan.settings.tolerance  # by auto, each part has its own
        error = least * (asked / part.tolerance if part.tolerance else 1)
        return f"error {math.ceil(100 * error) / 100:g}, tolerance {asked:g}"

    def note_errors(self, least: Mapping[Part, float]) -> None:
        """The least tolerances with which a step would have been predicted."""
        for name, part in self.parts.items():
            part.least_error = least[name]

    def ran_call(self, step: int, planned: Sequence[Part], predicted: Collection[Part]) -> list[Part]:
        """A call of the model has ended. Returns the ``planned`` parts that ran: nothing does in a predicted call."""
        within = planned if "whole" not in predicted else planned[:1]
        for name in within:
            part = self.parts[name]
            (part.predicted_calls if name in predicted else part.computed_calls)[step] += 1
        return [name for name in within if name not in predicted]

    def ran(self, plan: LevelPlan, step: int, network: str) -> None:
        """A module of this network was reduced."""
        self.ran_in.setdefault(plan, set()).add(step)
        self.networks.add(network)

    def note(self, text: str | None) -> None:
        """Add a note, if there is one, once; the first time that it is true, log it."""
        if text and text not in self.notes:
            self.notes.append(text)
        if text and text not in self._logged:
            self._logged.add(text)
            log.warning("ToDo: %s", text)

    def reset(self) -> None:
        """Clear everything: another pass begins."""
        self.ran_in.clear()
        for part in self.parts.values():
            part.clear()
        self.called_in.clear()
        self.networks.clear()
        self.notes.clear()


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit.removesuffix('s') if number == 1 else unit}"


class IdleNotes:
    """Notes, and so logs, that a whole pass was not reduced: for a session that nobody asks what it did."""

    _plan: Plan | None  # of the last call
    _steps: int | None

    def __init__(self, record: Record) -> None:
        self._record = record
        self._forget()

    def _forget(self) -> None:
        self._plan, self._step, self._steps = None, -1, None
        self._planned = self._reduced = False

    def add(self, plan: Plan, step: int, steps: int | None, *, planned: bool, reduced: bool) -> None:
        """A call of ``step`` of so many, if they are known, has ended."""
        if step < self._step:
            self.end()
        self._plan, self._step, self._steps = plan, step, steps
        self._planned, self._reduced = self._planned or planned, self._reduced or reduced
        if step + 1 == steps:
            self._tell()

    def end(self) -> None:
        """No more calls of the pass will come. One with fewer steps than known was interrupted."""
        if self._steps is None:
            self._tell()
        self._forget()

    def _tell(self) -> None:
        plan = self._plan
        if plan is None or plan.settings.method == "none" or self._reduced or self._record.notes:
            return
        why = self._record.why_nothing_ran(plan, self._step + 1, int(self._planned))
        text = plan.nothing_to_reduce if plan.reason else f"nothing was reduced at {plan.facts.pixels}: {why}"
        self._record.note(text.removesuffix("."))
