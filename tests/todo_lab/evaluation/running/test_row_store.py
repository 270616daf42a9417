"""Finished rows survive any end of a run, exactly once; two folders of them become one."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.todo_lab.evaluation.doubles import ABOUT, Double, differing, sweep
from todo_core import SettingsError
from todo_lab.evaluation.report import aggregation
from todo_lab.evaluation.running import row_store
from todo_lab.evaluation.running.row_store import ROWS_FILE, RowStore, join_results


def rows(folder):
    return [json.loads(line) for line in (folder / ROWS_FILE).read_text().splitlines()]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 12, 13, 20])
def test_a_stopped_run_continues_without_repeating_or_losing_a_row(tmp_path, work, count):
    complete, broken = tmp_path / "complete", tmp_path / "broken"
    sweep(complete, work, runs=2)
    with pytest.raises(KeyboardInterrupt):
        sweep(broken, work, Double(stop_at=count), runs=2)
    sweep(broken, work, resume=True, runs=2)
    assert [row["key"] for row in rows(broken)] == [job.key for job in work]
    for ours, theirs in zip(rows(broken), rows(complete), strict=True):
        assert not differing(ours, theirs)
        assert (broken / ours["image"]).read_bytes() == (complete / theirs["image"]).read_bytes()


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
        assert {row["key"] for row in rows(tmp_path)} == {job.key for job in given}
        assert json.loads((tmp_path / "run.json").read_text())["rows"] == len(given) == len(rows(tmp_path))


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
    sweep(tmp_path, work)
    row = rows(tmp_path)[1]
    with Image.open(tmp_path / row["image"]) as image:
        assert image.info["parameters"] == "a picture by ToDo 2"
        assert image.size == (128, 128)
        assert np.array_equal(RowStore(tmp_path).load_image(row), np.asarray(image))
    assert not list(tmp_path.rglob("*.part"))


def without(work, *numbers):
    """The work without some variants, by their number; 0 is the baseline."""
    names = list(dict.fromkeys(job.variant.name for job in work))
    return [job for job in work if job.variant.name not in [names[number] for number in numbers]]


@pytest.fixture
def halves(tmp_path, work):
    """Two folders, each with the baselines."""
    one, other = tmp_path / "one", tmp_path / "other"
    sweep(one, without(work, 5))
    sweep(other, without(work, 1, 2, 3, 4))
    return one, other


def test_the_joined_folder_has_all_rows_and_speeds_of_one_run(tmp_path, work):
    """The second folder was made while the machine was three times as slow, with its scenes in another order."""
    one, other, together, out = (tmp_path / name for name in ("one", "other", "together", "deep/out"))
    turned = [replace(job, scene=replace(job.scene, number=2 - job.scene.number)) for job in without(work, 1, 2)]
    about = {**ABOUT, "versions": "torch 2", "command": "evaluate a"}
    sweep(one, without(work, 3, 4, 5), about=about)
    sweep(other, turned, Double(slower=lambda passes: 3.0), about={**about, "command": "evaluate b"})
    sweep(together, work)
    join_results([one, other], out)
    joined, whole = RowStore(out), {row["key"]: row for row in RowStore(together).rows}
    assert sorted(row["key"] for row in joined.rows) == sorted(whole)
    numbers = {job.scene.number: job.scene.request.prompt for job in work}
    assert {row["scene"]: row["prompt"] for row in joined.rows} == numbers
    found, expected = (aggregation.to_table(store).set_index("key") for store in (joined.rows, whole.values()))
    for name in ("speed", "mse"):
        assert found[name].to_dict() == pytest.approx(expected[name].to_dict())
    for row in joined.rows:
        assert np.array_equal(joined.load_image(row), RowStore(together).load_image(whole[row["key"]]))
    about = json.loads((out / "run.json").read_text())
    assert (about["rows"], about["command"], about["versions"]) == (len(work), "evaluate a; evaluate b", "torch 2")


def test_an_incomplete_folder_stays_incomplete_while_the_new_one_is_not_there(tmp_path, work, halves, monkeypatch):
    """Images' names begin at that folder. The system cannot go back out of it; older versions of Pillow could."""
    (halves[0] / ROWS_FILE).write_text("".join((halves[0] / ROWS_FILE).read_text().splitlines(keepends=True)[:-1]))
    monkeypatch.setattr(row_store, "load_png", lambda path: (path.read_bytes(), ""))
    out = tmp_path / "deep" / "out"
    join_results(halves, out)
    assert json.loads((out / "run.json").read_text())["rows"] == len(work) == len(RowStore(out).rows) + 1


def test_what_is_not_joined(tmp_path, work, halves):
    def refused(said, *folders, out="out"):
        with pytest.raises(SettingsError, match=said):
            join_results(folders, tmp_path / out)

    one, other = halves
    sweep(tmp_path / "all", work)
    for about, said in (({"model": "other"}, "model is other, not none"), ({"runs": 3}, "runs is 3, not 1")):
        (tmp_path / "all" / "run.json").write_text(json.dumps({**ABOUT, "rows": len(work), **about}))
        refused(said, one, tmp_path / "all")
    (tmp_path / "all" / "run.json").write_text(json.dumps({**ABOUT, "rows": len(work)}))
    refused("'ToDo 2' of .* is in two folders", one, tmp_path / "all")
    refused("a folder of results", one, tmp_path)
    refused("without results", one, out="other")
    row = RowStore(other).rows[0]
    Image.fromarray(255 - RowStore(other).load_image(row)).save(other / row["image"])
    refused("baseline images .'baseline' of", one, other)
    (other / ROWS_FILE).write_text("".join((other / ROWS_FILE).read_text().splitlines(keepends=True)[1:]))
    refused("all baselines .'tomesd 0.5' of .* has none", one, other)
    assert not (tmp_path / "out").exists()
