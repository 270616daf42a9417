"""The line that says what ran."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from todo_core import Settings
from todo_core.patching.plan import Pass, Plan
from todo_core.patching.record import NOT_WITHIN, IdleNotes, Record
from todo_core.patching.space.level_plan import LevelPlan
from todo_core.patching.time.deep_plan import DeepPlan
from todo_core.token_grid import TokenGrid


def record(*networks):
    grid = TokenGrid(64, 64)
    ran_in = {LevelPlan(1, 5, "downsample", grid, 1024, 2): {0, 1, 2}}
    return Record(ran_in, set(networks), ["a note"], predicted_calls=Counter([3]), computed_calls=Counter([0, 1, 2]))


@pytest.mark.parametrize(
    ("networks", "said"),
    [({"UNet"}, ""), ({"UNet", "ControlNet"}, "ControlNet too; "), ({"ControlNet"}, "in ControlNet alone; ")],
)
def test_it_names_the_networks_that_were_reduced(networks, said):
    line = record(*networks).summary(4)
    assert line.startswith("level 1 from 4,096 to 1,024 tokens (downsample) in 3 of 4 steps; ")
    assert line.endswith(f"transformers below level 1 computed in 3 of 4 steps: 1.3x fewer; {said}a note")


def test_calls_are_counted_where_a_step_has_calls_of_both_kinds():
    """As with Heun in ComfyUI."""
    mixed = Record()
    for step, is_predicted in ((0, 0), (0, 0), (1, 0), (1, 0), (2, 0), (2, 1), (3, 0), (3, 1)):
        mixed.ran_call(step, is_predicted=bool(is_predicted))
    assert mixed.summary(4) == "transformers below level 1 computed in 6 of 8 model calls: 1.3x fewer"
    assert mixed.predicted_in == set()


def test_nothing_is_said_of_what_did_not_run():
    assert Record(networks={"UNet"}).summary(4) == ""
    assert not Record(networks={"UNet"}).acted
    assert record("UNet").steps == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("why", "steps", "in_window", "said"),
    [
        (None, 0, 0, "no step ran"),
        (None, 8, 0, "no step is between Start and End"),
        (None, 8, 8, "too few steps in a row are alike"),
        ("the model has one level", 8, 8, "its self-attention was not called"),
    ],
)
def test_it_says_why_a_plan_came_to_nothing(why, steps, in_window, said):
    plan = Plan(Settings(), Pass(TokenGrid(64, 64), 8), (), DeepPlan(7, 2, why=why, note="layers are predicted"))
    assert Record(notes=["layers are predicted"]).why_nothing_ran(plan, steps, in_window) == said
    assert Record().why_nothing_ran(None, steps, in_window) == "no step ran"
    assert Record(notes=["a note", "another"]).why_nothing_ran(plan, steps, in_window) == "a note; another"


def test_beside_another_cache_it_says_how_often_the_model_was_not_called_and_compares_nothing():
    ran = Record(predicted_calls=Counter([3]), computed_calls=Counter([0, 1, 2, 5]))
    said = "transformers below level 1 computed in 4 of 12 steps; the model was not called in 7"
    assert ran.summary(12, skipped=7) == said
    assert ran.computed(12, 7) == (4, 12)


def test_one_step_is_one_step():
    line = Record({record("UNet").ran_in.popitem()[0]: {0}}).summary(1)
    assert line == "level 1 from 4,096 to 1,024 tokens (downsample) in 1 of 1 step"


def test_it_says_that_a_planned_prediction_did_not_happen():
    plan = Plan(Settings(), Pass(TokenGrid(64, 64), 8), (), DeepPlan(7, 2))
    assert Record().summary(8, plan=plan) == "nothing predicted: too few steps in a row are alike"
    short = Plan(Settings(interval=2), Pass(TokenGrid(64, 64), 3), (), DeepPlan(7, 2, why="they need 4 steps"))
    assert Record().summary(3, plan=short) == "nothing predicted: they need 4 steps"
    assert Record().summary(3, plan=replace(short, settings=Settings())) == ""  # auto chooses by itself
    assert Record(predicted_calls=Counter([2])).summary(8, plan=plan) == (
        "transformers below level 1 computed in 7 of 8 steps: 1.1x fewer"
    )


@pytest.mark.parametrize(
    ("error", "allowed", "said"),
    [
        (0.203, 0.16, "error 0.21, tolerance 0.16"),
        (0.102, 0.08, "error 0.21, tolerance 0.16"),  # of the layers, in the user's terms
        (0.1, 0.16, NOT_WITHIN),
        (math.inf, 0.16, NOT_WITHIN),
        (0.203, 0.0, "error 0.21, tolerance 0.16"),
    ],
)
def test_it_tells_the_error_that_was_above_the_tolerance(error, allowed, said):
    plan = Plan(Settings(), Pass(TokenGrid(64, 64), 8), (), DeepPlan(7, 6, tolerance=allowed))
    assert Record(least_error=error).summary(8, plan=plan) == f"nothing predicted: {said}"


GRID = TokenGrid(64, 64)
WHY = "this model was trained at 512 x 512. Set a factor to reduce anyway"
SMALL = LevelPlan(1, 5, "downsample", GRID, 4096, why=WHY)
LARGE = LevelPlan(1, 5, "downsample", GRID, 1024, 2)
IDLE_LAYERS = DeepPlan(7, 1, why="the interval is 1")


def passes(*of, steps=3, level=SMALL, known=True, **changes):
    """The notes after these passes; each is told by whether its steps were reduced."""
    told, plan = Record(), Plan(Settings(**changes), Pass(GRID, steps), (level,), IDLE_LAYERS)
    idle = IdleNotes(told)
    for reduced in of:
        for step in range(steps):
            planned = level.reduces and bool(plan.at(step / steps))
            idle.add(plan, step, steps if known else None, planned=planned, reduced=planned and reduced)
    before_the_end = list(told.notes)
    idle.end()
    return before_the_end, told.notes


IDLE = f"nothing to reduce at 512 x 512: {WHY}"


def test_a_pass_that_reduced_nothing_is_told_once_and_at_its_end():
    assert passes(False) == ([IDLE], [IDLE])
    assert passes(False, False, False) == ([IDLE], [IDLE])
    assert passes(False, known=False) == ([], [IDLE])
    assert passes(False, False, known=False) == ([IDLE], [IDLE])
    outside = ["nothing was reduced at 512 x 512: no step is between Start and End"]
    assert passes(False, level=LARGE, start=0.9)[1] == passes(False, level=LARGE, start=0.9, steps=1)[1] == outside


def test_other_passes_are_not_told():
    assert passes(True, level=LARGE) == ([], [])
    assert passes(True, level=LARGE, end=0.4) == ([], [])  # reduced at first alone
    assert passes(True, level=LARGE, end=0.4, known=False) == ([], [])
    assert passes() == ([], [])


def test_an_interrupted_pass_is_not_told():
    told, plan = Record(), Plan(Settings(), Pass(GRID, 4), (SMALL,), IDLE_LAYERS)
    idle = IdleNotes(told)
    idle.add(plan, 0, 4, planned=False, reduced=False)
    idle.end()
    assert told.notes == []
