"""Finished rows survive any end of a run, exactly once."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.todo_lab.evaluation.doubles import ABOUT, Double, differing, rows_of, sweep
from todo_core import SettingsError
from todo_lab.evaluation.running.row_store import ROWS_FILE, RowStore


@pytest.fixture(scope="module")
def complete(work, tmp_path_factory):
    """The folder of a run that was never stopped."""
    folder = tmp_path_factory.mktemp("complete")
    sweep(folder, work, runs=2)
    return folder


@pytest.mark.parametrize("count", [0, 1, 7, 12, 13, 20])
def test_a_stopped_run_continues_without_repeating_or_losing_a_row(tmp_path, work, complete, count):
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, work, Double(stop_at=count), runs=2)
    sweep(tmp_path, work, resume=True, runs=2)
    assert [row["key"] for row in rows_of(tmp_path)] == [job.key for job in work]
    for ours, theirs in zip(rows_of(tmp_path), rows_of(complete), strict=True):
        assert not differing(ours, theirs)
        assert (tmp_path / ours["image"]).read_bytes() == (complete / theirs["image"]).read_bytes()


def test_a_run_continues_with_what_is_open_alone(tmp_path, work):
    """Nothing; an incomplete row; one more variant. Baselines are read from the disk."""
    less, last = [job for job in work if job.variant != work[-1].variant], work[-1].variant.name
    path = tmp_path / ROWS_FILE
    for given, cut, made in ((less, 0, []), (less, 0, []), (less, 40, [less[-1].variant.name]), (work, 0, [last] * 3)):
        path.write_bytes(path.read_bytes()[: -cut or None] if path.exists() else b"")
        assert len(RowStore(tmp_path).rows) == len(path.read_bytes().splitlines())
        double = Double()
        sweep(tmp_path, given, double, resume=True)
        assert double.generated == (made or double.generated[: len(less)])
        assert {row["key"] for row in rows_of(tmp_path)} == {job.key for job in given}
        assert json.loads((tmp_path / "run.json").read_text())["rows"] == len(given) == len(rows_of(tmp_path))


def test_results_are_not_mixed_up(tmp_path, work):
    """New prompts between old ones would give old rows the number of another scene."""
    sweep(tmp_path, work)
    moved = [replace(job, scene=replace(job.scene, number=job.scene.number + 1)) for job in work]
    for given, changes, said in (
        (work, {"resume": False}, "--resume"), (work[:-1], {}, "all belong to this run"), (moved, {}, "its row .* not"),
        (work, {"about": {**ABOUT, "runs": 3}}, "runs is 1, not 3"),
    ):  # fmt: skip
        with pytest.raises(SettingsError, match=said):
            sweep(tmp_path, given, **{"resume": True, **changes})


def test_failed_rows_are_kept_and_repeated(tmp_path, work):
    assert sweep(tmp_path, work, Double(broken=frozenset({"ToDo 2"}))) == 3
    double = Double()
    assert sweep(tmp_path, work, double, resume=True) == 0
    assert double.generated == ["ToDo 2"] * 3
    latest = RowStore(tmp_path).latest()
    assert {row["key"] for row in latest} == {job.key for job in work}
    assert not [row for row in latest if row["error"]]


def test_an_image_says_how_it_was_made(tmp_path, work):
    sweep(tmp_path, work)
    row = rows_of(tmp_path)[1]
    with Image.open(tmp_path / row["image"]) as image:
        assert image.info["parameters"] == "a picture by ToDo 2"
        assert image.size == (128, 128)
        assert np.array_equal(RowStore(tmp_path).load_image(row), np.asarray(image))
    assert not list(tmp_path.rglob("*.part"))
