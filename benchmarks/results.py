"""The tables of docs/results at users' settings, from the stored rows; pages.py writes them.

    python benchmarks/results.py                            # prints all that was measured, a line for each variant
    python benchmarks/results.py docs/results/plots         # draws the page's picture in this folder
    python benchmarks/results.py docs/images EVALUATION     # draws README's, of an evaluation's images

The rows are images of `python -m todo_lab evaluate`; the commands are on that page. A PSNR is that of the mean MSE.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import performance

from todo_lab.evaluation.report.matplotlib_files import pyplot, saved
from todo_lab.sampling.comparison import most_different

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
BASE = {"guidance": 6, "denoising": 0.5, "sampler": "DPM++ 2M Karras", "hires_steps": 10, "hires_scale": 2}
REQUEST = ("layout", "width", "hires_scale", *list(BASE)[:4])
LAYOUTS = {"SDXL": 2, "SD 1.5": 1}  # latent cells to a token at level 1, a side
SIDES = (64, 96, 128)  # tokens at level 1; hires passes have 96 or more
REAL = SIDES[1:]
CHANGES: dict[str, dict[str, Any]] = {  # a row -> what differs from the base
    "": {},
    "opening values": {"guidance": 7, "denoising": 0.7, "hires_steps": 20},  # of AUTOMATIC1111's WebUI
    "Euler a": {"sampler": "Euler a"},
    "SDE Karras": {"sampler": "DPM++ 2M SDE Karras"},
    "Euler": {"sampler": "Euler"},
    "DPM++ 2M": {"sampler": "DPM++ 2M"},
    "DPM++ 2M, CFG 2.5": {"sampler": "DPM++ 2M", "guidance": 2.5},
    "CFG 2.5": {"guidance": 2.5},
    "CFG 4.5": {"guidance": 4.5},
    "denoising 0.3": {"denoising": 0.3},
    "denoising 0.7": {"denoising": 0.7},
    "6 steps": {"hires_steps": 6},
    "4 steps": {"guidance": 1.5, "sampler": "Euler a", "hires_steps": 4},  # as with LCM, Lightning and DMD2
}
UNIFORM = ("Euler", "DPM++ 2M", "DPM++ 2M, CFG 2.5")  # schedules: below 128 x 128 tokens plain steps may be closer
WITH_NOISE = ("Euler a", "SDE Karras", "4 steps")
SKIPPING = ("Skip steps", *(f"Skip steps, tolerance {least}" for least in (0.16, 0.32)))  # the first has 0.08
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
        **dict.fromkeys(((False, False), (True, False)), SKIPPING[0]),
        (False, True): "deep layers, tolerance 0.04",
        (True, True): "",
    },
}
SHARES = tuple(f"fewer steps {share:g}" for share in (0.9, 0.8, 0.7, 0.6, 0.5))
WAYS = (  # of the base's table
    *("ToDo 2", "ToDo 3", *(f"ToDo 2, deep layers, tolerance {least}" for least in (0.08, 0.16))),
    *(f"ToDo 2, whole steps, tolerance {least}" for least in (0.16, 0.32)),
    *(*SKIPPING[:2], *SHARES[1:4]),
)
OTHERS = (
    *("ToDo 2", "ToDo 2, fixed", WAYS[2], WAYS[4], *SKIPPING[1:], *SHARES[1:4]),
    *("BiGain 2", "tomesd 0.5", "HyperTile 256", "DeepCache 2", "ZEUS 1"),
)
AS_MANY = {"SDXL": "fewer steps 0.8", "SD 1.5": "fewer steps 0.7"}  # take the time of ToDo 2 at full size
Table = list[list[str]]


@functools.cache
def rows() -> pd.DataFrame:
    """The stored rows at users' settings."""
    return pd.read_parquet(RESULTS / "users.parquet")


def at(layout: str, side: int = 64, **changes: Any) -> pd.DataFrame:
    """The rows of a layout with ``side`` x ``side`` tokens at level 1, at the base but for these values."""
    table = rows()[rows()["layout"] == layout]
    for name, value in {**BASE, "width": 4 * side, **changes}.items():
        table = table[table[name] == value]
    return table


def of(variant: str, part: pd.DataFrame) -> pd.DataFrame:
    """The rows of a variant."""
    return part[part["variant"] == variant]


def psnr(table: pd.DataFrame) -> float:
    """That of the mean MSE."""
    return -10 * math.log10(max(float(table["mse"].mean()), 1e-9))


def of_shared_prompts(part: pd.DataFrame, other: str) -> pd.DataFrame:
    """The rows of the prompts that *ToDo 2* and another variant have, of the variants that have all of them."""
    shared = set(of("ToDo 2", part)["prompt"]) & set(of(other, part)["prompt"])
    part = part[part["prompt"].isin(shared)]
    return part.groupby("variant").filter(lambda own: own["prompt"].nunique() == len(shared))


