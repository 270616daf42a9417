"""The line that says what ran."""

import pytest

from todo_core.patching.plan import LevelPlan
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
