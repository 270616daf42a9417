"""One line for the user, from what really ran."""

from __future__ import annotations

from ...patching.plan import LevelPlan, Plan
from ...patching.record import Record


def line(name: str, record: Record, plan: Plan | None, steps: int, tried: int) -> str:
    """What happened in the pass ``name`` ("hires pass"), which had ``steps`` steps, ``tried`` of them in the window."""
    if record.ran_in:
        ran = [_ran(done, len(record.ran_in[done]), steps) for done in sorted(record.ran_in, key=_order)]
        return f"ToDo reduced the {name}: {'; '.join([*ran, *record.notes])}"
    if plan and plan.reasons:
        why = "; ".join(plan.reasons)
    elif record.notes:
        why = "; ".join(record.notes)
    else:
        why = "no step lay in its window" if not tried else "the attention of this model was never called"
    return nothing(why, where=f" in the {name}")


def nothing(why: object, *, where: str = "") -> str:
    """That nothing was reduced, and why."""
    return f"ToDo reduced nothing{where}: {why}"


def stood_aside(name: str, beside: str) -> str:
    """That a pass was left to others."""
    return nothing(f"{beside} is on, and Settings > ToDo says to stand aside", where=f" in the {name} pass")


def beside(name: str, beside: str) -> str:
    """That others act in the same pass."""
    return f"ToDo leaves whole what {beside} has changed in the {name} pass"


def _order(plan: LevelPlan) -> tuple[int, int]:
    return plan.level, plan.keys


def _ran(plan: LevelPlan, count: int, steps: int) -> str:
    tokens = f"from {plan.grid.tokens:,} to {plan.keys:,} tokens"
    return f"level {plan.level} {tokens} ({plan.method}) in {count} of {steps} steps"
