"""What really ran, which may be less than what was planned. Infotext and status lines are written from it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from .plan import LevelPlan, Plan

log = logging.getLogger("todo_core")


@dataclass(repr=False)
class Record:
    """Which plans ran in which steps and networks, what was predicted, and notes about what was not reduced."""

    ran_in: dict[LevelPlan, set[int]] = field(default_factory=dict)
    predicted_in: set[int] = field(default_factory=set)  # steps in which something was predicted
    networks: set[str] = field(default_factory=set)  # "UNet", "ControlNet"
    notes: list[str] = field(default_factory=list)
    predicted: str = "transformers below level 1"  # in words

    def __repr__(self) -> str:
        ran = [f"level {plan.level} by {plan.method} in {len(steps)} steps" for plan, steps in self.ran_in.items()]
        if self.predicted_in:
            ran.append(f"{self.predicted} predicted in {len(self.predicted_in)} steps")
        return f"<Record: {'; '.join([*ran, *self.notes]) or 'nothing was reduced yet'}>"

    @property
    def acted(self) -> bool:
        """Whether anything was reduced or predicted."""
        return bool(self.ran_in or self.predicted_in)

    @property
    def levels(self) -> dict[int, LevelPlan]:
        """The last plan of each level that was reduced."""
        return {plan.level: plan for plan in self.ran_in}

    @property
    def steps(self) -> set[int]:
        """All steps in which anything was reduced or predicted."""
        return self.predicted_in.union(*self.ran_in.values())

    @property
    def methods(self) -> set[str]:
        """The methods that reduced something."""
        return {plan.method for plan in self.ran_in}

    def summary(self, steps: int, unit: str = "steps") -> str:
        """Which levels were reduced, how many of ``steps`` were computed below level 1, and the notes; in one line."""
        of_all = f"of {steps} {unit}"
        steps_of: dict[tuple[int, int, int, str], set[int]] = {}
        for plan, ran_in in self.ran_in.items():  # a refiner's plan may differ in what the line does not tell
            steps_of.setdefault((plan.level, plan.grid.tokens, plan.keys, plan.method), set()).update(ran_in)
        lines = [_level(*plan, f"{len(steps_of[plan])} {of_all}") for plan in sorted(steps_of)]
        if self.predicted_in:
            lines.append(f"{self.predicted} computed in {steps - len(self.predicted_in)} {of_all}")
        if "ControlNet" in self.networks:
            lines.append("ControlNet too" if "UNet" in self.networks else "in ControlNet alone")
        return "; ".join([*lines, *self.notes])

    def why_nothing_ran(self, plan: Plan | None, steps: int, steps_in_window: int) -> str:
        """Why a pass of ``steps`` was not reduced although its plan, None if no step ran, reduces something."""
        if self.notes:
            return "; ".join(self.notes)
        if not steps or not plan:
            return "no step ran"
        if not steps_in_window:
            return "no step is between Start and End"
        if plan.deep.predicts:
            return plan.deep.why_nothing_in(steps) or "too few steps in a row are alike to predict one"
        return "its self-attention was not called"

    def ran(self, plan: LevelPlan, step: int, network: str) -> None:
        """A module of this network was reduced."""
        self.ran_in.setdefault(plan, set()).add(step)
        self.networks.add(network)

    def note(self, text: str) -> None:
        """Add a note, if there is one, and log it, once."""
        if text and text not in self.notes:
            self.notes.append(text)
            log.warning("ToDo: %s", text)

    def reset(self) -> None:
        """Clear everything."""
        self.ran_in.clear()
        self.predicted_in.clear()
        self.networks.clear()
        self.notes.clear()


def _level(level: int, tokens: int, left: int, method: str, count: str) -> str:
    return f"level {level} from {tokens:,} to {left:,} tokens ({method}) in {count}"
