"""The tables of docs/results at users' settings, from the stored rows; pages.py writes them.

    python benchmarks/results.py docs/results/plots    # draws their picture in this folder

The rows are images of `python -m todo_lab evaluate`; the commands are on that page. A PSNR is that of the mean MSE.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from todo_lab.evaluation.report import aggregation
from todo_lab.evaluation.report.matplotlib_files import pyplot, saved

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
KARRAS = "DPM++ 2M Karras"
BASE = {"guidance": 6, "denoising": 0.5, "sampler": KARRAS, "hires_steps": 10, "hires_scale": 2, "width": 128}
LAYOUTS = ("SDXL", "SD 1.5")
SIZES: dict[str, dict[str, Any]] = {
    **{f"{scale:g}x": {"hires_scale": scale} for scale in (2, 3, 4)},
    "2x of 256 px": {"width": 256},
}
CHANGES: dict[str, dict[str, Any]] = {  # a column -> what differs from the base
    "base": {},
    "CFG 2.5": {"guidance": 2.5},
    "CFG 4.5": {"guidance": 4.5},
    "CFG 7": {"guidance": 7},
    "denoising 0.3": {"denoising": 0.3},
    "denoising 0.7": {"denoising": 0.7},
    "6 steps": {"hires_steps": 6},
    "15 steps": {"hires_steps": 15},
    "20 steps": {"hires_steps": 20},
    "Euler": {"sampler": "Euler"},
    "Euler a": {"sampler": "Euler a"},
    "SDE Karras": {"sampler": "DPM++ 2M SDE Karras"},
}
MEASURED: dict[str, dict[str, Any]] = {  # settings of "Measured error" that the other tables have not
    "denoising 0.7, CFG 7": {"denoising": 0.7, "guidance": 7},
    "denoising 0.7, 20 steps": {"denoising": 0.7, "hires_steps": 20},
    "CFG 5, 20 steps": {"guidance": 5, "hires_steps": 20},
    "DPM++ 2M, 8 steps": {"sampler": "DPM++ 2M", "hires_steps": 8},
    "Euler, 12 steps": {"sampler": "Euler", "hires_steps": 12},
    "Euler a, 15 steps": {"sampler": "Euler a", "hires_steps": 15},
    "Euler a, CFG 7": {"sampler": "Euler a", "guidance": 7},
    "Euler a, denoising 0.7, CFG 5, 20 steps": {
        "sampler": "Euler a",
        "denoising": 0.7,
        "guidance": 5,
        "hires_steps": 20,
    },
    "4x": {"hires_scale": 4},
}
OPENING = {"guidance": 7, "denoising": 0.7, "hires_steps": 20}  # with which AUTOMATIC1111's WebUI opens, at 2x
FEW_STEPS = {"guidance": 1.5, "sampler": "Euler a", "hires_steps": 4}  # as with LCM, Lightning and DMD2
COMPARED: dict[str, dict[str, Any]] = {"2x": {}, "4x": {"hires_scale": 4}}
SHOWN = {"Spectrum 2 0": "Spectrum"}
BOLD = ("deep layers, interval 2", "ToDo 2")
DEEP = ("deep layers, interval 2", "deep layers, tolerance 0.08", "deep layers, tolerance 0.16")
OURS = (*DEEP[:2], "ToDo 2", "ToDo 3", "ToDo 4", "ToDo 2, deep layers, interval 2")
SKIPPING = ("Skip steps", *(f"Skip steps, tolerance {least}" for least in (0.16, 0.32, 0.64)))
PRESETS = ("ToDo balanced", "ToDo fast", *SKIPPING)
SHARES = tuple(f"fewer steps {share:g}" for share in (0.9, 0.8, 0.7, 0.6, 0.5))
OTHERS = (
    *("BiGain 2", "token-downsampling 2", "tomesd 0.5", "HyperTile 128", "CA-ToMe 0.7"),
    *("DeepCache 2", "Spectrum 2 0", "ZEUS 1", "EasyCache 0.2"),
)
ALL = (*OURS, *PRESETS, *SHARES, *OTHERS)
PACED = (*DEEP, "ToDo balanced", "fewer steps 0.8")
MANY_TOKENS = (
    *("ToDo 2", "ToDo 3", "ToDo 4", DEEP[1], *(f"ToDo 2, deep layers, tolerance {least}" for least in (0.08, 0.16))),
    *SKIPPING[1:3],
    *("ToDo 2, whole steps, tolerance 0.16", "ToDo 2, whole steps, tolerance 0.32", *SHARES),
)
GRIDS = (128, 256, 512)  # px, enlarged to twice as much
AS_MANY = {"SDXL": "fewer steps 0.8", "SD 1.5": "fewer steps 0.7"}  # take the time of ToDo 2 at full size
# layout, tokens of a side, in words -> what differs from the base
PASSES: dict[tuple[str, int, str], dict[str, Any]] = {
    **{(layout, side, "base"): {} for layout, side in (("SDXL", 64), ("SDXL", 128), ("SD 1.5", 128))},
    **{(layout, 64, "opening values"): OPENING for layout in LAYOUTS},
    **{(layout, 64, "with noise"): {"sampler": "Euler a"} for layout in LAYOUTS},
    **{(layout, 64, "4 steps with noise"): FEW_STEPS for layout in LAYOUTS},
}
AIMS = {  # preset -> what it does, by whether the layout is SD 1.5's and the sampler adds noise
    "Balanced": {
        **dict.fromkeys(((False, False), (False, True)), "ToDo 2, deep layers, tolerance 0.08"),
        (True, False): "ToDo 2, whole steps, tolerance 0.16",
        (True, True): "ToDo 2",
    },
    "Fast": {
        **dict.fromkeys(((False, False), (False, True)), "ToDo 2, deep layers, tolerance 0.16"),
        (True, False): "ToDo 2, whole steps, tolerance 0.32",
        (True, True): "ToDo 2",
    },
    "Closest": {
        **dict.fromkeys(((False, False), (True, False)), "Skip steps, tolerance 0.16"),
        **dict.fromkeys(((False, True), (True, True)), "deep layers, tolerance 0.08"),
    },
}
PROMPTS = 12  # of a column, at least
WITH_NOISE = ("Euler a", "SDE Karras")
ROUNDING = 1e-8  # MSE, 80 dB
Table = list[list[str]]


@functools.cache
def rows() -> pd.DataFrame:
    """The stored rows at users' settings."""
    return pd.read_parquet(RESULTS / "users.parquet")


