"""The tables of docs/results at users' settings are those of the stored rows."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import math
import re
from pathlib import Path
from typing import Any

import pandas
import pytest

from todo_lab.evaluation.variants import from_grid

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results"
PAGE = (FOLDER / "README.md").read_text("utf-8")
LAYOUTS, SCALES = ("SDXL", "SD 1.5"), (1.5, 2.0, 3.0, 4.0)
NAMES = [f"{kind} {layout}" for kind in ("sizes", "changes") for layout in LAYOUTS] + [
    "others",
    "denoising",
    "steps",
    "paper",
]
OTHER_THAN_BASE = {"denoising": 0.5, "sampler": "DPM++ 2M Karras", "hires_steps": 10, "guidance": 6, "width": 128}


@pytest.fixture(scope="module")
def script() -> Any:
    """`benchmarks/results.py`, which prints the tables."""
    spec = importlib.util.spec_from_file_location("results_of_the_page", ROOT / "benchmarks" / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def rows() -> pandas.DataFrame:
    return pandas.read_parquet(FOLDER / "users.parquet")


def at(**values: Any) -> pandas.DataFrame:
    table = rows()
    for name, value in values.items():
        table = table[table[name] == value]
    return table


def base(**values: Any) -> pandas.DataFrame:
    return at(**{**OTHER_THAN_BASE, **values})


def stored_name(shown: str) -> str:
    shown = shown.strip("* ")
    if steps := re.match(r"(\d) of 10 plain steps", shown):
        return f"fewer steps 0.{steps[1]}"
    if share := re.match(r"(\d)0 % of the steps", shown):
        return f"fewer steps 0.{share[1]}"
    return {"Spectrum, 2 warm-up steps, window 2": "Spectrum 2 0"}.get(shown, shown)


def decibels(mse: pandas.Series) -> str:
    return "" if not mse.mean() > 0 else "same" if mse.mean() < 1e-8 else f"{-10 * math.log10(mse.mean()):.1f}"


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_each_table_that_the_script_prints(script, name):
    assert set(script.TABLES) == set(NAMES)
    assert f"\n{script.markdown(script.TABLES[name]())}\n" in PAGE


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_table_by_size_has_work_psnr_and_st_lpips_of_the_rows(script, layout):
    _, *lines = script.of_sizes(layout)
    for name, *cells in lines:
        parts = [base(layout=layout, hires_scale=scale, variant=stored_name(name)) for scale in SCALES]
        work = [f"{part['work'].mean():.2f}" if len(part) else "" for part in (parts[1], parts[3])]
        assert cells == [*work, *(decibels(p["mse"]) for p in parts), f"{1000 * parts[1]['st_lpips'].mean():.1f}"], name


def test_a_table_by_size_is_of_twelve_prompts_where_it_says_nothing_else(script):
    counted = rows()[rows()["variant"].isin(script.CORE)].groupby(
        ["layout", "hires_scale", *OTHER_THAN_BASE, "variant"]
    )
    at_base = {
        key[:2]: count
        for key, count in counted["prompt"].nunique().items()
        if key[2:-1] == (0.5, "DPM++ 2M Karras", 10, 6, 128)
    }
    assert at_base == dict.fromkeys(itertools.product(LAYOUTS, SCALES), 12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_columns_of_one_changed_value_are_of_the_same_six_prompts(script, layout):
    (_, *columns), *lines = script.of_changes(layout)
    parts = [base(**{"layout": layout, "hires_scale": 2.0, **script.CHANGES[column]}) for column in columns]
    shared = set.intersection(*(set(part[part["variant"] == name]["prompt"]) for part in parts for name in script.CORE))
    assert len(shared) == 6
    for name, *cells in lines:
        for part, cell in zip(parts, cells, strict=True):
            rows_of = part[(part["variant"] == stored_name(name)) & part["prompt"].isin(shared)]
            assert cell == (decibels(rows_of["mse"]) if len(rows_of) == 6 else ""), name


def test_the_table_at_denoising_0_7_is_of_twelve_prompts(script):
    for name, *cells in script.of_denoising()[1:]:
        for layout, cell in zip(LAYOUTS, cells, strict=True):
            rows_of = base(layout=layout, hires_scale=2.0, denoising=0.7, variant=stored_name(name))
            assert (rows_of["prompt"].nunique(), cell) == (12, decibels(rows_of["mse"])), name


def test_the_table_of_the_papers_protocol_is_that_of_its_rows(script):
    table = pandas.read_parquet(FOLDER / "paper.parquet").groupby("variant")
    assert set(table["prompt"].nunique()) == {4}
    for name, _, mse, energy, *_ in script.of_paper()[1:]:
        found = table.get_group(name)
        assert float(mse) == pytest.approx(found["mse"].mean(), rel=0.03), name
        assert float(energy) == pytest.approx(found["high_frequency"].mean(), abs=0.006), name


@pytest.mark.parametrize("column", range(4))
def test_a_match_is_as_fast_and_as_close_and_its_interval_holds_the_ratio(script, column):
    head, *lines = script.of_others()
    layout, scale = re.fullmatch(r"(.*), (\d)x", head[column + 1]).groups()
    table = base(layout=layout, hires_scale=float(scale))
    work, mse = table.groupby("variant")["work"].median(), table.groupby("variant")["mse"].mean()
    ours = table[table["peer"] == ""].groupby("variant")["prompt"].nunique()
    ours = [name for name in ours.index[ours == 12] if name != "baseline"]
    for name, *cells in lines:
        theirs, cell = stored_name(name), cells[column]
        if not cell:
            continue
        enough = [o for o in ours if work[o] <= work[theirs] / 0.98 + 1e-6 and 0 < mse[o] <= mse[theirs]]
        assert (cell == "none") == (not enough), name
        if enough:
            best = min(enough, key=lambda o: mse[o])
            told, ratio, low, high = re.fullmatch(r"(.*): ([\d.]+) \(([\d.]+)–([\d.]+)\)", cell).groups()
            assert told == best.replace("deep layers, interval", "deep").replace(", deep", " and deep"), name
            assert float(ratio) == pytest.approx(mse[theirs] / mse[best], rel=0.05)
            assert float(low) <= float(ratio) <= float(high)


def test_skip_steps_is_closer_than_as_many_plain_steps(script):
    for setting, *cells in script.of_skipped_steps()[1:]:
        for layout, (runs, own, plain) in zip(LAYOUTS, (cells[:3], cells[3:]), strict=True):
            part = base(**{"layout": layout, "hires_scale": 2.0, **script.CHANGES[setting]})
            skip = part[part["variant"] == "Skip steps"]
            ran, steps = map(float, runs.split(" of "))
            assert (ran, steps) == (pytest.approx(skip["computed"].mean(), abs=0.051), skip["hires_steps"].iloc[0])
            assert own.split(" (")[0] == decibels(skip["mse"])
            count, psnr = plain.split(": ")
            same = part[part["prompt"].isin(skip["prompt"]) & (part["peer"] == "fewer steps")]
            assert psnr in {decibels(group["mse"]) for _, group in same.groupby("variant")}
            assert own == "same" or float(own.split()[0]) > float(psnr)
            assert float(count) >= min(ran - 0.05, 0.8 * steps)


def test_the_grid_makes_the_variants_of_the_rows():
    made = {variant.name for variant in from_grid(FOLDER / "grid-users.yaml")}
    assert set(rows()["variant"]) <= made | {"baseline"}
