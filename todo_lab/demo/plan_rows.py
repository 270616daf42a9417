"""The table of the plan: what was reduced at each level, in how many steps, or why it was not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from todo_core.patching.level_plan import LevelPlan
from todo_core.patching.record import Record
from todo_core.settings import Settings

from ..sampling.passes import Pass
from ..sampling.request import Request

NOT_REDUCED = "not reduced"
PLAN_HEAD = ("level", "tokens", "keys", "method", "blocks", "outcome")


@dataclass(frozen=True)
class PlanRow:
    """One level of the plan. `outcome` counts the steps in which it was reduced, or says why it was not."""

    level: str
    tokens: str
    keys: str
    method: str
    blocks: int
    outcome: str


def plan_rows(passes: Iterable[Pass], request: Request) -> list[PlanRow]:
    """The rows of every pass that has a plan."""
    return [row for each in passes for row in _pass_rows(each, request)]


def _pass_rows(sampled: Pass, request: Request) -> list[PlanRow]:
    plan = sampled.plan
    if plan is None:
        return []
    steps, suffix = (request.hires_steps, "") if sampled.name == "hires" else (request.steps, f", {sampled.name} pass")
    rows = [_row(sampled.record, level, f"{level.level}{suffix}", steps) for level in plan.levels]
    if plan.deep.predicts:
        outcome = f"{_steps(sampled.record.predicted_in)} of {steps} steps"
        where = "all" if plan.deep.is_whole else "below 1"
        rows.append(PlanRow(f"{where}{suffix}", "-", "-", "predicted", plan.deep.transformers, outcome))
    after = f", after {plan.settings.end:g}"
    return rows + [_row(sampled.record, level, f"{level.level}{suffix}{after}", steps) for level in plan.after]


def _row(record: Record, planned: LevelPlan, name: str, steps: int) -> PlanRow:
    ran = {p: s for p, s in record.ran_in.items() if (p.level, p.method) == (planned.level, planned.method)}
    level = next(reversed(ran), planned)  # an odd size can make another grid than was planned
    if level.why:
        return PlanRow(name, _grid(level.grid), f"{level.keys:,}", NOT_REDUCED, level.blocks, level.why)
    keys = _grid(level.target_grid) if level.target_grid else f"{level.keys:,}"
    outcome = f"{_steps(set().union(*ran.values()))} of {steps} steps"
    return PlanRow(name, _grid(level.grid), keys, level.method, level.blocks, outcome)


def _grid(grid: Any) -> str:
    return f"{grid.tokens:,} ({grid})"


def _steps(reduced: set[int]) -> str:
    """The number of reduced steps, and their range if it does not start at the first step: "3 (5-7)"."""
    if not reduced or max(reduced) + 1 == len(reduced):
        return str(len(reduced))
    return f"{len(reduced)} ({min(reduced) + 1}-{max(reduced) + 1})"


def why_not_reduced(settings: Settings, hires: Pass) -> str:
    """Why nothing was reduced in the hires pass; empty if something was."""
    if hires.plan is None:
        return "the method is none" if settings.method == "none" else "the settings act in the first pass only"
    if hires.record.acted:
        return ""
    return hires.plan.reason or "none of its steps is between start and end"


def unique_notes(passes: Iterable[Pass]) -> list[str]:
    """The notes of all passes, each once."""
    return list(dict.fromkeys(note for each in passes for note in each.record.notes))