def at(layout: str, **changes: Any) -> pd.DataFrame:
    """The rows of a layout at the base, but for these values of the request."""
    table = rows()[rows()["layout"] == layout]
    for name, value in {**BASE, **changes}.items():
        table = table[table[name] == value]
    return table


def of(variant: str, part: pd.DataFrame) -> pd.DataFrame:
    """The rows of a variant."""
    return part[part["variant"] == variant]


def decibels(table: pd.DataFrame) -> str:
    """Empty where nothing was measured or differs, "same" where only the rounding of a batch does."""
    mse = float(table["mse"].mean()) if len(table) else 0.0
    return "" if not mse else "same" if mse < ROUNDING else f"{-10 * math.log10(mse):.1f}"


def _share(plain: str) -> float:
    return float(plain.removeprefix("fewer steps "))


def _has(part: pd.DataFrame, share: float) -> bool:
    return not of(f"fewer steps {share:g}", part).empty


def shown(variant: str, *, steps: int | None = 10) -> str:
    """The name on the page. ``steps`` is None where the columns have several."""
    name = SHOWN.get(variant, variant)
    if variant.startswith("fewer steps "):
        share = _share(variant)
        name = f"{round(share * steps)} of {steps} plain steps" if steps else f"{100 * share:.0f} % of the steps"
    return f"**{name}**" if name in BOLD else name


def of_sizes(layout: str) -> Table:
    """One row for each variant: work, PSNR at each size, and ST-LPIPS. A column has the same prompts in all rows."""
    columns = {size: of_same_prompts(at(layout, **change)) for size, change in SIZES.items()}
    found = [["variant", "work, 2x", "work, 4x", *SIZES, "ST-LPIPS, 2x"]]
    for variant in ALL:
        parts = {size: of(variant, part) for size, part in columns.items()}
        if parts["2x"].empty:
            continue
        work = ["" if parts[size].empty else f"{parts[size]['work'].mean():.2f}" for size in ("2x", "4x")]
        learned = f"{1000 * parts['2x']['st_lpips'].mean():.1f}"
        found.append([shown(variant), *work, *map(decibels, parts.values()), learned])
    return found


def of_many_tokens(head: str, **changes: Any) -> Table:
    """2x of 256 and 512 px: work and PSNR. A column has the prompts with which its grid was run to the end."""
    parts = {}
    for layout, width in itertools.product(LAYOUTS, (256, 512)):
        part = of_whole_grid(at(layout, width=width, **changes))
        if len(part):
            parts[f"{layout}, {width // 4} x {width // 4}"] = part
    return of_parts(head, parts, MANY_TOKENS, changes.get("hires_steps", 10))


