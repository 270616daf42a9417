"""The benchmark of UNet calls and passes does what it says. Nothing here depends on how long it takes."""

import ast
import functools
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from todo_core import patched
from todo_lab.__main__ import main as lab
from todo_lab.evaluation.command import plan_jobs

FOLDER = Path(__file__).parents[2] / "benchmarks"
SIDE, CHANNELS = 16, 32


@pytest.fixture(scope="module")
def bench():
    """The program ``speed`` and the modules of unet_call, by their names."""
    sys.path.insert(0, str(FOLDER))
    try:
        names = [path.stem for path in (FOLDER / "unet_call").glob("*.py") if path.stem != "__init__"]
        parts = {name: importlib.import_module(f"unet_call.{name}") for name in names}
        yield SimpleNamespace(speed=importlib.import_module("speed"), **parts)
    finally:
        sys.path.remove(str(FOLDER))
        for name in [name for name in sys.modules if name.split(".")[0] in ("speed", "unet_call")]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def subject_of(bench):
    """The narrow UNet of a layout, made once. Patches have to leave it as it was."""
    return functools.cache(lambda layout: bench.models.build(layout, channels=CHANNELS))


def arguments(bench, *words):
    trial = ["--device", "cpu", "--channels", CHANNELS, "--sides", SIDE, "--turns", 1, "--seconds", 0]
    return bench.speed.parse_arguments([*map(str, trial), *map(str, words)])


def keys_of(subject, patch):
    """How many keys the level-1 attentions see."""
    seen = set()
    hooks = [b.attn1.to_k.register_forward_pre_hook(lambda _, args: seen.add(args[0].shape[1])) for b in subject.blocks]
    with torch.inference_mode(), patch:
        subject.call(SIDE, 1)()
    for hook in hooks:
        hook.remove()
    return seen


def test_every_variant_without_a_path_is_measured(bench, subject_of):
    with torch.inference_mode():
        rows = bench.measure.calls(subject_of("sd1-ldm"), SIDE, arguments(bench, "--warm-up", 8))
    names = [row["setting"] for row in rows]
    assert names == ["baseline", *bench.variants.OURS, *bench.variants.LOWER_BOUNDS, "tomesd 0.5", "tomesd 0.75"]
    assert not [row for row in rows if "failed" in row]
    assert all(len(row["turns"]) == 1 and 0 < row["attention"] < row["seconds"] for row in rows)


