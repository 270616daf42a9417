"""What is counted while a pass runs."""

from todo_core.patching.record import Record
from todo_core.patching.space.level_plan import LevelPlan
from todo_core.token_grid import TokenGrid

LEVEL = LevelPlan(1, 5, "downsample", TokenGrid(64, 64), 1024, 2)


def test_calls_are_counted_by_step_and_a_step_with_calls_of_both_kinds_is_not_predicted():
    """As with Heun in ComfyUI."""
    mixed = Record()
    for step, parts in ((0, ()), (0, ()), (1, ()), (1, ()), (2, ()), (2, ("deep",)), (3, ("deep",))):
        assert mixed.ran_call(step, ("deep",), parts) == ([] if parts else ["deep"])
    assert mixed.deep.predicted_in == {3}
    assert mixed.counts(4) == [(5, 7)]
    assert repr(mixed) == "<Record: layers below level 1 predicted in 2 model calls>"


def test_layers_are_counted_in_the_steps_in_which_the_model_ran():
    both = Record()
    for step, parts in enumerate(((), (), (), ("whole",), ("deep",), ("whole",), ("deep",), ())):
        ran = both.ran_call(step, ("whole", "deep"), parts)
        assert ran == [name for name in ("whole", "deep") if name not in parts and "whole" not in parts]
    assert both.counts(8) == [(6, 8), (4, 6)]
    assert both.counts(12, 4) == [(6, 12), (4, 6)]  # in 4 steps, another cache has answered
    both.ran(LEVEL, 0, "UNet")
    assert both.steps == {0, 3, 4, 5, 6}
    told = "whole model predicted in 2 steps; layers below level 1 predicted in 2 steps"
    assert repr(both) == f"<Record: level 1 by downsample in 1 steps; {told}>"
