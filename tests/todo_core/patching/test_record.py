"""The line that says what ran."""

import pytest

from todo_core import Settings
from todo_core.patching.plan import DeepPlan, LevelPlan, Plan
from todo_core.patching.record import Record
from todo_core.patching.token_grid import TokenGrid


def record(*networks):
    grid = TokenGrid(64, 64)
    ran_in = {LevelPlan(1, 5, "downsample", grid, 1024, 2): {0, 1, 2}}
    return Record(ran_in, {2}, set(networks), ["a note"])


@pytest.mark.parametrize(
    ("networks", "said"),
    [({"UNet"}, ""), ({"UNet", "ControlNet"}, "ControlNet too; "), ({"ControlNet"}, "in ControlNet alone; ")],
)
def test_it_names_the_networks_that_were_reduced(networks, said):
    line = record(*networks).summary(4)
    assert line.startswith("level 1 from 4,096 to 1,024 tokens (downsample) in 3 of 4 steps; ")
    assert line.endswith(f"transformers below level 1 computed in 3 of 4 steps; {said}a note")


def test_nothing_is_said_of_what_did_not_run():
    assert Record(networks={"UNet"}).summary(4) == ""
    assert not Record(networks={"UNet"}).acted
    assert record("UNet").steps == {0, 1, 2}


@pytest.mark.parametrize(
    ("interval", "why", "steps", "in_window", "said"),
    [
        ("auto", "", 0, 0, "no step ran"),
        ("auto", "", 8, 0, "no step is between Start and End"),
        ("auto", "", 5, 5, "auto predicts only in passes of 6 or more steps"),
        ("auto", "", 8, 8, "too few steps in a row are alike to predict one"),
        (2, "", 3, 3, "the interval predicts only in passes of 4 or more steps"),
        (2, "", 4, 4, "too few steps in a row are alike to predict one"),
        (2, "the model has one level", 3, 3, "its self-attention was not called"),
        (2, "the model has one level", 8, 8, "its self-attention was not called"),
    ],
)
def test_it_says_why_a_plan_came_to_nothing(interval, why, steps, in_window, said):
    plan = Plan(Settings(), TokenGrid(64, 64), (), DeepPlan(7, interval, why))
    assert Record().why_nothing_ran(plan, steps, in_window) == said
    assert Record().why_nothing_ran(None, steps, in_window) == "no step ran"
    assert Record(notes=["a note", "another"]).why_nothing_ran(plan, steps, in_window) == "a note; another"