@pytest.mark.parametrize("layout", ["sd1-ldm", "sdxl"])
def test_our_settings_and_their_lower_bound_reduce_a_layout(bench, subject_of, layout):
    subject, whole = subject_of(layout), 256 if not layout.startswith("sdxl") else 64
    for name, share in {"ToDo 2": 4, "ToMe 0.5": 2, "cluster 0.5": 2, "ToDo 4": 16}.items():
        assert keys_of(subject, patched(subject.unet, bench.variants.OURS[name])) == {whole // share}
    bounds = bench.variants.variants(subject, SIDE, ["lower bound of ToDo 4"], {})
    assert keys_of(subject, bounds["lower bound of ToDo 4"]()) == {whole // 16}
    assert keys_of(subject, bounds["baseline"]()) == {whole}


def test_a_variant_that_cannot_run_leaves_the_others_alone(bench, subject_of, tmp_path):
    args = arguments(bench, "--settings", "HyperTile 256", "ToDo 2", "--peer", f"hypertile={tmp_path}")
    with torch.inference_mode():
        rows = bench.measure.calls(subject_of("sd1-ldm"), SIDE, args)  # nothing lies in the folder
    assert [(row["setting"], "failed" in row) for row in rows] == [
        ("baseline", False),
        ("ToDo 2", False),
        ("HyperTile 256", True),
    ]
    group = dict.fromkeys(("part", "layout", "kernel", "device", "torch", "dtype", "batch", "channels"), "x")
    page = bench.speed.markdown([{**group, "side": SIDE, **row} for row in rows])
    assert "| HyperTile 256 | FileNotFoundError: " in page


def test_one_command_measures_everything_and_goes_on_where_it_stopped(bench, tmp_path, capsys):
    settings = ["ToDo 2", "tomesd 0.5", "lower bound of ToDo 2", "ToDo 2, interval 2"]
    words = ["--layouts", "sd1", "--steps", 4, "--parts", "calls", "passes", "python"]
    args = arguments(bench, *words, "--settings", *settings, "--out", tmp_path)
    clock = iter([0, 0, 30, 59, 59 * 8, 61 * 8, 61 * 8])  # the third part would begin too late
    begun = bench.speed.run(args, clock=lambda: next(clock))
    assert [row["part"] for row in begun] == ["passes"] * 5 + ["python"] * 3
    assert "the minutes are over" in capsys.readouterr().out
    rows = bench.speed.run(args)
    assert rows[: len(begun)] == json.loads(json.dumps(begun))
    assert list(dict.fromkeys(row["part"] for row in rows)) == ["passes", "python", "calls"]
    assert json.loads((tmp_path / "speed.json").read_text()) == json.loads(json.dumps(rows))
    chosen = {row["setting"]: row for row in rows if row["part"] == "passes"}
    assert chosen["ToDo 2, interval 2"]["predicted_in"] == [2]
    assert {row["steps"] for row in chosen.values()} == {4}
    page = (tmp_path / "speed.md").read_text()
    for text in ("| baseline |", *settings, "| ToDo 2, interval 2 | computed", "all of ours"):
        assert text in page


@pytest.mark.parametrize("layout", ["sd1", pytest.param("sdxl", marks=pytest.mark.slow)])
def test_a_pass_is_timed_by_kind_of_step(bench, subject_of, layout):
    args = arguments(bench, "--settings", "Closest", "ToDo 2, interval 2", "--warm-up", 8, "--cpu-time")
    args.steps = 8
    with torch.inference_mode():
        rows = {row["setting"]: row for row in bench.measure.passes(subject_of(layout), SIDE, args)}
    predicted = {"unpatched": [], "Closest": [5, 6], "ToDo 2, interval 2": [2, 4, 6]}
    assert {name: row["predicted_in"] for name, row in rows.items() if "predicted_in" in row} == predicted
    assert [name for name in rows if name not in predicted] == ["6 plain steps", "5 plain steps"]
    assert rows["5 plain steps"]["pass"] < rows["6 plain steps"]["pass"] < rows["unpatched"]["pass"]
    assert [name for name, row in rows.items() if "measured" in row] == ["Closest"]
    assert not any("forward" in vars(module) for module in subject_of(layout).unet.modules())
    row = bench.measure.of_steps([3.0, 3.0, 1.0, 3.0, 4.0, 4.0, 2.0, 4.0], session_that_predicted(2), 4)
    assert (row["pass"], row["computed"]["seconds"], row["predicted"]["seconds"]) == (12.0, 3.5, 1.5)


def session_that_predicted(step):
    parts = {"whole": SimpleNamespace(predicted_in=set()), "deep": SimpleNamespace(predicted_in={step})}
    plan = SimpleNamespace(parts={"deep": SimpleNamespace(predicts=True, tolerance=None)})
    return SimpleNamespace(record=SimpleNamespace(parts=parts), plan=plan)


def test_presets_predict_as_many_steps_as_on_trained_models(bench, subject_of):
    args = arguments(bench)
    args.steps = 10
    made = bench.measure.sessions(subject_of("sd1"), SIDE, args)
    assert list(made) == ["unpatched", *bench.variants.OF_PASSES]
    counts = {name: [len(of) for of in made[name][1].values()] for name in bench.variants.PRESETS}
    assert counts == {"Balanced": [2, 2], "Closest": [2, 1], "Fast": [3, 2], "ToDo only": [0, 0]}


@pytest.mark.parametrize("trial", ["", "1"])
def test_the_commands_for_a_gpu_are_understood(bench, tmp_path, monkeypatch, trial):
    log, python = tmp_path / "log", tmp_path / "python"
    python.write_text(f"#!{sys.executable} -S\nimport sys\nopen({str(log)!r}, 'a').write(repr(sys.argv[1:]) + '\\n')\n")
    python.chmod(0o755)
    variables = {**os.environ, "PYTHON": str(python), "TRIAL": trial}
    subprocess.run(["sh", FOLDER / "gpu.sh", tmp_path / "out"], env=variables, check=True, timeout=60)
    speed, tests, *of_lab = (ast.literal_eval(line) for line in log.read_text().splitlines())
    assert bench.speed.parse_arguments(speed[1:]).out == tmp_path / "out" / "speed"
    assert [word for word in tests if word.startswith("tests/")] == ["tests/todo_core/test_gpu.py"]
    parsed = []
    monkeypatch.setattr(
        "todo_lab.__main__.run_module", lambda name, _, of: parsed.append(of(importlib.import_module(name)))
    )
    monkeypatch.chdir(FOLDER.parent)
    for words in of_lab:
        lab(words[2:])
    assert [options.words[:3] for options in parsed[:3]] == [
        ["pocket", "train", "diffusion"],
        ["pocket", "train", "weights"],
        ["pocket", "pictures", "--weights"],
    ]
    jobs = plan_jobs(parsed[3])
    assert len(jobs) == (20 if trial else 400)  # the baseline, four presets and five shares, for two requests
    assert {job.scene.request.hires_steps for job in jobs} == {10, 20}
