"""The tables of docs/results at users' settings are those of the stored rows."""

from __future__ import annotations

import functools
import importlib.util
import math
import re
from pathlib import Path
from typing import Any

import pandas
import pytest

from todo_lab.evaluation.report.document import markdown_table
from todo_lab.evaluation.variants import from_grid

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results"
PAGE = (FOLDER / "README.md").read_text("utf-8")
LAYOUTS = ("SDXL", "SD 1.5")
SIZES = [{"hires_scale": scale, "width": width} for scale, width in ((2.0, 128), (3.0, 128), (4.0, 128), (2.0, 256))]
NAMES = [f"{kind} {layout}" for kind in ("sizes", "changes", "steps") for layout in LAYOUTS]
NAMES += ["others", "denoising", "measured", "paper"]
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
    return {"Spectrum": "Spectrum 2 0"}.get(shown, shown)


def decibels(mse: pandas.Series) -> str:
    return "" if not mse.mean() > 0 else "same" if mse.mean() < 1e-8 else f"{-10 * math.log10(mse.mean()):.1f}"


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_each_table_that_the_script_prints(script, name):
    assert set(script.TABLES) == set(NAMES)
    assert f"\n{markdown_table(script.TABLES[name]())}\n" in PAGE


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_table_by_size_has_work_psnr_and_st_lpips_of_the_rows(script, layout):
    """Of the same prompts in each row of a column."""
    _, *lines = script.of_sizes(layout)
    columns = [base(layout=layout, **size) for size in SIZES]
    shown_in = [[stored_name(name) for name, *cells in lines if cells[2 + number]] for number in range(len(SIZES))]
    columns = [of_shared(part, names) for part, names in zip(columns, shown_in, strict=True)]
    for name, *cells in lines:
        parts = [part[part["variant"] == stored_name(name)] for part in columns]
        work = [f"{part['work'].mean():.2f}" if len(part) else "" for part in (parts[0], parts[2])]
        assert cells == [*work, *(decibels(p["mse"]) for p in parts), f"{1000 * parts[0]['st_lpips'].mean():.1f}"], name


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", range(len(SIZES)))
def test_a_column_of_a_size_has_twenty_prompts_at_2x_and_twelve_elsewhere(script, layout, size):
    counted = script.of_same_prompts(base(layout=layout, **SIZES[size])).groupby("variant")["prompt"].nunique()
    assert set(counted) == {20 if size == 0 else 12}