def passes(sides: tuple[int, ...] = SIDES) -> Iterator[tuple[str, int, str, pd.DataFrame]]:
    """Layout, tokens of a side, change and rows of each hires pass that was measured."""
    for (name, change), layout, side in itertools.product(CHANGES.items(), LAYOUTS, sides):
        part = of_shared_prompts(at(layout, side, **change), variant_of("Balanced", layout, name))
        if len(part):
            yield layout, side, name, part


def variant_of(aim: str, layout: str, name: str) -> str:
    """What a preset does in a pass of this name."""
    return AIMS[aim][layout == "SD 1.5", name in WITH_NOISE]


def speed_at_full_size(layout: str, side: int, variant: str, own: pd.DataFrame) -> float:
    """Of a pass on the GPU that was timed: its computed and predicted steps, each with the time of its kind.

    A predicted whole step takes no time here. Fewer tokens than those of a hires pass take the time of the fewest.
    """
    unet, latent = "sdxl" if layout == "SDXL" else "sd1", max(side, *REAL[:1]) * LAYOUTS[layout]
    steps, computed = (float(own[name].mean()) for name in ("hires_steps", "computed"))
    calls, timed = performance.on_gpu("calls", unet), performance.on_gpu("passes", unet)
    whole = calls["baseline", latent]["seconds"]
    reduced = next((name for name in ("ToDo 2", "ToMe 0.5") if variant.startswith(name)), "baseline")
    each, predicted = whole / calls[reduced, latent]["speed"], 0.0
    if "deep" in variant and computed < steps:
        kinds = timed["ToDo 2, interval 2" if "ToDo" in variant else "interval 2", latent]
        each, predicted = (kinds[kind]["seconds"] for kind in ("computed", "predicted"))
        whole = timed["unpatched", latent]["computed"]["seconds"]
    return steps * whole / (computed * each + (steps - computed) * predicted)


def beside_plain_steps(layout: str, side: int, variant: str, part: pd.DataFrame) -> tuple[float, float, int, float]:
    """Speed and PSNR of a variant, and the number and PSNR of the plain steps that take as much time, or a bit more.

    The PSNR of plain steps is infinite where all are needed.
    """
    own, steps = of(variant, part), int(part["hires_steps"].iloc[0])
    speed = speed_at_full_size(layout, side, variant, own)
    plain = {round(float(name.split()[-1]) * steps): name for name in set(part["variant"]) if "fewer" in name}
    count = min((each for each in plain if each >= round(steps / speed)), default=steps)
    return speed, psnr(own), count, psnr(of(plain[count], part)) if count < steps else math.inf


def cells_of(aim: str, layout: str, side: int, name: str, part: pd.DataFrame) -> list[str]:
    """Speed and PSNR of a preset in a pass, and the plain steps that take as much time; both empty if not measured."""
    variant = variant_of(aim, layout, name)
    if of(variant, part).empty:
        return ["", ""]
    speed, own, count, plain = beside_plain_steps(layout, side, variant, part)
    return [f"{speed:.2f}x, {own:.1f}", f"{count}: {plain:.1f}" if plain < math.inf else ""]


def of_aims() -> Table:
    """Each hires pass with as many tokens as real ones: the presets, each beside the plain steps of its time."""
    found = [["hires pass", *itertools.chain(*((aim, "plain") for aim in AIMS))]]
    for layout, side, name, part in passes(REAL):
        what = ", ".join(filter(None, (layout, f"{8 * side * LAYOUTS[layout]} px", name)))
        cells = [cell for aim in AIMS for cell in cells_of(aim, layout, side, name, part)]
        found.append([f"{what} ({part['prompt'].nunique()})", *cells])
    return [[*row] for row in zip(*(column for column in zip(*found, strict=True) if any(column[1:])), strict=True)]


def of_changes() -> Table:
    """*Balanced* with 64 x 64 tokens, where one thing or more is not as at the base."""
    found = [["64 x 64 tokens", *itertools.chain(*((layout, "plain") for layout in LAYOUTS))]]
    parts = {(name, layout): part for layout, _, name, part in passes((64,))}
    for name in CHANGES:
        own = [(layout, parts.get((name, layout), rows()[:0])) for layout in LAYOUTS]
        prompts = {str(part["prompt"].nunique()) for _, part in own if len(part)}
        cells = [cell for layout, part in own for cell in cells_of("Balanced", layout, 64, name, part)]
        found += [[f"{name or 'base'} ({', '.join(sorted(prompts))})", *cells]] * any(cells)
    return found


def of_base() -> Table:
    """Work and PSNR of each variant at the base, by layout and tokens."""
    return of_parts({(layout, side): part for layout, side, name, part in passes() if not name}, WAYS)


def of_others() -> Table:
    """Other programs at the base, with as many tokens as the smaller hires passes."""
    side = REAL[0]
    return of_parts({(layout, side): of_shared_prompts(at(layout, side), "BiGain 2") for layout in LAYOUTS}, OTHERS)


