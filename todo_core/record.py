"""What really ran, as against what was planned: the infotext and the panel's status are written from it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from .plan import LevelPlan

log = logging.getLogger("todo_core")


@dataclass
class Record:
    """Levels that were reduced, in which steps and by which methods, and notes about what was left alone."""

    levels: dict[int, LevelPlan] = field(default_factory=dict)
    steps: set[int] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def ran(self, plan: LevelPlan, step: int) -> None:
        """A module was reduced."""
        self.levels[plan.level] = plan
        self.methods.add(plan.method)
        self.steps.add(step)

    def note(self, text: str) -> None:
        """Say something, once."""
        if text not in self.notes:
            self.notes.append(text)
            log.warning("ToDo: %s", text)