def of_shared(part: pandas.DataFrame, variants: list[str]) -> pandas.DataFrame:
    """The rows of the prompts that all these variants have."""
    prompts = part[part["variant"].isin(variants)].groupby("variant")["prompt"].agg(set)
    return part[part["prompt"].isin(set.intersection(*prompts)) & part["variant"].isin(variants)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_columns_of_one_changed_value_are_of_the_same_twelve_prompts(script, layout):
    (_, *columns), *lines = script.of_changes(layout)
    parts = [base(**{"layout": layout, "hires_scale": 2.0, **script.CHANGES[column]}) for column in columns]
    names = [[stored_name(name) for name, *cells in lines if cells[number]] for number in range(len(columns))]
    columns_of = [of_shared(part, variants) for part, variants in zip(parts, names, strict=True)]
    shared = set.intersection(*(set(part["prompt"]) for part in columns_of))
    assert len(shared) == 12
    for name, *cells in lines:
        for part, cell in zip(parts, cells, strict=True):
            rows_of = part[(part["variant"] == stored_name(name)) & part["prompt"].isin(shared)]
            assert cell in ("", decibels(rows_of["mse"])), name
            assert not cell or len(rows_of) == 12, name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_table_at_denoising_0_7_is_of_twelve_prompts(script, layout):
    head, *lines = script.of_denoising()
    column = head.index(f"{layout}: PSNR (worst)")
    for name, *cells in lines:
        work, told = cells[column - 2 : column]
        rows_of = base(layout=layout, hires_scale=2.0, denoising=0.7, variant=stored_name(name))
        if told:
            assert rows_of["prompt"].nunique() == 12, name
            assert work == f"{rows_of['work'].mean():.2f}", name
            psnr = decibels(rows_of["mse"])
            assert told == (psnr if psnr == "same" else f"{psnr} ({rows_of['psnr'].min():.1f})"), name


def test_the_table_of_the_measured_error_is_that_of_its_rows(script):
    (_, *head), *lines = script.of_measured()
    assert head == [*script.PACED[:-1], "80 % of the steps"]
    for setting, *cells in lines:
        change = {**script.CHANGES, **script.MEASURED}[setting]
        part = base(**{"layout": "SDXL", "hires_scale": 2.0, **change})
        part = of_shared(part, [name for name, cell in zip(script.PACED, cells, strict=True) if cell])
        for name, cell in zip(script.PACED, cells, strict=True):
            rows_of = part[part["variant"] == name]
            if cell:
                assert len(rows_of) == (20 if setting == "base" else 12), (setting, name)
                ran = f", {rows_of['computed'].mean():.1f}" if name in script.PACED[:-1] else ""
                assert cell == f"{decibels(rows_of['mse'])} ({rows_of['psnr'].min():.1f}){ran}", (setting, name)


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
    layout, point = head[column + 1].split(", ")
    table = script.of_same_prompts(base(**{"layout": layout, "hires_scale": 2.0, **script.COMPARED[point]}))
    work, mse = table.groupby("variant")["work"].median(), table.groupby("variant")["mse"].mean()
    ours = sorted(set(table.loc[table["peer"] == "", "variant"]) - {"baseline"})
    for name, *cells in lines:
        theirs, cell = stored_name(name), cells[column]
        if not cell:
            continue
        enough = [o for o in ours if work[o] <= work[theirs] / 0.98 + 1e-6 and 0 < mse[o] <= mse[theirs]]
        assert (cell == "none") == (not enough), name
        if enough:
            best = min(enough, key=lambda o: mse[o])
            told, ratio, low, high = re.fullmatch(r"(.*): ([\d.]+) \(([\d.]+)–([\d.]+)\)", cell).groups()
            assert told == script.briefly(best), name
            assert float(ratio) == pytest.approx(mse[theirs] / mse[best], rel=0.05)
            assert float(low) <= float(ratio) <= float(high)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_skip_steps_is_closer_than_as_many_plain_steps(script, layout):
    for setting, *cells in script.of_skipped_steps(layout)[1:]:
        part = base(**{"layout": layout, "hires_scale": 2.0, **script.CHANGES[setting]})
        for name, (runs, own, plain) in zip(script.SKIPPING[:2], (cells[:3], cells[3:]), strict=True):
            skip = part[part["variant"] == name]
            if not runs:
                assert len(skip) < 12
                continue
            steps = skip["hires_steps"].iloc[0]
            assert float(runs) == pytest.approx(skip["computed"].mean(), abs=0.051)
            assert own.split(" (")[0] == decibels(skip["mse"])
            count, psnr = plain.split(": ")
            same = part[part["prompt"].isin(skip["prompt"]) & (part["peer"] == "fewer steps")]
            made = {
                round(float(name.removeprefix("fewer steps ")) * steps): decibels(group["mse"])
                for name, group in same.groupby("variant")
                if len(group) == len(skip) and name in script.SHARES
            }
            nearest = min(made, key=lambda one: (abs(one - skip["computed"].mean()), -one))
            assert (int(count), psnr) == (nearest, made[nearest])
            closer = own == "same" or float(own.split()[0]) > float(psnr)
            assert closer or (name != "Skip steps" and nearest > skip["computed"].mean() + 1), (setting, name)


def test_the_grid_makes_the_variants_of_the_rows():
    made = {variant.name for variant in from_grid(FOLDER / "grid-users.yaml")}
    assert set(rows()["variant"]) <= made | {"baseline"}
