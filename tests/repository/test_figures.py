"""The figures in the README and the documentation are those of the stored rows."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pandas
import pytest

from todo_lab.evaluation.report.document import markdown_table
from todo_lab.evaluation.variants import from_grid

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "README.md"
PERFORMANCE = ROOT / "docs" / "performance.md"


def rows_of(page: Path, heading: str, number: int = 0) -> list[list[str]]:
    """The cells of the table of this number under a heading, without its head and without bold."""
    lines = page.read_text("utf-8").split(f"\n## {heading}\n")[1].splitlines()
    firsts = [at for at, line in enumerate(lines) if re.match(r"\|[-:|]+$", line)]
    table_lines = itertools.takewhile(lambda line: line.startswith("|"), lines[firsts[number] + 1 :])
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table_lines]


def script(name: str) -> Any:
    """`benchmarks/NAME.py`."""
    spec = importlib.util.spec_from_file_location(f"{name}_of_the_page", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


performance = script("performance")


def test_the_tables_of_performance_are_those_of_the_stored_runs():
    """`python benchmarks/performance.py` prints them."""
    tables = re.findall(r"(?:^\|.*\n)+", PERFORMANCE.read_text("utf-8"), re.M)
    assert tables == [f"{markdown_table(table())}\n" for table in performance.TABLES.values()]


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


def test_decibels_in_the_text_of_the_results_are_those_of_a_table():
    page = RESULTS.read_text("utf-8")
    prose = [line for line in page.split("\n## In short\n")[1].split("\n## ")[0].splitlines() if line[:1] != "|"]
    known = {cell.strip(" *") for line in page.splitlines() if line[:1] == "|" for cell in re.split(r"[|/,]| \(", line)}
    figures = re.findall(r"\b\d\d\.\d\b", " ".join(prose))
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
