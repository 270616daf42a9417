"""What really ran, which may be less than what was planned. Infotext and status lines are written from it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from .plan import LevelPlan

log = logging.getLogger("todo_core")


@dataclass(repr=False)
class Record:
    """Which plans ran in which steps and networks, what was predicted, and notes about what was not reduced."""

    ran_in: dict[LevelPlan, set[int]] = field(default_factory=dict)
    predicted_in: set[int] = field(default_factory=set)  # steps in which deep transformers were predicted
    networks: set[str] = field(default_factory=set)  # "UNet", "ControlNet"
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        ran = [f"level {plan.level} by {plan.method} in {len(steps)} steps" for plan, steps in self.ran_in.items()]
        if self.predicted_in:
            ran.append(f"deep transformers predicted in {len(self.predicted_in)} steps")
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

    def ran(self, plan: LevelPlan, step: int, network: str) -> None:
        """A module of this network was reduced."""
        self.ran_in.setdefault(plan, set()).add(step)
        self.networks.add(network)

    def note(self, text: str) -> None:
        """Add a note and log it, once."""
        if text not in self.notes:
            self.notes.append(text)
            log.warning("ToDo: %s", text)

    def reset(self) -> None:
        """Clear everything."""
        self.ran_in.clear()
        self.predicted_in.clear()
        self.networks.clear()
        self.notes.clear()
