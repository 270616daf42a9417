"""Finished rows survive any end of a run, exactly once."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.todo_lab.evaluation.doubles import Double, differing, quick_metrics
from todo_core import SettingsError
from todo_lab.evaluation.running.row_store import ROWS_FILE, RowStore
from todo_lab.evaluation.running.runner import local_engine, run_jobs

ABOUT = {"runs": 2, "model": "none"}


def sweep(folder, work, double, *, resume=False, **options):
    store = RowStore.begin(folder, work, ABOUT, resume=resume)
    return run_jobs(work, store, local_engine(double, runs=2, metrics=quick_metrics()), **options)


def rows(folder):
    return [json.loads(line) for line in (folder / ROWS_FILE).read_text().splitlines()]


class StopAt(Double):
    """Ctrl+C at the n-th image."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    def prepare(self, request):
        scene = super().prepare(request)
        generate = scene.generate

        def counted(variant):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return generate(variant)

        scene.generate = counted
        return scene


@pytest.mark.parametrize("count", [0, 1, 2, 7, 12, 13, 20])
def test_a_stopped_run_continues_without_repeating_or_losing_a_row(tmp_path, work, count):
    complete, broken = tmp_path / "complete", tmp_path / "broken"
    sweep(complete, work, Double())
    with pytest.raises(KeyboardInterrupt):
        sweep(broken, work, StopAt(count))
    sweep(broken, work, Double(), resume=True)
    assert [row["key"] for row in rows(broken)] == [job.key for job in work]
    for ours, theirs in zip(rows(broken), rows(complete), strict=True):
        assert not differing(ours, theirs)
        assert (broken / ours["image"]).read_bytes() == (complete / theirs["image"]).read_bytes()


def test_an_incomplete_row_is_made_again(tmp_path, work):
    sweep(tmp_path, work, Double())
    path = tmp_path / ROWS_FILE
    path.write_bytes(path.read_bytes()[:-40])
    assert len(RowStore(tmp_path).rows) == len(work) - 1
    double = Double()
    sweep(tmp_path, work, double, resume=True)
    assert [row["key"] for row in rows(tmp_path)] == [job.key for job in work]
    assert {name for _, name in double.generated} == {work[-1].variant.name}  # the baseline was read from the disk


def test_a_finished_run_is_not_run_again(tmp_path, work):
    sweep(tmp_path, work, Double())
    double = Double()
    sweep(tmp_path, work, double, resume=True)
    assert not double.generated
    assert len(rows(tmp_path)) == len(work)


def test_results_are_not_mixed_up(tmp_path, work):
    sweep(tmp_path, work, Double())
    with pytest.raises(SettingsError, match="--resume"):
        sweep(tmp_path, work, Double())
    with pytest.raises(SettingsError, match="all belong to this run"):
        sweep(tmp_path, work[:-1], Double(), resume=True)
    with pytest.raises(SettingsError, match="runs is 2, not 3"):
        RowStore.begin(tmp_path, work, {**ABOUT, "runs": 3}, resume=True)


def test_a_run_continues_with_more_variants(tmp_path, work):
    less = [job for job in work if job.variant != work[-1].variant]
    sweep(tmp_path, less, Double())
    double = Double()
    sweep(tmp_path, work, double, resume=True)
    assert {name for _, name in double.generated} == {work[-1].variant.name}
    assert {row["key"] for row in rows(tmp_path)} == {job.key for job in work}
    assert json.loads((tmp_path / "run.json").read_text())["rows"] == len(work)


def test_rows_of_other_scene_numbers_are_rejected(tmp_path, work):
    """New prompts between old ones would give old rows the number of another scene."""
    sweep(tmp_path, work, Double())
    moved = [replace(job, scene=replace(job.scene, number=job.scene.number + 1)) for job in work]
    with pytest.raises(SettingsError, match="its row .* does not"):
        RowStore.begin(tmp_path, moved, ABOUT, resume=True)


def test_failed_rows_are_kept_and_repeated_only_on_request(tmp_path, work):
    assert sweep(tmp_path, work, Double(broken=frozenset({"ToDo 2"}))) == 3
    double = Double()
    assert sweep(tmp_path, work, double, resume=True) == 0
    assert not double.generated
    assert sweep(tmp_path, work, double, resume=True, retry_failed=True) == 0
    latest = RowStore(tmp_path).latest()
    assert {row["key"] for row in latest} == {job.key for job in work}
    assert not [row for row in latest if row["error"]]


def test_an_image_says_how_it_was_made(tmp_path, work):
    sweep(tmp_path, work, Double())
    row = rows(tmp_path)[1]
    with Image.open(tmp_path / row["image"]) as image:
        assert image.info["parameters"] == "a picture by ToDo 2"
        assert image.size == (128, 128)
    assert np.array_equal(RowStore(tmp_path).load_image(row), np.asarray(Image.open(tmp_path / row["image"])))
    assert not list(tmp_path.rglob("*.part"))