def of_whole_grid(part: pd.DataFrame) -> pd.DataFrame:
    """The rows of the prompts with which a grid was run to its end."""
    complete = set(of("ToDo 3", part)["prompt"]) & set(of(SHARES[3], part)["prompt"])
    part = part[part["prompt"].isin(complete)]
    return part.groupby("variant").filter(lambda rows: rows["prompt"].nunique() == len(complete))


def of_aims() -> Table:
    """For each hires pass: work and PSNR of the presets, each beside the plain steps with as much work or more."""
    found = [["hires pass", *itertools.chain(*((aim, "plain") for aim in AIMS))]]
    for (layout, side, words), change in PASSES.items():
        part, cells = of_whole_grid(at(layout, width=4 * side, **change)), []
        prompts = part["prompt"].nunique()
        if not prompts:
            continue
        for variants in AIMS.values():
            own = of(variants[layout == "SD 1.5", "noise" in words], part)
            if own.empty:
                cells += ["", ""]
                continue
            work = float(own["work"].mean())
            share = next((s for s in map(_share, SHARES[::-1]) if s >= work - 0.005 and _has(part, s)), 0)
            count, plain = round(share * change.get("hires_steps", 10)), decibels(of(f"fewer steps {share:g}", part))
            told = decibels(own)  # none: the images are the baseline's
            cells += [told and f"{work:.2f}: {told}", told and plain and f"{count}: {plain}"]
        found.append([f"{layout}, {side} x {side}, {words} ({prompts})", *cells])
    return found


def of_parts(head: str, parts: dict[str, pd.DataFrame], variants: Sequence[str], steps: int = 10) -> Table:
    """Work and PSNR of each variant in each part of the rows."""
    found = [[head, *(f"{name}{what}" for name in parts for what in (": work", ": PSNR (worst)"))]]
    for variant in variants:
        own = [(each["work"].mean(), with_worst(each)) for each in (of(variant, part) for part in parts.values())]
        cells = [cell for work, told in own for cell in (f"{work:.2f}" if told else "", told)]
        if any(cells):
            found.append([shown(variant, steps=steps), *cells])
    return found


def of_changes(layout: str) -> Table:
    """One column for each setting that differs from the base in one value, all of the same prompts."""
    columns = {name: of_same_prompts(at(layout, **change)) for name, change in CHANGES.items()}
    columns = {name: part for name, part in columns.items() if part["prompt"].nunique() >= PROMPTS}
    shared = set.intersection(*(set(part["prompt"]) for part in columns.values()))
    found = [["variant", *columns]]
    for variant in ALL:
        cells = [decibels(of(variant, part[part["prompt"].isin(shared)])) for part in columns.values()]
        if sum(map(bool, cells)) > len(cells) / 2:
            found.append([shown(variant, steps=None), *cells])
    return found


def of_denoising() -> Table:
    """Denoising 0.7: work and PSNR in both layouts."""
    parts = {layout: of_same_prompts(at(layout, denoising=0.7)) for layout in LAYOUTS}
    return of_parts("variant", parts, ALL)


def of_same_prompts(part: pd.DataFrame) -> pd.DataFrame:
    """The rows of the most prompts that the variants of the tables share; without variants of fewer than `PROMPTS`."""
    known = part.groupby("variant")["prompt"].agg(set)
    enough = [prompts for variant, prompts in known.items() if variant in ALL and len(prompts) >= PROMPTS]
    shared = set.intersection(*enough) if enough else set()
    complete = [variant for variant, prompts in known.items() if prompts >= shared]
    return part[part["variant"].isin(complete) & part["prompt"].isin(shared)]


@functools.cache
def of_others() -> Table:
    """For each other program: the setting of ours that is as fast and nearest, and the ratio of the MSEs."""
    found = [["theirs", *(f"{layout}, {point}" for layout in LAYOUTS for point in COMPARED)]]
    columns = [matches(of_same_prompts(at(layout, **change))) for layout in LAYOUTS for change in COMPARED.values()]
    for variant in (*SHARES[1:4], *OTHERS):
        cells = [column.get(variant, "") for column in columns]
        if any(cells):
            found.append([shown(variant).replace("*", ""), *cells])
    return found


def matches(table: pd.DataFrame) -> dict[str, str]:
    """By variant: the match of `aggregation.matches`, by work in place of speed."""
    filled = dict.fromkeys(("step_speed", "total_speed", "hires_seconds", "step_seconds", "total_seconds"), 1.0)
    table = table.assign(**filled, speed=1 / table["work"], peak_mib=math.nan, error=None, family="", amount=None)
    table = table.assign(scale="", scene=table["prompt"].astype("category").cat.codes)
    table = table[table["work"].notna()]
    return {row.variant: _match(row) for row in aggregation.matches(table, aggregation.summarize(table)).itertuples()}


