"""The command from end to end on the shipped model: a tiny sweep, stopped in the middle and continued."""

import argparse
import errno
import importlib.util
import os

import pandas as pd
import pytest

from tests.todo_lab.evaluation.doubles import differing, rows_of
from todo_core import SettingsError
from todo_lab.__main__ import main
from todo_lab.evaluation import command
from todo_lab.evaluation.command import add_arguments, plan_jobs

TINY = [
    "--limit", "2", "--seeds", "1", "--presets", "Fast", "--sizes", "96x96", "--steps", "2",
    "--hires-steps", "2", "--cores", "1", "--runs", "2",
]  # fmt: skip


def evaluate(out, *words):
    return main(["evaluate", str(out), *TINY, *words])


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("tiny") / "out"
    assert evaluate(out) == 0
    return out


def must_equal(folder, done, **more):
    """The rows and images of a folder are those of the finished one."""
    expected = {row["key"]: row for row in rows_of(done)}
    assert {row["key"] for row in rows_of(folder)} == expected.keys()
    for row in rows_of(folder):
        assert differing({name: value for name, value in row.items() if name not in more}, expected[row["key"]]) == {}
        assert (folder / row["image"]).read_bytes() == (done / row["image"]).read_bytes()


def test_a_tiny_sweep(done):
    found = rows_of(done)
    assert [row["variant"] for row in found] == ["baseline", "Fast"] * 2
    assert all(row["repeats"] and not row["error"] for row in found)
    assert [row["mse"] == 0 for row in found] == [True, False] * 2
    assert all(row["step_seconds"] > 0 and row["total_seconds"] > row["hires_seconds"] > 0 for row in found)
    assert "by downsample" in found[1]["plan"]
    assert len(pd.read_parquet(done / "results.parquet")) == 4
    text = (done / "report.md").read_text("utf-8")
    assert "command: python -m todo_lab evaluate out --limit 2" in text
    assert str(done.parent) not in text


def test_failed_rows_end_the_command_with_status_1(done, monkeypatch):
    monkeypatch.setattr(command, "run_jobs", lambda *_, **__: 2)
    assert evaluate(done, "--resume", "--no-report") == 1


def test_a_full_disk_is_one_line_and_keeps_the_rows(done, tmp_path, monkeypatch, capsys):
    """run.json takes one call of fsync, and each row two: one for its image, one for the row."""
    calls, true_fsync = [], os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        true_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "out"
    assert evaluate(out) == 2
    last_line = capsys.readouterr().err.splitlines()[-1]
    for said in ("No space left on device", "2 of 4 rows", "--resume"):
        assert said in last_line
    before = rows_of(out)
    assert len(before) == len(list((out / "images").iterdir())) == 2
    monkeypatch.undo()
    assert evaluate(out, "--resume", "--no-report") == 0
    assert rows_of(out)[:2] == before
    must_equal(out, done)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--presets", "no such"], "presets = 'no such' is not possible; allowed: 'all', 'Balanced'"),
        (["--sizes", "64"], "64"), (["--prompts", "/no/file"], "/no/file"),
        (["--sampler", "no such"], "sampler = 'no such'"), (["--schedule", "no such"], "schedule = 'no such'"),
        (["--limit", "0"], "limit = 0"), (["--limit", "-3"], "limit = -3"), (["--runs", "0"], "runs = 0"),
        (["--peer", "nobody"], "nobody"), (["--sizes", "65x64"], "65"), (["--grid", "/no/grid"], "/no/grid"),
        (["--sizes", "72x64"], "width = 72"), (["--hires", "1.3"], "hires_scale = 1.3"),
        (["--model", "/no/model"], "/no/model"), (["--weights", "/no/weights"], "/no/weights"),
    ],
)  # fmt: skip
def test_an_invalid_option_is_named_and_nothing_is_written(tmp_path, capsys, options, said):
    out = tmp_path / "out"
    assert main(["evaluate", str(out), *options]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(("options", "missing"), [([], "pyarrow"), (["--grid", "any.yaml", "--no-report"], "yaml")])
def test_a_missing_package_is_named_before_the_first_image(tmp_path, capsys, monkeypatch, options, missing):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == missing else find(name))
    assert evaluate(tmp_path / "out", *options) == 2
    assert f"No module named '{missing}'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_processes_make_the_same_rows_without_times(done, tmp_path):
    out = tmp_path / "out"
    assert evaluate(out, "--engine", "processes", "--processes", "2", "--untimed", "--no-report") == 0
    must_equal(out, done, multiplications="only here")
    assert len(rows_of(out)) == 4
    assert all(row["multiplications"] > 0 and "hires_seconds" not in row for row in rows_of(out))
    assert not (out / "report.md").exists()


def test_a_run_stops_when_its_time_is_up_and_continues(tmp_path):
    out = tmp_path / "out"
    assert evaluate(out, "--limit", "1", "--no-report", "--time-limit", "0") == 0
    assert len(rows_of(out)) == 1
    assert evaluate(out, "--limit", "1", "--no-report", "--resume") == 0
    assert len(rows_of(out)) == 2


def test_a_grid_changes_the_request_too(tmp_path):
    grid = tmp_path / "grid.yaml"
    grid.write_text("requests: [{}, {guidance: [1, 7], sampler: Euler, schedule: Beta}]\nsettings: [{factor_1: 2}]")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = parser.parse_args([str(tmp_path / "out"), "--grid", str(grid), "--limit", "2", "--schedule", "Trailing"])
    scenes = [job.scene.request for job in plan_jobs(options)[::2]]
    assert [(each.guidance, each.sampler, each.schedule) for each in scenes[::2]] == [
        (2.5, "DDIM", "Trailing"), (1, "Euler", "Beta"), (7, "Euler", "Beta")
    ]  # fmt: skip
    assert len({each.prompt for each in scenes}) == 2
    grid.write_text("requests: [{guidence: 7}]")
    with pytest.raises(SettingsError, match="guidence"):
        plan_jobs(options)
