"""The figures in the README and the documentation are those of the stored rows."""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pandas
import pytest

from todo_core.patching.plan import DeepPlan
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
CALLS = {  # a row's name in docs/performance.md -> its name in docs/benchmarks/unet.json
    "unpatched": "baseline",
    "ToDo 2, outside its steps": "out of the window",
}


def rows_of(page: Path, heading: str, number: int = 0) -> list[list[str]]:
    """The cells of the table of this number under a heading, without its head and without bold."""
    lines = page.read_text("utf-8").split(f"\n## {heading}\n")[1].splitlines()
    firsts = [at for at, line in enumerate(lines) if re.match(r"\|[-|]+$", line)]
    table_lines = itertools.takewhile(lambda line: line.startswith("|"), lines[firsts[number] + 1 :])
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table_lines]


@functools.cache
def stored(part: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / "docs" / "benchmarks" / "unet.json").read_text("utf-8"))[part]


@functools.cache
def unet_calls(
    layout: str = "sd1-ldm", batch: int = 1, dtype: str = "bfloat16"
) -> dict[tuple[str, int], dict[str, Any]]:
    of_run = layout, batch, dtype
    rows = [row for row in stored("rows") if (row["layout"], row["batch"], row["dtype"]) == of_run and "speed" in row]
    return {(row["setting"], row["latent"]): row for row in rows}


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


def test_the_table_of_unet_calls_is_that_of_the_stored_rows():
    latents = (64, 96, 128, 192, 256)
    baseline = [unet_calls()["baseline", latent] for latent in latents]
    seconds, share, *rows = rows_of(PERFORMANCE, "One UNet call on a CPU")
    assert seconds[1:] == [seconds_text(row) for row in baseline]
    assert share[1:] == [f"{row['attention'] / row['seconds']:.0%}".replace("%", " %") for row in baseline]
    for name, *cells in rows:
        found = [unet_calls().get((CALLS.get(name, name), latent)) for latent in latents]
        assert cells == ["" if row is None else f"{row['speed']:.2f}x" for row in found], name


def test_the_table_of_the_attention_alone_is_that_of_the_stored_rows():
    for name, cell in rows_of(PERFORMANCE, "Level-1 attention alone"):
        assert cell == f"{unet_calls()[CALLS.get(name, name), 128]['attention']:.2f} s", name


def test_the_time_of_calls_outside_the_steps_is_that_of_the_stored_rows():
    times = sorted(1 / unet_calls()["out of the window", latent]["speed"] for latent in (64, 128))
    assert "Calls took {:.2f} to {:.2f} times as long".format(*times) in PERFORMANCE.read_text("utf-8")


def seconds_text(row: dict[str, Any]) -> str:
    return f"{row['seconds']:.{0 if row['seconds'] >= 100 else 1}f} s"


def test_the_table_of_other_models_is_that_of_the_stored_rows():
    groups = {
        "SD 1.5 in diffusers, 768 px": ("sd1", 1, 96),
        "SD 1.5, the WebUI's InvokeAI attention, 768 px": ("sd1-ldm and the WebUI's InvokeAI", 1, 96),
        "ControlNet of SD 1.5 in diffusers, 768 px": ("sd1-controlnet", 1, 96),
    }
    rows = rows_of(PERFORMANCE, "Other models")
    assert {name for name, *_ in rows} == set(groups)
    for name, seconds, speed, others in rows:
        layout, batch, latent = groups[name]
        calls = unet_calls(layout, batch, "float32")
        assert seconds == seconds_text(calls["baseline", latent])
        for other, figure in [("ToDo 2", speed), *(text.split(": ") for text in others.split(", ") if text)]:
            assert figure == f"{calls[other, latent]['speed']:.2f}x", (name, other)


def test_the_table_of_sdxls_calls_is_that_of_the_stored_rows():
    """Of each size but the largest, the median of some turns."""
    calls, latents = unet_calls("sdxl"), (128, 192, 256)
    seconds, share, *rows = rows_of(PERFORMANCE, "One call of SDXL")
    baseline = [calls["baseline", latent] for latent in latents]
    assert seconds[1:] == [seconds_text(row) for row in baseline]
    assert share[1:] == [f"{row['attention'] / row['seconds']:.0%}".replace("%", " %") for row in baseline]
    assert len(rows) == len({name for name, _ in calls}) - 1
    for name, *cells in rows:
        assert cells == [f"{calls[name, latent]['speed']:.2f}x" for latent in latents], name


def test_the_sentence_on_sdxl_in_ldms_modules_is_that_of_the_stored_rows():
    calls, page = unet_calls("sdxl-ldm"), " ".join(PERFORMANCE.read_text("utf-8").split())
    speeds = [f"{name} {row['speed']:.2f}x" for (name, _), row in calls.items() if name != "baseline"]
    assert f"unpatched {seconds_text(calls['baseline', 128])}, {', '.join(speeds)}." in page


def test_the_cost_of_the_search_is_that_of_the_stored_rows():
    found = {row["reduction"]: row["find"] for row in stored("reductions") if row["latent"] == 128}
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


UNET_PASSES = {  # a column of "A whole pass" -> layout and latent of its run in docs/benchmarks/interval.json
    "SDXL, 1024 px": ("sdxl", 128),
    "SDXL, 1536 px": ("sdxl", 192),
    "SDXL, 2048 px": ("sdxl", 256),
    "SD 1.5, 1024 px": ("sd1", 128),
}


