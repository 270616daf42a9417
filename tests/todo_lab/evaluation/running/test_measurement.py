"""The columns of a row: speed without the drift of the machine, repeatability, errors."""

import pytest

from tests.todo_lab.evaluation.doubles import Double, quick_metrics, speed_of
from todo_lab.evaluation.report.aggregation import to_table
from todo_lab.evaluation.running.measurement import measure_scene, without_first_step


@pytest.fixture
def scene(work, chosen):
    return work[: len(chosen)]


def rows(double, scene, **options):
    return [result.row for result in measure_scene(double, scene, metrics=quick_metrics(), **options)]


def test_a_drift_of_the_machine_cancels_and_a_short_slowdown_between_runs_does_not_count(scene):
    drifting = Double(slower=lambda passes: 1 + 0.02 * passes)  # a third slower by the end of the scene
    stuttering = Double(slower=lambda passes: 30.0 if passes in (7, 13) else 1.0)  # two timings of baseline steps
    for double in (drifting, stuttering):
        found = to_table(rows(double, scene))["speed"]
        assert [*found] == pytest.approx([speed_of(job.variant) for job in scene], rel=0.02)


def test_the_speed_is_that_of_the_whole_pass(scene):
    """A pass whose predicted steps take a tenth: half of ten steps save 1 / (0.5 + 0.05)."""
    double = Double(seconds=lambda steps: [0.1 if number % 2 == 0 else 0.01 for number in range(steps)])
    assert to_table(rows(double, scene[:2]))["speed"][1] == pytest.approx(2 / 1.1)


def test_without_times_a_variant_is_made_once(scene):
    double = Double()
    found = rows(double, scene, runs=1, timed=False)
    assert len(double.generated) == double.passes == len(scene)
    assert not [name for row in found for name in row if "seconds" in name]
    assert all(row["mse"] > 0 for row in found[1:])


@pytest.mark.parametrize("broken", ["scene", "baseline"])
def test_without_a_baseline_nothing_can_be_compared(scene, broken):
    found = rows(Double(broken=frozenset({broken})), scene)
    assert len(found) == len(scene)
    assert all(row["error"] for row in found)


def test_the_difference_is_relative_to_a_baseline_that_is_made_for_jobs_without_it(scene):
    double = Double()
    found, complete = rows(double, scene[2:]), {row["variant"]: row for row in rows(Double(), scene)}
    assert double.generated.count("baseline") == 1
    assert [row["mse"] for row in found] == [complete[job.variant.name]["mse"] for job in scene[2:]]
    assert complete["baseline"]["mse"] == 0 < complete["ToDo 2"]["mse"] < complete["ToDo 4"]["mse"]
    assert complete["ToDo 2"]["set_factor_1"] == "2"


def test_the_first_step_of_a_pass_does_not_count():
    assert without_first_step([9.0, 1.0, 1.0]) == [1.0, 1.0]
    assert without_first_step([9.0, 1.0]) == [9.0, 1.0]
