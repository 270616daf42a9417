"""The line that says what ran."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from todo_core import Settings
from todo_core.patching.plan import Pass, Plan
from todo_core.patching.record import NOT_ALIKE, IdleNotes, Record
from todo_core.patching.space.level_plan import LevelPlan
from todo_core.patching.time.prediction_plan import DEEP, WHOLE, PredictionPlan
from todo_core.token_grid import TokenGrid

GRID = TokenGrid(64, 64)


def record(*networks):
    ran_in = {LevelPlan(1, 5, "downsample", GRID, 1024, 2): {0, 1, 2}}
    return predicted(Record(ran_in, set(networks), ["a note"]), deep=([3], [0, 1, 2]))


def predicted(record, **parts):
    """A record with these predicted and computed calls, by step."""
    for name, (predicted, computed) in parts.items():
        record.parts[name].predicted_calls, record.parts[name].computed_calls = Counter(predicted), Counter(computed)
    return record


def plan_of(settings=None, steps=8, levels=None, why_whole=None, note=None, **deep):
    """A plan with this plan of the layers, and whole steps as ``why_whole`` says."""
    whole = PredictionPlan(WHOLE, 2, tolerance=deep.get("tolerance"), why=why_whole)
    parts = whole, PredictionPlan(DEEP, **{"interval": 2} | deep)
    levels = levels or (LevelPlan(1, 5, "downsample", GRID, 1024, 2),)
    return Plan(settings or Settings(), Pass(GRID, steps), levels, 0.0, 1.0, *parts, note=note)


@pytest.mark.parametrize(
    ("networks", "said"),
    [({"UNet"}, ""), ({"UNet", "ControlNet"}, "ControlNet too; "), ({"ControlNet"}, "in ControlNet alone; ")],
)
def test_it_names_the_networks_that_were_reduced(networks, said):
    line = record(*networks).summary(4)
    assert line.startswith("level 1 from 4,096 to 1,024 tokens (downsample) in 3 of 4 steps; ")
    assert line.endswith(f"layers below level 1 computed in 3 of 4 steps; {said}a note")


def test_calls_are_counted_where_a_step_has_calls_of_both_kinds():
    """As with Heun in ComfyUI."""
    mixed = Record()
    for step, parts in ((0, ()), (0, ()), (1, ()), (1, ()), (2, ()), (2, ("deep",)), (3, ()), (3, ("deep",))):
        assert mixed.ran_call(step, ("deep",), parts) == ([] if parts else ["deep"])
    assert mixed.summary(4) == "layers below level 1 computed in 6 of 8 model calls"
    assert mixed.deep.predicted_in == set()


def test_layers_are_counted_in_the_steps_in_which_the_model_ran():
    both = Record()
    for step, parts in enumerate(((), (), (), ("whole",), ("deep",), ("whole",), ("deep",), ())):
        ran = both.ran_call(step, ("whole", "deep"), parts)
        assert ran == [name for name in ("whole", "deep") if name not in parts and "whole" not in parts]
    assert both.summary(8) == "whole model computed in 6 of 8 steps, layers below level 1 in 4 of these 6"
    assert both.computed(8) == [(6, 8), (4, 6)]


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
    plan = plan_of(why=why, why_whole="it is off", note="layers are predicted")
    assert Record(notes=["layers are predicted"]).why_nothing_ran(plan, steps, in_window) == said
    assert Record().why_nothing_ran(None, steps, in_window) == "no step ran"
    assert Record(notes=["a note", "another"]).why_nothing_ran(plan, steps, in_window) == "a note; another"


def test_beside_another_cache_it_says_how_often_the_model_was_not_called_and_compares_nothing():
    ran = predicted(Record(), deep=([3], [0, 1, 2, 5]))
    said = "layers below level 1 computed in 4 of 12 steps; the model was not called in 7"
    assert ran.summary(12, skipped=7) == said
    assert ran.computed(12, 7) == [(4, 12)]


def test_one_step_is_one_step():
    line = Record({record("UNet").ran_in.popitem()[0]: {0}}).summary(1)
    assert line == "level 1 from 4,096 to 1,024 tokens (downsample) in 1 of 1 step"


def test_it_says_that_a_planned_prediction_did_not_happen():
    plan = plan_of()
    assert Record().summary(8, plan=plan) == "nothing predicted: too few steps in a row are alike"
    told = "a call asks for gradients: nothing is predicted"
    assert Record(notes=[told]).summary(8, plan=plan) == told
    short = {"why": "they need 4 steps", "why_whole": "only layers are asked for"}
    told = Record().summary(3, plan=plan_of(Settings(interval=2), **short))
    assert told == "nothing predicted: they need 4 steps"
    assert Record().summary(3, plan=plan_of(**short)) == "no whole step predicted: only layers are asked for"
    ran = predicted(Record(), deep=([2], [0, 1, 3])).summary(8, plan=plan_of(why_whole="it adds noise"))
    assert ran == "layers below level 1 computed in 7 of 8 steps; no whole step predicted: it adds noise"


def test_it_says_why_auto_has_kept_all_tokens():
    plan = plan_of(levels=(LevelPlan(1, 5, "downsample", GRID, 4096, why="fewer would save 13 %"),))
    ran = predicted(Record(), whole=([3], [0, 1, 2, 4]))
    assert ran.summary(5, plan=plan) == "whole model computed in 4 of 5 steps; all tokens kept: fewer would save 13 %"
    by_hand = replace(plan, settings=Settings(factor_1=1))
    assert "all tokens kept" not in ran.summary(5, plan=by_hand)


@pytest.mark.parametrize(
    ("error", "allowed", "said"),
    [
        (0.203, 0.16, "error 0.21, tolerance 0.16"),
        (0.102, 0.08, "error 0.21, tolerance 0.16"),  # of the layers, in the user's terms
        (0.1, 0.16, NOT_ALIKE),
        (math.inf, 0.16, NOT_ALIKE),
        (0.203, 0.0, "error 0.21, tolerance 0.16"),
    ],
)
def test_it_tells_the_error_that_was_above_the_tolerance(error, allowed, said):
    told = Record()
    told.note_errors({"whole": math.inf, "deep": error})
    plan = plan_of(why_whole="it adds noise", tolerance=allowed)
    assert told.summary(8, plan=plan) == f"nothing predicted: {said}"


WHY = "this model was trained at 512 x 512. Set a factor to reduce anyway"
SMALL = LevelPlan(1, 5, "downsample", GRID, 4096, why=WHY)
LARGE = LevelPlan(1, 5, "downsample", GRID, 1024, 2)
IDLE_PLAN = plan_of(levels=(SMALL,), why="the interval is 1", why_whole="the interval is 1")


def passes(*of, steps=3, level=SMALL, known=True, **changes):
    """The notes after these passes; each is told by whether its steps were reduced."""
    told, plan = Record(), replace(IDLE_PLAN, facts=Pass(GRID, steps), levels=(level,), **changes)
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
    told, plan = Record(), replace(IDLE_PLAN, facts=Pass(GRID, 4))
    idle = IdleNotes(told)
    idle.add(plan, 0, 4, planned=False, reduced=False)
    idle.end()
    assert told.notes == []
