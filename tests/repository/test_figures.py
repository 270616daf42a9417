"""The figures in the README and the documentation are those of the stored rows."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pandas
import pytest

from todo_lab.evaluation.variants import from_grid

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "README.md"
PERFORMANCE = ROOT / "docs" / "performance.md"
SCALES = (2.0, 3.0, 4.0)  # of docs/results
STEPS = {  # a row's name under "Between steps" -> its name in the stored rows
    **{f"ToDo auto, interval {interval}": f"ToDo auto, interval {interval}" for interval in (1, 2, 3)},
    "ToDo auto at both levels, interval 2": "ToDo auto at both levels, interval 2",
    "ToDo auto, end 0.7, interval 2": "ToDo auto, end 0.7, interval 2",
    **{f"interval {interval}": f"interval {interval}" for interval in (2, 3)},
    "Spectrum, 2 warm-up steps, window 2": "Spectrum 2 0",
    "Spectrum, its authors' settings": "Spectrum 5",
    "DeepCache 2": "DeepCache 2",
    "three quarters of the steps": "fewer steps 0.75",
    "negative prompt skipped in every second step": "skipped uncond 2",
    "FBCache 0.4": "FBCache 0.4",
    "T-GATE 0.6": "T-GATE 0.6",
}


def rows_of(page: Path, heading: str, number: int = 0) -> list[list[str]]:
    """The cells of the table of this number under a heading, without its head and without bold."""
    lines = page.read_text("utf-8").split(f"\n## {heading}\n")[1].splitlines()
    firsts = [at for at, line in enumerate(lines) if re.match(r"\|[-|]+$", line)]
    table_lines = itertools.takewhile(lambda line: line.startswith("|"), lines[firsts[number] + 1 :])
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table_lines]


def script(name: str) -> Any:
    """`benchmarks/NAME.py`."""
    spec = importlib.util.spec_from_file_location(f"{name}_of_the_page", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


performance = script("performance")


@functools.cache
def images() -> pandas.DataFrame:
    """The stored rows of "Without prediction"."""
    return pandas.read_parquet(RESULTS.parent / "factors.parquet")


@functools.cache
def results() -> dict[tuple[str, float], tuple[float, float]]:
    """(median speed of the hires pass, PSNR of the mean MSE) by the variant's name on the page, and scale."""
    groups = images()[images()["mse"] > 0].groupby(["variant", "hires_scale"])
    figures = {key: (part["speed"].median(), -10 * math.log10(part["mse"].mean())) for key, part in groups}
    return {(variant.removesuffix(", interval 1"), scale): pair for (variant, scale), pair in figures.items()}


@functools.cache
def presets(layout: str) -> pandas.DataFrame:
    """The stored rows of a layout's section."""
    table = pandas.read_parquet(RESULTS.parent / "presets.parquet")
    return table[table["layout"] == layout]


def stored_name(shown: str) -> str:
    if shown in STEPS:
        return STEPS[shown]
    return f"{shown}, interval 1" if re.match(r"(ToDo (auto|\d)|(ToMe|cluster) \d)", shown) else shown


@pytest.mark.parametrize(("layout", "four"), [("SD 1.5", 15), ("SDXL", 24)])
def test_each_variant_of_a_layout_has_all_prompts_of_its_scale(layout, four):
    table = presets(layout)
    counts = table.groupby(["hires_scale", "variant"])["prompt"].nunique().groupby("hires_scale").agg(["min", "max"])
    assert counts.to_numpy().tolist() == [[30, 30], [30, 30], [four, four]]


@pytest.mark.parametrize(("number", "layout"), enumerate(["SDXL", "SD 1.5"]))
def test_the_timed_tables_are_those_of_the_stored_rows(number, layout):
    """A cell is empty where nothing was measured. The presets have had other names and rules since."""
    older = {"ToDo by size, interval 2": "ToDo balanced"}
    groups = presets(layout)[presets(layout)["mse"] > 0].groupby(["variant", "hires_scale"])
    found = {key: (f"{g['speed'].median():.2f}x", f"{-10 * math.log10(g['mse'].mean()):.1f}") for key, g in groups}
    for name, *cells in rows_of(RESULTS, "Timed, at CFG 2.5", number):
        stored = older.get(name) or stored_name(name)
        assert cells == [*itertools.chain(*(found.get((stored, s), ("", "")) for s in (2.0, 4.0)))], name


