"""The columns of a row: speed without the drift of the machine, repeatability, errors."""

from __future__ import annotations

import pytest

from tests.todo_lab.evaluation.doubles import Double, quick_metrics, speed_of
from todo_lab.evaluation.running.measurement import measure_scene, without_first_step


@pytest.fixture
def scene(work, chosen):
    return work[: len(chosen)]


def rows(double, scene, **options):
    return [result.row for result in measure_scene(double, scene, metrics=quick_metrics(), **options)]


def test_a_drift_of_the_machine_cancels(scene):
    drifting = Double(slower=lambda passes: 1 + 0.02 * passes)  # a third slower by the end of the scene
    for job, row in zip(scene, rows(drifting, scene), strict=True):
        assert row["speed"] == pytest.approx(speed_of(job.variant), rel=0.02)
    plain = rows(drifting, scene)
    naive = plain[0]["step_seconds"] / plain[-1]["step_seconds"]
    assert abs(naive / speed_of(scene[-1].variant) - 1) > 0.1  # what a single baseline at the beginning would give


def test_the_speed_is_that_of_the_whole_pass(scene):
    """A pass whose predicted steps take a tenth: half of ten steps save 1 / (0.5 + 0.05)."""
    double = Double()
    double.seconds = lambda steps: [0.1 if number % 2 == 0 else 0.01 for number in range(steps)]
    row = rows(double, scene[:2])[1]
    assert row["speed"] == pytest.approx(2 / 1.1)


def test_without_times_a_variant_is_made_once(scene):
    double = Double()
    found = rows(double, scene, runs=1, timed=False)
    assert len(double.generated) == double.passes == len(scene)
    assert not [name for row in found for name in row if "seconds" in name or name == "speed"]
    assert all(row["mse"] > 0 for row in found[1:])


def test_a_short_slowdown_between_runs_does_not_count(scene):
    stuttering = Double(
        slower=lambda passes: 30.0 if passes in (7, 13) else 1.0
    )  # two of the timings of baseline steps
    for job, row in zip(scene, rows(stuttering, scene), strict=True):
        assert row["speed"] == pytest.approx(speed_of(job.variant), rel=0.01)


def test_an_image_that_does_not_repeat_is_reported(scene):
    found = {row["variant"]: row["repeats"] for row in rows(Double(unrepeatable=frozenset({"ToDo 4"})), scene)}
    assert found.pop("ToDo 4") is False
    assert set(found.values()) == {True}
    assert {row["repeats"] for row in rows(Double(), scene, runs=1)} == {None}


def test_a_failed_variant_leaves_a_row_and_the_others_continue(scene):
    found = rows(Double(broken=frozenset({"ToDo 2"})), scene)
    failed = [row for row in found if row["error"]]
    assert [row["variant"] for row in failed] == ["ToDo 2"]
    assert failed[0]["error"] == "RuntimeError: ToDo 2 is broken"
    assert len(found) == len(scene)
    assert all(row["mse"] >= 0 for row in found if not row["error"])


@pytest.mark.parametrize("broken", ["scene", "baseline"])
def test_without_a_baseline_nothing_can_be_compared(scene, broken):
    found = rows(Double(broken=frozenset({broken})), scene)
    assert len(found) == len(scene)
    assert all(row["error"] for row in found)


def test_the_baseline_is_made_for_jobs_without_it(scene):
    double = Double()
    found = rows(double, scene[2:])
    assert [row["variant"] for row in found] == [job.variant.name for job in scene[2:]]
    assert [name for _, name in double.generated].count("baseline") == 1
    complete = rows(Double(), scene)
    assert [row["mse"] for row in found] == [row["mse"] for row in complete[2:]]


def test_the_difference_is_relative_to_the_baseline(scene):
    found = {row["variant"]: row for row in rows(Double(), scene)}
    assert found["baseline"]["mse"] == 0
    assert 0 < found["ToDo 2"]["mse"] < found["ToDo 4"]["mse"]
    assert found["ToDo 2"]["set_factor_1"] == "2"
    assert (found["ToDo 2"]["words"], found["ToDo 2"]["nouns"]) == (5, 2)


def test_the_first_step_of_a_pass_does_not_count():
    assert without_first_step([9.0, 1.0, 1.0]) == [1.0, 1.0]
    assert without_first_step([9.0, 1.0]) == [9.0, 1.0]