def _match(row: Any) -> str:
    if not row.ours:
        return "none"
    ratio, low, high = (f"{float(f'{value:.2g}'):g}" for value in (row.ratio, row.ratio_low, row.ratio_high))
    return f"{briefly(row.ours)}: {ratio} ({low}–{high})"


def briefly(ours: str) -> str:
    """The name of a setting of ours in a match."""
    for long in (" layers, interval", " layers, tolerance", " steps, tolerance"):
        ours = ours.replace(long, "")
    return ours.replace(", deep", " and deep")


def of_skipped_steps(layout: str) -> Table:
    """*Skip steps* with two tolerances: runs of the model and PSNR, beside the nearest number of plain steps."""
    found = [["setting", *("runs", "PSNR (worst)", "plain steps") * 2]]
    for name, change in CHANGES.items():
        cells = [cell for skip in SKIPPING[:2] for cell in _skipped(skip, at(layout, **change))]
        if name not in WITH_NOISE and cells[0]:
            found.append([name, *cells])
    return found


def _skipped(variant: str, part: pd.DataFrame) -> list[str]:
    skip = of(variant, part)
    if len(skip) < PROMPTS:
        return ["", "", ""]
    steps, runs = int(skip["hires_steps"].iloc[0]), skip["computed"].mean()
    part = part[part["prompt"].isin(skip["prompt"])]
    plain = {share: round(float(share.removeprefix("fewer steps ")) * steps) for share in SHARES}
    known = [(count, share) for share, count in plain.items() if len(of(share, part)) == len(skip)]
    count, share = min(known, key=lambda pair: (abs(pair[0] - runs), -pair[0]))
    return [f"{runs:.1f}", with_worst(skip), f"{count}: {decibels(of(share, part))}"]


def with_worst(table: pd.DataFrame) -> str:
    """The PSNR of the mean MSE, and that of the worst image."""
    own = decibels(table)
    return own if own in ("", "same") else f"{own} ({table['psnr'].min():.1f})"


def of_measured() -> Table:
    """SDXL's layout at each setting, with a fixed interval and with tolerances: PSNR and computed steps."""
    found = [["setting", *(shown(variant, steps=None).replace("*", "") for variant in PACED)]]
    for name, change in {**CHANGES, **MEASURED}.items():
        parts = {variant: of(variant, at("SDXL", **change)) for variant in PACED}
        known = [set(part["prompt"]) for part in parts.values() if len(part) >= PROMPTS]
        shared = set.intersection(*known) if known else set()
        cells = [_paced(part[part["prompt"].isin(shared)], len(shared)) for part in parts.values()]
        if cells[1]:
            found.append([name, *cells])
    return found


def _paced(part: pd.DataFrame, prompts: int) -> str:
    if not prompts or len(part) != prompts:
        return ""
    runs = "" if part["peer"].any() else f", {part['computed'].mean():.1f}"
    return with_worst(part) + runs


def of_paper() -> Table:
    """ToDo's own protocol, beside the paper's figures (arXiv 2402.13573); its baseline's magnitude is 4.846."""
    table = pd.read_parquet(RESULTS / "paper.parquet")
    found = [["variant", "keys left", "MSE", "high frequencies", "the paper's MSE", "its high-pass magnitude"]]
    for variant, (left, *told) in PAPER.items():
        rows_of = of(variant, table)
        if len(rows_of):
            energy = f"{rows_of['high_frequency'].mean():.2f}"
            found.append([variant, left, f"{rows_of['mse'].mean():.1e}".replace("e-0", "e-"), energy, *told])
    return found


PAPER = {
    "ToDo 2, fixed": ("25 %", "6.25e-3", "1.01"),
    "ToDo 2": ("25 %", "", ""),
    "ToMe 0.75": ("25 %", "2.69e-2", "0.83"),
    "ToDo 3, fixed": ("11 %", "9.21e-3", "0.98"),
    "ToDo 3": ("11 %", "", ""),
    "ToMe 0.88": ("12 %", "2.67e-2", "0.83"),
}
TABLES: dict[str, Callable[[], Table]] = {
    "aims": of_aims,
    **{f"sizes {layout}": functools.partial(of_sizes, layout) for layout in LAYOUTS},
    "many tokens": functools.partial(of_many_tokens, "tokens"),
    "opening values": functools.partial(of_many_tokens, "opening values", **OPENING),
    "with noise": functools.partial(of_many_tokens, "Euler a", sampler="Euler a"),
    "others": of_others,
    **{f"changes {layout}": functools.partial(of_changes, layout) for layout in LAYOUTS},
    "denoising": of_denoising,
    **{f"steps {layout}": functools.partial(of_skipped_steps, layout) for layout in LAYOUTS},
    "measured": of_measured,
    "paper": of_paper,
}