def of_parts(parts: dict[tuple[str, int], pd.DataFrame], variants: tuple[str, ...]) -> Table:
    """Work and PSNR of each variant in each part of the rows, by its layout and tokens of a side."""
    heads = [f"{layout}, {side} x {side} ({part['prompt'].nunique()})" for (layout, side), part in parts.items()]
    found = [["work: PSNR", *heads]]
    for variant in variants:
        each = [of(variant, part) for part in parts.values()]
        cells = ["" if own.empty else f"{own['work'].mean():.2f}: {psnr(own):.1f}" for own in each]
        if any(cells):
            found.append([shown(variant), *cells])
    return found


def shown(variant: str) -> str:
    """The name on the page, of ten steps."""
    if variant.startswith("fewer steps "):
        return f"{round(10 * float(variant.split()[-1]))} of 10 plain steps"
    return {"ToDo 2": "**ToDo 2**", SKIPPING[0]: "Skip steps, tolerance 0.08"}.get(variant, variant)


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
    "changes": of_changes,
    "base": of_base,
    "others": of_others,
    "paper": of_paper,
}


def of_grids(layout: str, variant: str) -> dict[int, pd.DataFrame]:
    """By the tokens of a side: the rows of the prompts with which all grids were run, at 2x and the base."""
    parts = {side: of(variant, at(layout, side)) for side in (32, *SIDES)}
    shared = set.intersection(*(set(part["prompt"]) for part in parts.values()))
    return {side: part[part["prompt"].isin(shared)] for side, part in parts.items()}


def plot_tokens(path: Path) -> None:
    """PSNR of ToDo 2, and of as many plain steps as take its time at full size, against the tokens at level 1."""
    plt = pyplot()
    chart, grid = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharey=True)
    for axes, (layout, plain) in zip(grid, AS_MANY.items(), strict=True):
        for variant, style in (("ToDo 2", OURS), (plain, PLAIN)):
            parts = of_grids(layout, variant)
            axes.plot([*parts], [*map(psnr, parts.values())], **style, label=shown(variant).replace("*", ""))
        axes.set(title=f"{layout}'s layout, small model", xlabel="tokens a side at level 1", xticks=[*parts])
        axes.legend(loc="upper left")
        axes.margins(y=0.25)
    grid[0].set_ylabel("PSNR to the baseline, dB")
    saved(chart, path)


OURS: dict[str, Any] = {"marker": "o", "color": "black", "linestyle": "-"}
PLAIN: dict[str, Any] = {"marker": "x", "color": "0.4", "linestyle": ":"}


def plot_opening(path: Path, evaluation: Path) -> None:
    """The usual image of *Balanced*, by its PSNR, beside ToMe and plain steps; below, where *Balanced* differs most."""
    layout, side = "SD 1.5", 96
    balanced, tome = variant_of("Balanced", layout, ""), "ToMe 0.5"
    part = of_shared_prompts(at(layout, side), balanced)
    usual = of(balanced, part).sort_values("psnr")["prompt"].iloc[part["prompt"].nunique() // 2]
    part, files = part[part["prompt"] == usual], pd.read_json(evaluation / "rows.jsonl", lines=True)
    count = beside_plain_steps(layout, side, balanced, part)[2]
    names = {"baseline": "baseline", balanced: "ToDo, Balanced", tome: tome}
    names[f"fewer steps 0.{count}"] = f"{count} plain steps"
    files = files[files["prompt"] == usual].set_index("variant")["image"]
    images = [pyplot().imread(evaluation / files[name]) for name in names]
    crop = most_different(*images[:2], len(images[0]) // 4)
    chart, grid = pyplot().subplots(2, len(names), figsize=(12.4, 6.6), layout="constrained")
    for column, image, (name, title) in zip(grid.T, images, names.items(), strict=True):
        own = of(name, part)
        speed = 10 / count if "fewer" in name else speed_at_full_size(layout, side, name, own) if len(own) else 1
        column[0].set_title(title + (f": {speed:.2f}x, {psnr(own):.0f} dB" if len(own) else ""), fontsize=13)
        for axes, region in zip(column, (..., crop), strict=True):
            axes.imshow(image[region])
            axes.axis("off")
    saved(chart, path)


def everything() -> str:
    """Each variant at each request: prompts, work, PSNR of the mean MSE, that of the worst image, ST-LPIPS."""
    groups = rows().groupby([*REQUEST, "variant"])
    found = groups.agg(prompts=("prompt", "nunique"), work=("work", "mean"), worst=("psnr", "min"))
    found.insert(2, "psnr", groups.apply(psnr, include_groups=False))
    return found.assign(st_lpips=groups["st_lpips"].mean()).round(4).to_csv()


if __name__ == "__main__":
    match [Path(word) for word in sys.argv[1:]]:
        case [folder]:
            plot_tokens(folder / "tokens.png")
        case [folder, evaluation]:
            plot_opening(folder / "before-after.webp", evaluation)
        case _:
            sys.stdout.write(everything())