def test_the_table_without_prediction_is_that_of_the_stored_rows():
    """A cell is empty where nothing was measured."""
    for name, *cells in rows_of(RESULTS, "Without prediction"):
        found = [results().get((name, scale)) for scale in SCALES]
        assert any(found), name
        texts = [("", "") if pair is None else (f"{pair[0]:.2f}x", f"{pair[1]:.1f}") for pair in found]
        assert cells == [*itertools.chain(*texts)], name


def test_the_tables_of_performance_are_those_of_the_stored_runs():
    """`python benchmarks/performance.py` prints them."""
    tables = re.findall(r"(?:^\|.*\n)+", PERFORMANCE.read_text("utf-8"), re.M)
    assert tables == [f"{performance.markdown(table())}\n" for table in performance.TABLES.values()]


def test_the_time_of_calls_outside_the_steps_is_that_of_the_stored_rows():
    calls = performance.calls("sd1-ldm")
    times = sorted(1 / calls["out of the window", latent]["speed"] for latent in (64, 128))
    assert "Calls took {:.2f} to {:.2f} times as long".format(*times) in PERFORMANCE.read_text("utf-8")


def test_the_sentence_on_sdxl_in_ldms_modules_is_that_of_the_stored_rows():
    calls, page = performance.calls("sdxl-ldm"), " ".join(PERFORMANCE.read_text("utf-8").split())
    speeds = [f"{name} {row['speed']:.2f}x" for (name, _), row in calls.items() if name != "baseline"]
    assert f"unpatched {performance.seconds(calls['baseline', 128])}, {', '.join(speeds)}." in page


def test_the_cost_of_the_search_is_that_of_the_stored_rows():
    reductions = json.loads((performance.STORED / "unet.json").read_text("utf-8"))["reductions"]
    found = {row["reduction"]: row["find"] for row in reductions if row["latent"] == 128}
    text = PERFORMANCE.read_text("utf-8").split("\n## Level-1 attention alone\n")[1].split("\n## ")[0]
    assert re.findall(r"(\d+) ms", text) == [f"{found[name]:.0f}" for name in ("ToMe 0.5", "tomesd 0.5")]


@pytest.mark.parametrize("heading", ["In short", "Without prediction"])
def test_speeds_and_decibels_in_the_text_of_the_results_are_those_of_a_table(heading):
    """Of any table of the page; those without prediction may be of a variant that is not shown."""
    page = RESULTS.read_text("utf-8")
    prose = [line for line in page.split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines() if line[:1] != "|"]
    known = {cell.strip(" *") for line in page.splitlines() if line[:1] == "|" for cell in re.split(r"[|/]| \(", line)}
    known |= {f"{speed:.2f}x" for speed, _ in results().values()} | {f"{psnr:.1f}" for _, psnr in results().values()}
    figures = re.findall(r"\b\d+\.\d\dx|\b\d\d\.\d\b", " ".join(prose))
    assert figures
    assert set(figures) <= known


def test_what_a_psnr_means_follows_from_its_definition():
    for decibels, error, _ in rows_of(RESULTS, "What PSNR is good?"):
        assert error == f"{255 * 10 ** (-float(decibels.removesuffix(' dB')) / 20):.0f} of 255"


CFG = 2.5  # the pocket model's own
Run = tuple[str, str, int, float, float]  # layout, sampler, hires steps and scale, CFG
RUNS: list[Run] = [  # of each column under "Between steps"
    ("SD 1.5", "Euler a", 8, 2.0, CFG),
    ("SDXL", "Euler a", 8, 2.0, CFG),
    ("SD 1.5", "DPM++ 2M", 8, 2.0, CFG),
    ("SDXL", "DPM++ 2M", 8, 2.0, CFG),
    ("SDXL", "Euler a", 8, 3.0, CFG),
]
RUNS_OF_20_STEPS: list[Run] = [(layout, sampler, 20, scale, cfg) for layout, sampler, _, scale, cfg in RUNS[:4]]


