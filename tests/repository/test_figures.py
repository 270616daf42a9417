"""What is generated is what is committed, and the figures in the text are those of the stored rows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas
import pytest

from todo_lab.evaluation.variants import from_grid

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import pages  # noqa: E402
from pages import performance, results  # noqa: E402

RESULTS = ROOT / "docs" / "results" / "README.md"
COLUMNS = {**results.SIZES, **results.CHANGES}
PERFORMANCE = ROOT / "docs" / "performance.md"


@pytest.mark.parametrize("name", pages.GENERATED)
def test_what_is_generated_is_what_is_committed(name):
    committed = (ROOT / name).read_text("utf-8")
    assert pages.GENERATED[name](committed) == committed, "run: python benchmarks/pages.py"


# docs/performance.md ------------------------------------------------------------------------------------------------


def text_of(page: Path) -> str:
    return " ".join(page.read_text("utf-8").split())


def test_the_sentences_on_calls_are_those_of_the_stored_rows():
    times = sorted(1 / performance.calls("sd1-ldm")["out of the window", side]["speed"] for side in (64, 128))
    assert "Calls took {:.2f} to {:.2f} times as long".format(*times) in text_of(PERFORMANCE)
    calls = performance.calls("sdxl-ldm")
    speeds = [f"{name} {row['speed']:.2f}x" for (name, _), row in calls.items() if name != "baseline"]
    told = f"unpatched {performance.seconds(calls['baseline', 128])}, {', '.join(speeds)}."
    assert told in text_of(PERFORMANCE)
    found = performance.rows(part="reductions", side=128)
    text = PERFORMANCE.read_text("utf-8").split("\n## Level-1 attention alone\n")[1].split("\n## ")[0]
    assert re.findall(r"(\d+) ms", text) == [f"{found[name, 128]['ms']['find']:.0f}" for name in SEARCHES]


SEARCHES = ("ToMe 0.5", "tomesd 0.5")


def test_the_timed_passes_are_those_of_the_stored_seconds():
    told = []
    for run in performance.timed_passes():
        whole, own = run["unpatched"], run["ToDo 2, interval 2"]
        told.append((f"{whole['pass'] / own['pass']:.2f}x", str(own["steps"])))
    text = text_of(PERFORMANCE).partition("The timed passes themselves")[2].partition("|")[0]
    assert re.findall(r"(\d\.\d\dx) (?:at|with) [^(]*\((\d+)", text) == told


# docs/results -------------------------------------------------------------------------------------------------------


def test_decibels_in_the_text_of_the_results_are_those_of_a_table():
    page = RESULTS.read_text("utf-8")
    prose = [line for line in page.split("\n## In short\n")[1].split("\n## ")[0].splitlines() if line[:1] != "|"]
    known = {cell.strip(" *") for line in page.splitlines() if line[:1] == "|" for cell in re.split(r"[|/,]| \(", line)}
    figures = re.findall(r"\b\d\d\.\d\b", " ".join(prose))
    assert figures
    assert set(figures) <= known


@pytest.mark.parametrize(
    ("grid", "rows"),
    [(grid, grid.partition("-")[0]) for grid in ("presets", "presets-large", "steps", "factors", "factors-large")]
    + [("whole", "steps")],
)
def test_the_grid_beside_the_results_makes_their_variants(grid, rows):
    stored = set(pandas.read_parquet(RESULTS.parent / f"{rows}.parquet")["variant"])
    assert {variant.name for variant in from_grid(RESULTS.parent / f"grid-{grid}.yaml")} <= stored


def test_the_grid_of_the_users_makes_the_variants_of_the_rows():
    made = {
        variant.name for grid in ("users", "256", "512") for variant in from_grid(RESULTS.parent / f"grid-{grid}.yaml")
    }
    gone = {"CA-ToMe 0.7", "EasyCache 0.2", "FBCache 0.4", "Spectrum 2 0"}  # measured with earlier adapters
    assert set(results.rows()["variant"]) - gone <= made | {"baseline"}
    assert not gone & made


def test_the_second_table_of_whole_factors_is_that_of_the_stored_rows():
    text = (ROOT / "docs" / "research" / "README.md").read_text("utf-8").split("\n## Whole factors\n")[1]
    lines = [line for line in text.splitlines() if re.match(r"\| (Euler|DPM)", line)]
    table = pandas.read_parquet(RESULTS.parent / "steps.parquet")
    table = table[(table["layout"] == "SDXL") & (table["guidance"] == 2.5)]
    mse = table.groupby(["sampler", "hires_steps", "hires_scale", "variant"])["mse"].mean()
    variants = [f"ToDo auto{at}, interval {n}" for n in (1, 2) for at in ("", " at both levels")]
    runs = [("Euler a", 8, 2.0), ("DPM++ 2M", 8, 2.0), ("Euler a", 20, 2.0), ("Euler a", 8, 3.0)]
    for line, run in zip(lines, runs, strict=True):
        found = [f"{1e6 * mse[(*run, name)]:.0f}" for name in (*variants, "ToDo auto, interval 3")]
        assert [cell.strip() for cell in line.strip("|").split("|")][1:] == found, run


@pytest.mark.parametrize("layout", results.LAYOUTS)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_has_the_same_prompts_in_each_row_twenty_at_the_base_and_twelve_elsewhere(layout, column):
    part = results.of_same_prompts(results.at(layout, **COLUMNS[column]))
    counted = part.groupby("variant")["prompt"].agg(frozenset)
    if column in results.SIZES or len(counted):
        assert set(map(len, counted)) == {20 if column in ("2x", "base") else 12}
        assert len(set(counted)) == 1


@pytest.mark.parametrize("layout", results.LAYOUTS)
def test_skip_steps_is_closer_than_as_many_plain_steps(layout):
    for setting, *cells in results.of_skipped_steps(layout)[1:]:
        for name, (runs, own, plain) in zip(results.SKIPPING[:2], (cells[:3], cells[3:]), strict=True):
            if not runs:
                continue
            count, psnr = plain.split(": ")
            closer = own == "same" or float(own.split()[0]) > float(psnr)
            assert closer or (name != "Skip steps" and int(count) > float(runs) + 1), (setting, name)