@functools.cache
def unet_passes() -> dict[tuple[str, int], dict[str, Any]]:
    runs = json.loads((PERFORMANCE.parent / "benchmarks" / "interval.json").read_text("utf-8"))
    return {(run["layout"], run["side"]): run for run in runs}


def speed_of_steps(run: dict[str, Any], variant: str, computed: int, predicted: int) -> str:
    """So many steps, each kind by its median, relative to unpatched ones. Empty where the variant was not timed."""
    if variant not in run["seconds"]:
        return ""
    kinds: tuple[list[float], list[float]] = ([], [])
    for step, seconds in enumerate(run["seconds"][variant]):
        kinds[step in run["predicted"][variant]].append(seconds)
    pairs = zip((computed, predicted), kinds, strict=True)
    own = sum(steps * statistics.median(kind) for steps, kind in pairs if steps)
    return f"{(computed + predicted) * statistics.median(run['seconds']['unpatched']) / own:.2f}x"


def speed_of_pass(run: dict[str, Any], variant: str, steps: int = 10) -> str:
    """The interval decides alone how many steps are of which kind: so interval 2 has the seconds of interval 3 too."""
    reduction, _, interval = re.fullmatch(r"(?:(ToDo [^,]*?)(, )?)?(?:interval (\d))?", variant).groups()
    computed = len(DeepPlan(1, int(interval)).computed_steps(steps, range(steps))) if interval else steps
    timed = ", ".join(filter(None, (reduction, interval and "interval 2")))
    return speed_of_steps(run, timed, computed, steps - computed)


def test_the_table_of_a_whole_pass_is_that_of_the_stored_seconds():
    runs = [unet_passes()[run] for run in UNET_PASSES.values()]
    seconds, computed, predicted, *passes = rows_of(PERFORMANCE, "A whole pass")
    medians = [statistics.median(run["seconds"]["unpatched"]) for run in runs]
    assert seconds == ["unpatched step", *(f"{median:.1f} s" for median in medians)]
    assert computed == ["computed step, ToDo 2", *(speed_of_steps(run, "ToDo 2", 1, 0) for run in runs)]
    assert predicted == ["predicted step", *(speed_of_steps(run, "ToDo 2, interval 2", 0, 1) for run in runs)]
    for name, *cells in passes:
        steps, variant = re.fullmatch(r"(\d+) steps: (.*)", name).groups()
        assert cells == [speed_of_pass(run, variant, int(steps)) for run in runs], name


def test_the_timed_passes_are_those_of_the_stored_seconds():
    told = []
    for run in (unet_passes()[run] for run in UNET_PASSES.values()):
        whole, own = (run["seconds"][name] for name in ("unpatched", "ToDo 2, interval 2"))
        told.append((f"{sum(whole) / sum(own):.2f}x", str(len(own))))
    text = (
        " ".join(PERFORMANCE.read_text("utf-8").split()).partition("The timed passes themselves")[2].partition("|")[0]
    )
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


def gpu_rows(part: str, layout: str) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of a part with flash attention, by setting and side."""
    rows = json.loads((PERFORMANCE.parent / "benchmarks" / "gpu.json").read_text("utf-8"))
    mine = [row for row in rows if (row["part"], row["layout"], row["kernel"]) == (part, layout, "flash")]
    return {(row["setting"], row["side"]): row for row in mine}


def test_the_table_of_a_gpu_is_that_of_the_stored_rows():
    sizes = [("sdxl", side) for side in (128, 192, 256)] + [("sd1", side) for side in (64, 96, 128, 192, 256)]
    rows = {
        size: {name: row for (name, side), row in gpu_rows("calls", size[0]).items() if side == size[1]}
        for size in sizes
    }
    for name, *cells in rows_of(PERFORMANCE, "On a GPU")[:9]:
        mine = [of_size.get(name.strip("*"), of_size["baseline"]) for of_size in rows.values()]
        if name == "unpatched":
            assert cells == [f"{1000 * row['seconds']:.0f} ms" for row in mine]
        elif name.startswith("share"):
            assert cells == [f"{100 * row['attention'] / row['seconds']:.0f} %" for row in mine]
        else:
            assert cells == [f"{row['speed']:.2f}x" for row in mine], name


def test_the_passes_of_a_gpu_are_those_of_the_stored_rows():
    rows = gpu_rows("passes", "sdxl")
    text = PERFORMANCE.read_text("utf-8").partition("Passes of SDXL")[2].partition("\n\n|")[2].partition("\n\n")[0]
    for line in text.splitlines()[2:]:
        name, *cells = (cell.strip("* ") for cell in line.strip("|").split("|"))
        kind, _, setting = name.partition(": ") if ": " in name else name.partition(" step")
        setting = setting.strip(", ") or "unpatched"
        for side, cell in zip((128, 192, 256), cells, strict=True):
            row, whole = rows[setting, side], rows["unpatched", side]
            kind = "computed" if kind == "unpatched" else kind
            found = (
                f"{whole['pass'] / row['pass']:.2f}x" if kind == "10 steps" else f"{1000 * row[kind]['seconds']:.0f} ms"
            )
            assert found == cell, name
