"""What really ran in a pass, which may be less than what was planned: facts, from which `what_ran` writes."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..reason import Why
from .space.level_plan import LevelPlan
from .time.prediction_plan import NAMES, Part

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

    def share_predicted(self, step: int) -> float:
        """The share of a step's calls that was predicted, from 0 to 1."""
        predicted = self.predicted_calls[step]
        return predicted / (predicted + self.computed_calls[step]) if predicted else 0.0

    @property
    def is_mixed(self) -> bool:
        """Whether some step has calls of both kinds, as with Heun in diffusers."""
        return bool(self.predicted_calls.keys() & self.computed_calls.keys())


@dataclass(repr=False)
class Record:
    """Which plans ran in which steps and networks, what was predicted, and notes about what was not reduced."""

    ran_in: dict[LevelPlan, set[int]] = field(default_factory=dict)
    networks: set[str] = field(default_factory=set)  # "UNet", "ControlNet"
    noted: list[Why] = field(default_factory=list)
    cause: Why | None = None  # why nothing was predicted of what could be, where somebody knows it
    called_in: set[int] = field(default_factory=set)  # steps in which the model has run, or was predicted
    whole: PartRecord = field(default_factory=lambda: PartRecord("whole model"))
    deep: PartRecord = field(default_factory=lambda: PartRecord(NAMES["deep"]))
    begun_anew: Why | None = None  # why a prediction could not go on from what was known of earlier steps
    _logged: set[Why] = field(default_factory=set)  # notes, of all passes

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a patched model has run nothing."""
        return Record, ()

    def __repr__(self) -> str:
        ran = [f"level {plan.level} by {plan.method} in {len(steps)} steps" for plan, steps in self.ran_in.items()]
        ran += [f"{part.name} predicted in {_predicted(part)}" for part in self.predicted]
        return f"<Record: {'; '.join([*ran, *self.notes]) or 'nothing was reduced yet'}>"

    @property
    def notes(self) -> list[str]:
        """The notes in words."""
        return [*map(str, self.noted)]

    @property
    def parts(self) -> dict[Part, PartRecord]:
        """Whole UNet calls, and the layers below level 1 in the calls that ran."""
        return {"whole": self.whole, "deep": self.deep}

    @property
    def predicted(self) -> list[PartRecord]:
        """The parts of which something was predicted."""
        return [part for part in self.parts.values() if part.predicted_calls]

    @property
    def is_mixed(self) -> bool:
        """Whether some step has calls that were predicted, and others."""
        return any(part.is_mixed for part in self.predicted)

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

    def counts(self, steps: int, skipped: int = 0) -> list[tuple[int, int]]:
        """Counts, for each predicted part: how often it was computed, and of how often, in steps, or in calls.

        Calls count where some step has calls of both kinds. Layers count in the steps in which the model ran.
        """
        found, ran, of_all = [], steps - skipped, steps
        for part in self.predicted:
            ran -= len(part.predicted_in)
            if self.is_mixed:
                ran = part.computed_calls.total()
                of_all = ran + part.predicted_calls.total()
            found.append((ran, of_all))
            of_all = ran
        return found

    def calls_in(self, steps: Collection[int]) -> int:
        """How many calls of these steps ran the model, if something was predicted."""
        first = self.predicted[0]
        calls = first.computed_calls + (Counter() if first is self.whole else first.predicted_calls)
        return sum(calls[step] for step in steps)

    def note_memory(self, least_error: Mapping[Part, float], begun_anew: Why | None) -> None:
        """What is remembered as a call begins: ``PartRecord.least_error``, and ``begun_anew`` in this call."""
        for name, part in self.parts.items():
            part.least_error = least_error[name]
        self.begun_anew = begun_anew or self.begun_anew

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

    def note(self, why: Why | None) -> None:
        """Add a note, if there is one, once; the first time that it is true, log it."""
        if why and why not in self.noted:
            self.noted.append(why)
        if why and why not in self._logged:
            self._logged.add(why)
            log.warning("ToDo: %s", why)

    def reset(self) -> None:
        """Clear everything: another pass begins."""
        vars(self).update(vars(Record(_logged=self._logged)))


def _predicted(part: PartRecord) -> str:
    return f"{part.predicted_calls.total()} model calls" if part.is_mixed else f"{len(part.predicted_in)} steps"