def plot_work(path: Path) -> None:
    """Work against PSNR at the base, 2x and 4x in both layouts."""
    plt = pyplot()
    chart, grid = plt.subplots(2, 2, figsize=(13, 12), layout="constrained")
    panels = [(layout, scale) for layout in LAYOUTS for scale in (2, 4)]
    points = [_points(of_same_prompts(at(layout, hires_scale=scale))) for layout, scale in panels]
    for axes, (layout, scale), found in zip(grid.flat, panels, points, strict=True):
        for kind, style in enumerate(STYLES):
            chosen = [point for point in found if point[0] == kind]
            axes.plot([work for _, work, _, _ in chosen], [psnr for _, _, psnr, _ in chosen], markersize=6, **style)
        _dress(axes, f"{layout}'s layout, {scale}x: CFG 6, denoising 0.5, 10 Karras steps")
    grid[0][0].legend(fontsize=9, loc="upper left")
    chart.draw_without_rendering()  # fix the layout first: labels are placed in it
    chart.set_layout_engine("none")
    for axes, found in zip(grid.flat, points, strict=True):
        _label(axes, found)
    saved(chart, path)


def of_grids(layout: str, variant: str) -> dict[int, pd.DataFrame]:
    """By the tokens of a side: the rows of the prompts with which all grids were run, at 2x and the base."""
    parts = {width // 4: of(variant, at(layout, width=width)) for width in GRIDS}
    shared = set.intersection(*(set(part["prompt"]) for part in parts.values()))
    return {side: part[part["prompt"].isin(shared)] for side, part in parts.items()}


def plot_tokens(path: Path) -> None:
    """PSNR of ToDo 2, and of as many plain steps as take its time at full size, against the tokens at level 1."""
    plt = pyplot()
    chart, grid = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharey=True)
    for axes, (layout, plain) in zip(grid, AS_MANY.items(), strict=True):
        for variant, style in (("ToDo 2", STYLES[0] | {"linestyle": "-"}), (plain, STYLES[1])):
            parts = of_grids(layout, variant)
            told = [float(decibels(part)) for part in parts.values()]
            axes.plot([*parts], told, **style | {"label": shown(variant).replace("*", "")})
        axes.set(title=f"{layout}'s layout, small model", xlabel="tokens a side at level 1", xticks=[*parts])
        axes.legend()
    grid[0].set_ylabel("PSNR to the baseline, dB")
    saved(chart, path)


STYLES: list[dict[str, Any]] = [
    {"marker": "o", "color": "black", "linestyle": "none", "label": "this project"},
    {"marker": "x", "color": "0.4", "linestyle": ":", "label": "plain steps"},
    {"marker": "s", "color": "0.45", "markerfacecolor": "white", "linestyle": "none", "label": "others"},
]
Point = tuple[int, float, float, str]


def _points(part: pd.DataFrame) -> list[Point]:
    """Kind, work, PSNR and name of each variant."""
    found = []
    for kind, variants in enumerate((OURS + PRESETS, SHARES, OTHERS)):
        for name in variants:
            rows_of = of(name, part)
            if decibels(rows_of) not in ("", "same") and rows_of["work"].notna().all():
                found.append((kind, float(rows_of["work"].mean()), float(decibels(rows_of)), _short(name)))
    return found


def _short(variant: str) -> str:
    name = briefly(shown(variant).replace("*", ""))
    return name.replace(" of 10 plain steps", " steps")


def _dress(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("work of the hires pass, relative to the baseline", fontsize=9)
    axes.set_ylabel("PSNR to the baseline, dB (higher is closer)", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.margins(0.12)


def _label(axes: Any, points: list[Point]) -> None:
    from adjustText import adjust_text

    texts = [axes.text(work, psnr, name, fontsize=8) for _, work, psnr, name in points]
    arrows = {"arrowstyle": "-", "color": "0.5", "linewidth": 0.5}
    x, y = [work for _, work, _, _ in points], [psnr for _, _, psnr, _ in points]
    adjust_text(texts, x=x, y=y, ax=axes, arrowprops=arrows, expand=(1.2, 1.6), min_arrow_len=6)


if __name__ == "__main__":
    (folder,) = sys.argv[1:]
    plot_work(Path(folder) / "users.png")
    plot_tokens(Path(folder) / "tokens.png")
