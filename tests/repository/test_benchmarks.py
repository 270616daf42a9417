"""The benchmark of one UNet call does what it says. Nothing here depends on how long it takes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from todo_core import patched

FOLDER = Path(__file__).parents[2] / "benchmarks"
SIDE, CHANNELS = 16, 32
NOISE = (0.98, 0.99, 1.0, 1.01, 1.02)
GROUP = {"layout": "sd1", "batch": 2, "dtype": "float32", "torch": "2", "device": "cpu"}


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """The commands ``unet`` and ``gpu`` and the modules of unet_call, by their names."""
    sys.path.insert(0, str(FOLDER))
    try:
        names = [path.stem for path in (FOLDER / "unet_call").glob("*.py") if path.stem != "__init__"]
        parts = {name: importlib.import_module(f"unet_call.{name}") for name in names}
        commands = {name: importlib.import_module(name) for name in ("unet", "gpu", "interval")}
        yield SimpleNamespace(**commands, **parts)
    finally:
        sys.path.remove(str(FOLDER))
        for name in [name for name in sys.modules if name.split(".")[0] in ("unet", "gpu", "interval", "unet_call")]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def subject_of(bench: Any) -> Callable[[str], Any]:
    """The narrow UNet of a layout, made once. Patches have to leave it as it was."""
    return functools.cache(lambda layout: bench.models.build(layout, channels=CHANNELS))


def keys_of(subject: Any, patch: Any) -> set[int]:
    """How many keys the level-1 attentions see."""
    seen: set[int] = set()
    hooks = [b.attn1.to_k.register_forward_pre_hook(lambda _, args: seen.add(args[0].shape[1])) for b in subject.blocks]
    with torch.inference_mode(), patch:
        subject.call(SIDE, 1)()
    for hook in hooks:
        hook.remove()
    return seen


LAYOUTS = ["sd1", "sdxl", "sd1-ldm", "sdxl-ldm", "sd1-controlnet"]


def rows_of(names: dict[str, float], latent: int = 96, run: str = "one", **group: Any) -> list[dict[str, Any]]:
    """As if each setting had taken so many seconds, five times."""
    return [
        {**GROUP, **group, "latent": latent, "setting": name, "run": run, "seconds": s, "speed": names["baseline"] / s}
        | {
            "attention": s / 2,
            "turns": [s * noise for noise in NOISE],
            "attentions": [s * noise / 2 for noise in NOISE],
        }
        for name, s in names.items()
    ]


def test_every_variant_without_a_path_is_measured(bench: Any, subject_of: Callable[[str], Any]) -> None:
    subject = subject_of("sd1-ldm")
    patches = bench.variants.variants(subject, SIDE, bench.variants.NAMES, {})
    rows = bench.measure.measure(subject, SIDE, patches, batch=1, repeats=1, warm_up=8)
    names = [row["setting"] for row in rows]
    assert names == ["baseline", *bench.variants.OURS, *bench.variants.LOWER_BOUNDS, "tomesd 0.5", "tomesd 0.75"]
    assert not [row for row in rows if "failed" in row]
    assert all(len(row["turns"]) == 1 and 0 < row["attention"] < row["seconds"] for row in rows)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_lower_bound_has_the_keys_of_todo(bench: Any, subject_of: Callable[[str], Any], layout: str) -> None:
    subject = subject_of(layout)
    bounds = bench.variants.variants(subject, SIDE, ["lower bound of ToDo 4"], {})
    ours = keys_of(subject, patched(subject.unet, bench.variants.OURS["ToDo 4"]))
    assert keys_of(subject, bounds["lower bound of ToDo 4"]()) == ours == {16 if not layout.startswith("sdxl") else 4}
    assert keys_of(subject, bounds["baseline"]()) == {256 if not layout.startswith("sdxl") else 64}


@pytest.mark.parametrize("name", ["ToDo 2", "ToMe 0.5", "cluster 0.5"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_our_settings_reduce_every_layout(bench: Any, subject_of: Callable[[str], Any], layout: str, name: str) -> None:
    subject = subject_of(layout)
    whole = 256 if not layout.startswith("sdxl") else 64
    keys = keys_of(subject, patched(subject.unet, bench.variants.OURS[name]))
    assert keys == {whole // 4 if name == "ToDo 2" else whole // 2}


def test_a_variant_that_cannot_run_leaves_the_others_alone(
    bench: Any, subject_of: Callable[[str], Any], tmp_path: Path
) -> None:
    subject = subject_of("sd1-ldm")
    paths = {"hypertile": tmp_path}  # nothing lies there
    patches = bench.variants.variants(subject, SIDE, ["HyperTile 256", "ToDo 2"], paths)
    rows = bench.measure.measure(subject, SIDE, patches, batch=1, repeats=1)
    assert [("failed" in row, row["setting"]) for row in rows] == [
        (False, "baseline"),
        (False, "ToDo 2"),
        (True, "HyperTile 256"),
    ]
    rows = [GROUP | row for row in rows]
    assert "HyperTile" not in bench.report.table(rows)
    assert "HyperTile 256 at latent 16, all of it: FileNotFoundError" in bench.report.left_out(rows)[0]


def test_the_reductions_alone(bench: Any, subject_of: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.reductions, "MIN_SECONDS", 0)
    subject = subject_of("sd1")
    rows = bench.reductions.reductions(subject, SIDE, batch=1, repeats=1)
    assert {"ToDo 2", "ToMe 0.5", "cluster 0.5", "tomesd 0.5"} <= {row["reduction"] for row in rows}
    assert all(row["tokens"] == SIDE**2 and row["find"] > 0 and row["merge"] > 0 for row in rows)
    assert "| ToMe 0.5 |" in bench.report.reductions_table(rows)


@pytest.mark.parametrize(("before", "during", "more"), [(100, 140.5, 40.5), (None, 140.5, None), (100, None, None)])
def test_memory_is_what_the_reduced_call_needs_beyond_the_model(
    bench: Any, monkeypatch: pytest.MonkeyPatch, before: float | None, during: float | None, more: float | None
) -> None:
    peaks, told = iter([before, during]), list[str]()

    @contextmanager
    def heard(name: str) -> Iterator[None]:
        told.append(name)
        yield
        told.append(f"no {name}")

    @contextmanager
    def peak_memory(device: torch.device) -> Iterator[Any]:
        told.append("measured")
        yield SimpleNamespace(mib=next(peaks))

    monkeypatch.setattr(bench.measure, "peak_memory", peak_memory)
    calls = SimpleNamespace(device="cpu", call=lambda side, batch: lambda: told.append(f"{side} x{batch}"))
    found = bench.measure.peak(calls, SIDE * 2, partial(heard, "patch"), partial(heard, "small"), batch=3)
    assert found == more
    first_call = ["small", f"{bench.measure.SMALL_SIDE} x3", "no small"]
    assert told == [*first_call, "patch", "measured", "measured", f"{SIDE * 2} x3", "no patch"]


def test_goals_are_answered_only_where_the_interval_is_on_one_side(bench: Any) -> None:
    seconds = {"baseline": 2.0, "out of the window": 2.0, "factor 1": 3.0, "ToDo 2": 1.0, "lower bound of ToDo 2": 0.9}
    rows = rows_of(seconds)
    rows[3]["turns"] = [0.8, 0.85, 0.9, 1.0, 1.1]
    answers = {check.what: check.reached for check in bench.report.goals(rows)}
    assert answers == {
        "time of ToDo 2 / lower bound of ToDo 2": "within the spread",
        "time of ToDo 2 / lower bound of ToDo 2, by level-1 attention": "no",
        "time of out of the window / baseline": "yes",
        "time of out of the window / baseline, by level-1 attention": "yes",
        "time of factor 1 / baseline": "no",
        "time of factor 1 / baseline, by level-1 attention": "no",
    }
    for row in rows[3:]:
        row["turns"] = row["attentions"] = [1.0, 1.0]
    assert bench.report.goals(rows)[0].reached == "too few turns"
    assert "lower bound" not in str(bench.report.goals(rows_of(seconds, latent=64))), "that goal begins at latent 96"


def test_a_ratio_by_the_attention_alone_is_that_of_calls_equal_in_the_rest(bench: Any) -> None:
    mine = {"run": "one", "attentions": [1.0, 2.0], "turns": [9.0, 9.0]}
    theirs = {"run": "one", "attentions": [1.5, 1.5], "turns": [5.0, 4.0]}
    assert bench.report.by_attention(mine, theirs) == [4.5 / 5, 4.5 / 4]
    assert bench.report.by_attention(mine, theirs | {"run": "two"}) == []


@given(st.integers(5, 25), st.floats(0.5, 0.95))
def test_the_interval_holds_the_median_as_surely_as_it_says(bench: Any, count: int, sure: float) -> None:
    lower, upper = bench.report.interval([float(value) for value in range(count)], sure)
    below = sum(math.comb(count, k) for k in range(int(lower) + 1)) / 2**count  # too few values under the median
    above = sum(math.comb(count, k) for k in range(int(upper) + 1, count + 1)) / 2**count
    assert 1 - below - above >= sure - 1e-9 or (lower, upper) == (0, count - 1)
    shorter = [sum(math.comb(count, k) for k in range(int(lower) + 2)) / 2**count] * 2
    assert 1 - sum(shorter) < sure or lower + 1 >= upper - 1


def test_our_setting_with_the_highest_peak_is_compared(bench: Any) -> None:
    rows = rows_of({"baseline": 2.0, "ToDo 2": 1.0, "ToMe 0.5": 1.0, "tomesd 0.5": 1.0})
    for row, peak in zip(rows, (100.0, 90.0, 95.0, 300.0), strict=True):
        row["peak"] = peak
    (check,) = bench.report.goals(rows)
    assert "ToMe 0.5" in check.what
    assert check.values == [0.95]
    assert check.reached == "too few turns"  # one process, whose memory differs from run to run


def test_runs_into_one_folder_are_joined(bench: Any, tmp_path: Path) -> None:
    results = bench.report.Results
    first, second = results(), results()
    first.add(rows=rows_of({"baseline": 2.0, "ToDo 2": 1.0}))
    first.write(tmp_path / "a")
    second.add(rows=rows_of({"baseline": 3.0, "ToDo 2": 2.0}, run="two"))
    second.add(rows=rows_of({"baseline": 9.0}, latent=128), reductions=[{**GROUP, "latent": 96, "reduction": "ToDo 2"}])
    second.add(rows=[{**GROUP, "latent": 96, "setting": "ToDo 2", "peak": 5.0}])
    second.write(tmp_path / "b")
    both = results.read(tmp_path / "a", tmp_path / "b", tmp_path / "nothing here")
    assert [(r["latent"], r["setting"], r["seconds"]) for r in both.rows] == [
        (96, "baseline", 3.0),
        (96, "ToDo 2", 2.0),
        (128, "baseline", 9.0),
    ]
    assert both.rows[1]["peak"] == 5.0
    assert len(both.reductions) == 1


def test_a_failure_to_measure_memory_keeps_the_time(bench: Any) -> None:
    results, setting = bench.report.Results(), {**GROUP, "latent": 96, "setting": "baseline"}
    results.add(rows=rows_of({"baseline": 2.0}))
    results.add(rows=[{**setting, bench.report.NO_MEMORY: "killed"}])
    assert results.rows[0]["seconds"] == 2.0
    assert bench.report.left_out(results.rows) == ["Left out:\n\n- baseline at latent 96, its memory: killed"]
    results.add(rows=[{**setting, "peak": 5.0}])
    assert not bench.report.left_out(results.rows)


def test_only_turns_of_one_run_are_paired(bench: Any) -> None:
    (baseline, *_), (row, *_) = rows_of({"baseline": 2.0}), rows_of({"baseline": 1.0}, run="two")
    assert bench.report.ratios(row, baseline) == [0.5]
    assert bench.report.ratios(baseline, baseline) == [1] * 5


def test_tables_and_plots_are_written(bench: Any, tmp_path: Path) -> None:
    seconds = {"baseline": 2.0, "ToDo 2": 1.0, "ToDo 4": 0.9, "lower bound of ToDo 4": 0.9, "tomesd 0.5": 1.5}
    results = bench.report.Results()
    for latent in (64, 96):
        results.add(rows=rows_of(seconds, latent))
    bench.unet.finish(results, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"unet.json", "unet.md", "unet.png", "growth.png"}
    assert len(json.loads((tmp_path / "unet.json").read_text())["rows"]) == 10
    assert "| latent | 64 (512 px) | 96 (768 px) |" in (tmp_path / "unet.md").read_text()
    assert "| ToDo 2 | 2.00x | 2.00x |" in (tmp_path / "unet.md").read_text()
    results.add(rows=rows_of(seconds, dtype="bfloat16"))
    bench.unet.finish(results, tmp_path)
    names = {p.name for p in tmp_path.iterdir()}
    assert {"growth-sd1-float32.png", "growth-sd1-bfloat16.png"} <= names
    assert "growth.png" not in names, "it showed one group alone"
    assert (tmp_path / "unet.md").read_text().count("### Goals") == 2


def test_the_command_refuses_what_it_does_not_know(bench: Any, tmp_path: Path) -> None:
    assert bench.unet.parse_arguments(["--quick"]).latents == [96]
    assert bench.unet.parse_arguments(["--peer", f"hypertile={tmp_path}"]).paths == {"hypertile": tmp_path}
    refused = [["--settings", "ToDo 9"], ["--peer", f"nobody={tmp_path}"], ["--peer", "hypertile=/nowhere"]]
    for words in (*refused, ["--layout", "sd1-ldm", "--webui-dir", str(tmp_path)], ["--webui-dir", "."]):
        with pytest.raises(SystemExit):
            bench.unet.parse_arguments(words)


def test_the_figures_of_a_gpu_are_made_by_one_command_that_goes_on_where_it_stopped(
    bench, tmp_path, monkeypatch, capsys
):
    words = ["--device", "cpu", "--layouts", "sd1", "--channels", "32", "--sides", "16"]
    words += ["--turns", "1", "--seconds", "0"]
    monkeypatch.setattr(bench.gpu, "STEPS", 4)
    monkeypatch.setattr(bench.gpu, "SETTINGS", ("ToDo 2", "ToMe 0.5", "tomesd 0.5", "lower bound of ToDo 2"))
    args = bench.gpu.parse_arguments([*words, "--minutes", "1", "--out", str(tmp_path)])
    clock = iter([0, 0, 30, 59, 59, 61, 61])  # the third part would begin too late
    begun = bench.gpu.run(args, clock=lambda: next(clock))
    assert [row["part"] for row in begun] == ["calls"] * 5 + ["passes"] * 4
    assert "the minutes are over" in capsys.readouterr().out
    rows = bench.gpu.run(args)
    assert rows[: len(begun)] == json.loads(json.dumps(begun))
    assert list(dict.fromkeys(row["part"] for row in rows)) == ["calls", "passes", "fit", "python", "profile"]
    assert json.loads((tmp_path / "gpu.json").read_text()) == json.loads(json.dumps(rows))
    chosen = [row for row in rows if row["part"] == "passes" and "interval" in row["setting"]]
    assert {tuple(row["predicted_in"]) for row in chosen} == {(2,)}
    assert [row["setting"] for row in rows if row["part"] == "profile"] == ["unpatched", "predicted", "computed"]
    page = (tmp_path / "gpu.md").read_text()
    for name in ("baseline", *bench.gpu.SETTINGS, "128 px | ToDo 2, interval 2", "learn", "predicted step"):
        assert name in page


def test_settings_of_the_gpu_table_run_on_a_gpu_in_half_precision(
    bench: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests import fake_gpu

    fake_gpu.register_guard(tmp_path_factory)
    with fake_gpu.fake_half():
        subject = bench.models.build("sd1", device="cuda", channels=CHANNELS)
        subject = dataclasses.replace(subject, dtype=torch.float16)
        names = {"ToDo 4", "ToMe 0.5", "lower bound of ToDo 2"}  # tomesd wants a generator of a real GPU
        assert names < set(bench.gpu.SETTINGS)
        patches = bench.variants.variants(subject, SIDE, names, {})
        for name in names:
            with torch.no_grad(), patches[name](), fake_gpu.Count():
                subject.call(SIDE, 2)()


@pytest.mark.parametrize("layout", ["sd1", pytest.param("sdxl", marks=pytest.mark.slow)])
def test_the_pass_with_an_interval_is_timed_by_kind_of_step(bench, subject_of, layout):
    args = SimpleNamespace(
        factors=[(2, 1)], intervals=[2, 3], steps=6, side=SIDE, batch=1, device="cpu", cpu_time=layout == "sd1"
    )
    found = bench.interval.measure(subject_of(layout), args)
    assert {name: len(each) for name, each in found["seconds"].items()} == dict.fromkeys(found["seconds"], 6)
    assert found["predicted"] == {"ToDo 2": [], "ToDo 2, interval 2": [2, 4], "ToDo 2, interval 3": [2, 3]}
    assert not any("forward" in vars(module) for module in subject_of(layout).unet.modules())


def test_a_pass_is_timed_with_factors_of_both_levels_and_with_the_interval_alone(bench, subject_of):
    factors = [bench.interval.factors_of(text) for text in ("1", "2", "2,4")]
    made = bench.interval.sessions(subject_of("sd1"), factors, [2], SIDE, 6)
    names = ["interval 2", "ToDo 2", "ToDo 2, interval 2", "ToDo 2 and 4", "ToDo 2 and 4, interval 2"]
    assert list(made) == ["unpatched", *names]
    chosen = [made[name].settings for name in names]
    assert [(each.factor_1, each.factor_2) for each in chosen] == [(1, 1), (2, 1), (2, 1), (2, 4), (2, 4)]
    assert [each.interval for each in chosen] == [2, 1, 2, 1, 2]


def test_the_table_of_the_interval_has_medians_and_the_speed_of_the_pass(bench):
    seconds = {"unpatched": [4.0, 4.0, 4.0, 4.0], "ToDo 2, interval 2": [3.0, 3.0, 1.0, 3.0]}
    table = bench.interval.table(seconds, {"ToDo 2, interval 2": [2]}).splitlines()
    assert table[2:] == [
        "| unpatched | 4.00 s (4) | - | 1.00x |",
        "| ToDo 2, interval 2 | 3.00 s (3) | 1.00 s (1) | 1.60x |",
    ]
