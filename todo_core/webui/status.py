"""One line for the user, from what really ran."""

from __future__ import annotations

from ..plan import LevelPlan, Plan
from ..record import Record


def line(name: str, record: Record, plan: Plan | None, steps: int) -> str:
    """What happened in the pass ``name`` ("hires pass"), which had ``steps`` steps."""
    if record.levels:
        levels = "; ".join(_level(level) for _, level in sorted(record.levels.items()))
        return f"ToDo reduced the {name}: {levels}; in {len(record.steps)} of {steps} steps"
    reasons = record.notes or (list(plan.reasons) if plan else []) or ["no step lay in its window"]
    return nothing(f"in the {name}", "; ".join(reasons))


def nothing(where: str, why: str) -> str:
    """That nothing was reduced, and why."""
    return f"ToDo reduced nothing {where}: {why}"


def _level(plan: LevelPlan) -> str:
    return f"level {plan.level} {plan.grid.tokens:,} -> {plan.keys:,} tokens ({plan.method})"
