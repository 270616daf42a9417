"""The draws of a step, made at once: each block and row gets what it would get alone."""

from __future__ import annotations

import pickle

import pytest
import torch

from tests.models import ldm_sd1
from todo_core import Settings, TokenGrid
from todo_core.hosts import detect
from todo_core.patching.plan import make_plan
from todo_core.patching.running_calls import UNetCall
from todo_core.patching.step_draws import StepDraws
from todo_core.reduction import random_draws

CPU = torch.device("cpu")
SETTINGS = Settings(method="similarity", ratio_1=0.5, ratio_2=0.25, sx=3)


def call_of(seeds, step=0, size=(12, 10)):
    plan = make_plan(SETTINGS, detect(ldm_sd1().unet), TokenGrid(*size))
    return UNetCall({level.level: level for level in plan.levels}, step=step, seeds=seeds, seeds_of_step=seeds)


def alone(seeds, step, rank, plan):
    return random_draws(seeds, step, rank, plan.grid.size, (SETTINGS.sy, SETTINGS.sx))


@pytest.mark.parametrize("seeds", [(7,), (7, 7), (7, 8), (8, 7, 8, 7)])
def test_each_block_gets_its_own_rows(seeds):
    draws = StepDraws(SETTINGS)
    for step in (0, 1, 0):
        call = call_of(seeds, step)
        for plan in call.levels.values():
            for rank in range(plan.blocks):
                for rows in (seeds, seeds[:1], seeds[::-1]):
                    found = draws.rows(rows, rank, plan, call, CPU)
                    assert found.equal(alone(rows, step, rank, plan)), (step, plan.level, rank, rows)


def test_a_step_is_drawn_once(monkeypatch):
    made, make = [], StepDraws._all
    monkeypatch.setattr(StepDraws, "_all", lambda draws, key: made.append(key.step) or make(draws, key))
    draws = StepDraws(SETTINGS)
    for step in (0, 0, 1, 1):
        call = call_of((7, 8), step)
        for plan in call.levels.values():
            draws.rows((8,), 1, plan, call, CPU)
    assert made == [0, 1]
    draws.clear()
    draws.rows((8,), 1, call.levels[1], call, CPU)
    assert made == [0, 1, 1]


def test_a_grid_that_nobody_planned_is_drawn_by_itself():
    draws, call, other = StepDraws(SETTINGS), call_of((7, 8)), call_of((7, 8), size=(6, 4)).levels[1]
    assert draws.rows((7, 8), 2, other, call, CPU).equal(alone((7, 8), 0, 2, other))


def test_a_copy_begins_without_draws():
    draws, call = StepDraws(SETTINGS), call_of((7,))
    draws.rows((7,), 0, call.levels[1], call, CPU)
    assert len(pickle.dumps(draws)) < 2000
    assert (
        pickle.loads(pickle.dumps(draws))
        .rows((7,), 0, call.levels[1], call, CPU)
        .equal(draws.rows((7,), 0, call.levels[1], call, CPU))
    )
