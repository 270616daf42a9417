"""Two folders of results become one."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.todo_lab.evaluation.doubles import Double, quick_metrics
from todo_core import SettingsError
from todo_lab.evaluation.report import aggregation
from todo_lab.evaluation.running import joining
from todo_lab.evaluation.running.joining import join_results
from todo_lab.evaluation.running.row_store import RowStore
from todo_lab.evaluation.running.runner import local_engine, run_jobs

ABOUT = {"runs": 1, "model": "none", "versions": "torch 2", "command": "evaluate a"}


def sweep(folder, work, double=None, **about):
    store = RowStore.begin(folder, work, ABOUT | about, resume=False)
    run_jobs(work, store, local_engine(double or Double(), runs=1, metrics=quick_metrics()))
    return folder


def without(work, *numbers):
    """The work without some variants, by their number; 0 is the baseline."""
    names = list(dict.fromkeys(job.variant.name for job in work))
    return [job for job in work if job.variant.name not in [names[number] for number in numbers]]


def test_the_joined_folder_has_all_rows_and_speeds_of_one_run(tmp_path, work):
    """The second folder was made while the machine was three times as slow, with its scenes in another order."""
    one = sweep(tmp_path / "one", without(work, 3, 4, 5))
    turned = [replace(job, scene=replace(job.scene, number=2 - job.scene.number)) for job in without(work, 1, 2)]
    other = sweep(tmp_path / "other", turned, Double(slower=lambda passes: 3.0), command="evaluate b")
    out = tmp_path / "deep" / "out"
    join_results([one, other], out)
    store = RowStore(out)
    assert {row["key"] for row in store.rows} == {job.key for job in work}
    assert len(store.rows) == len(work)
    assert {row["scene"]: row["prompt"] for row in store.rows} == {j.scene.number: j.scene.request.prompt for j in work}
    together = aggregation.to_table(RowStore(sweep(tmp_path / "together", work)).rows).set_index("key")
    joined = aggregation.to_table(store.rows).set_index("key")
    assert joined["speed"].to_dict() == pytest.approx(together["speed"].to_dict())
    assert joined["mse"].to_dict() == pytest.approx(together["mse"].to_dict())
    for row in store.rows:
        assert np.array_equal(
            store.load_image(row), RowStore(tmp_path / "together").load_image(together.loc[row["key"]])
        )
    about = json.loads((out / "run.json").read_text())
    assert (about["rows"], about["command"], about["versions"]) == (len(work), "evaluate a; evaluate b", "torch 2")


def test_an_incomplete_folder_stays_incomplete(tmp_path, work):
    one, other = sweep(tmp_path / "one", without(work, 5)), sweep(tmp_path / "other", without(work, 1, 2, 3, 4))
    lines = (one / "rows.jsonl").read_text().splitlines(keepends=True)
    (one / "rows.jsonl").write_text("".join(lines[:-1]))
    join_results([one, other], tmp_path / "out")
    assert json.loads((tmp_path / "out" / "run.json").read_text())["rows"] == len(work)
    assert len(RowStore(tmp_path / "out").rows) == len(work) - 1


@pytest.mark.parametrize(
    ("about", "said"), [({"model": "other"}, "model is other, not none"), ({"runs": 3}, "runs is 3, not 1")]
)
def test_different_runs_are_not_joined(tmp_path, work, about, said):
    one, other = (
        sweep(tmp_path / "one", without(work, 5)),
        sweep(tmp_path / "other", without(work, 1, 2, 3, 4), **about),
    )
    with pytest.raises(SettingsError, match=said):
        join_results([one, other], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_same_job_in_two_folders_is_refused(tmp_path, work):
    one, other = sweep(tmp_path / "one", work), sweep(tmp_path / "other", without(work, 2, 3, 4, 5))
    with pytest.raises(SettingsError, match="'ToDo 2' of .* is in two folders"):
        join_results([one, other], tmp_path / "out")


def test_baselines_are_found_while_the_new_folder_is_not_there(tmp_path, work, monkeypatch):
    """Their names begin at that folder. The system cannot go back out of it; older versions of Pillow could."""
    one, other = sweep(tmp_path / "one", without(work, 5)), sweep(tmp_path / "other", without(work, 1, 2, 3, 4))
    monkeypatch.setattr(joining, "load_png", lambda path: path.read_bytes())
    join_results([one, other], tmp_path / "deep" / "out")
    assert len(RowStore(tmp_path / "deep" / "out").rows) == len(work)


def test_different_baselines_are_not_joined(tmp_path, work):
    one = sweep(tmp_path / "one", without(work, 5))
    other = sweep(tmp_path / "other", without(work, 1, 2, 3, 4))
    row = RowStore(other).rows[0]
    from PIL import Image

    Image.fromarray(255 - RowStore(other).load_image(row)).save(other / row["image"])
    with pytest.raises(SettingsError, match="baseline images .'baseline' of"):
        join_results([one, other], tmp_path / "out")
    rows = (other / "rows.jsonl").read_text().splitlines(keepends=True)
    (other / "rows.jsonl").write_text("".join(rows[1:]))
    with pytest.raises(SettingsError, match="all baselines .'tomesd 0.5' of .* has none"):
        join_results([one, other], tmp_path / "out")


def test_only_results_are_joined_into_a_new_folder(tmp_path, work):
    one = sweep(tmp_path / "one", work)
    with pytest.raises(SettingsError, match="a folder of results"):
        join_results([one, tmp_path], tmp_path / "out")
    with pytest.raises(SettingsError, match="without results"):
        join_results([one], one)