STORED_GRIDS = [
    ("presets", "presets"),
    ("presets-large", "presets"),
    ("steps", "steps"),
    ("whole", "steps"),
    ("factors", "factors"),
    ("factors-large", "factors"),
]


@pytest.mark.parametrize(("grid", "rows"), STORED_GRIDS)
def test_the_grid_beside_the_results_makes_their_variants(grid, rows):
    stored_names = set(pandas.read_parquet(RESULTS.parent / f"{rows}.parquet")["variant"])
    assert {variant.name for variant in from_grid(RESULTS.parent / f"grid-{grid}.yaml")} <= stored_names


@functools.cache
def steps() -> dict[Run, pandas.DataFrame]:
    """The stored rows of each run."""
    table = pandas.read_parquet(RESULTS.parent / "steps.parquet")
    return dict(iter(table.groupby(["layout", "sampler", "hires_steps", "hires_scale", "guidance"])))


def test_the_second_table_of_whole_factors_is_that_of_the_stored_rows():
    text = (ROOT / "docs" / "research" / "README.md").read_text("utf-8").split("\n## Whole factors\n")[1]
    table = [line for line in text.splitlines() if re.match(r"\| (Euler|DPM)", line)]
    variants = [f"ToDo auto{at}, interval {n}" for n in (1, 2) for at in ("", " at both levels")]
    runs = [RUNS[1], RUNS[3], RUNS_OF_20_STEPS[1], RUNS[4]]
    for line, run in zip(table, runs, strict=True):
        found = [steps()[run][steps()[run]["variant"] == name] for name in (*variants, "ToDo auto, interval 3")]
        cells = [cell.strip() for cell in line.strip("|").split("|")][1:]
        assert cells == [f"{1e6 * each['mse'].mean():.0f}" for each in found], run


def test_the_timed_passes_are_those_of_the_stored_seconds():
    told = []
    for run in json.loads((performance.STORED / "interval.json").read_text("utf-8")):
        whole, own = (run["seconds"][name] for name in ("unpatched", "ToDo 2, interval 2"))
        told.append((f"{sum(whole) / sum(own):.2f}x", str(len(own))))
    page = " ".join(PERFORMANCE.read_text("utf-8").split())
    text = page.partition("The timed passes themselves")[2].partition("|")[0]
    assert re.findall(r"(\d\.\d\dx) (?:at|with) [^(]*\((\d+)", text) == told


TOLERANCE_COLUMNS = [("DPM++ 2M Karras", 0.5, 10), ("DPM++ 2M Karras", 0.7, 20), ("DPM++ 2M Karras", 0.7, 10)]
TOLERANCE_COLUMNS += [("Euler a", 0.5, 15)]


def test_the_table_of_the_measured_error_is_that_of_the_stored_rows():
    table = pandas.read_parquet(RESULTS.parent / "tolerance.parquet")
    table = table[(table["layout"] == "SDXL") & (table["hires_scale"] == 2)]
    for name, *cells in rows_of(RESULTS, "Measured error"):
        share = re.fullmatch(r"(\d+) % of the steps", name)
        variant = f"fewer steps {int(share[1]) / 100:g}" if share else name
        for (sampler, denoising, steps), cell in zip(TOLERANCE_COLUMNS, cells, strict=True):
            at = (table["sampler"] == sampler) & (table["denoising"] == denoising) & (table["hires_steps"] == steps)
            rows = table[at & (table["variant"] == variant)]
            if not cell:
                assert len(rows) < 5 or (sampler == "Euler a" and name.startswith("whole")), (name, steps)
                continue
            ran = steps - rows["predicted_steps"].mean()
            count = round(int(share[1]) / 100 * steps) if share else f"{ran:.1f}" if ran < steps else steps
            decibels = -10 * math.log10(rows["mse"].mean())
            assert cell == f"{decibels:.1f} ({rows['psnr'].min():.1f}), {count}", (name, steps)
