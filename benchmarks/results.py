"""The tables of docs/results at users' settings, from the stored rows; pages.py writes them.

    python benchmarks/results.py                            # prints all that was measured, a line for each variant
    python benchmarks/results.py docs/results/plots         # draws the page's picture in this folder
    python benchmarks/results.py docs/images/before-after.webp EVALUATION    # draws a pass of an evaluation
    python benchmarks/results.py docs/images/differences.webp EVALUATION     # draws a crop from 45, 40, 35, 30 dB on

The rows are images of `python -m todo_lab evaluate`; the commands are on that page. A PSNR is that of the mean MSE.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import performance
from performance import Table
from unet_call.models import UNETS, full_host

from todo_core import Settings, TokenGrid
from todo_core.hosts.schedulers import course_of_scheduler
from todo_core.patching.facts import Pass
from todo_core.patching.planning import make_plan
from todo_core.patching.time.prediction import Hold
from todo_core.settings import AIMS, seen
from todo_lab.evaluation.report.matplotlib_files import pyplot, saved
from todo_lab.sampling.comparison import most_different
from todo_lab.sampling.samplers import make_scheduler

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
ROWS = pd.read_parquet(RESULTS / "users.parquet")  # at users' settings
BASE = {"guidance": 6, "denoising": 0.5, "sampler": "DPM++ 2M", "schedule": "Karras"}
BASE |= {"hires_steps": 10, "hires_scale": 2}
REQUEST = ("layout", "width", "hires_scale", *list(BASE)[:5])
LAYOUTS = {"SDXL": 2, "SD 1.5": 1}  # latent cells to a token at level 1, a side
SIDES = (64, 96, 128)  # tokens at level 1; hires passes have 96 or more
REAL = SIDES[1:]
EULER_A = {"sampler": "Euler a", "schedule": "Normal"}  # A1111's Automatic
CHANGES: dict[str, dict[str, Any]] = {  # a row -> what differs from the base
    "": {},
    "opening values": {"guidance": 7, "denoising": 0.7, "hires_steps": 20},  # of AUTOMATIC1111's WebUI
    "Euler, 20 steps": {"sampler": "Euler", "schedule": "Normal", "hires_steps": 20},  # as ComfyUI opens
    # as users of Illustrious and NoobAI run it
    "Euler a, 15 steps, 1.5x, denoising 0.35": {**EULER_A, "hires_steps": 15, "denoising": 0.35, "hires_scale": 1.5},
    "Euler a, 15 steps, denoising 0.35": {**EULER_A, "hires_steps": 15, "denoising": 0.35},
}
USERS = (  # a row of README's table for each kind
    ("SDXL", 96, ""),
    ("SDXL", 96, "Euler a, 15 steps, 1.5x, denoising 0.35"),
    ("SDXL", 96, "opening values"),
    ("SD 1.5", 96, ""),
    ("SD 1.5", 128, ""),
    ("SDXL", 96, "Euler, 20 steps"),
)
WISHES = {"Balanced": "the usual", "Closest": "the closest image", "Fast": "speed first"}
TOLERANCES = {aim: Settings.preset(aim).tolerance for aim in AIMS}
SHARES = tuple(f"fewer steps {share:g}" for share in (0.8, 0.7, 0.6))
BY_ERROR = tuple(f"predicted, tolerance {TOLERANCES[aim]}" for aim in ("Balanced", "Fast"))
WAYS = (*BY_ERROR, "ToDo 2", "ToDo 3", *SHARES)  # of the base's table
PROGRAMS = ("BiGain 2", "tomesd 0.5", "HyperTile 256", "DeepCache 2", "ZEUS 1")
CACHES = ("DeepCache 2", "Spectrum 5", "EasyCache 0.2")  # between steps
OTHERS = (*BY_ERROR, "ToDo 2", "ToDo 2, fixed", *SHARES[:2], *PROGRAMS, *CACHES[1:])
EULER = ("Euler, 20 steps", "Euler a, 15 steps, denoising 0.35")  # run beside other programs, too
PLAIN_STEPS = "plain steps of *Balanced*'s time"
WITH_EULER = ("Balanced", "Fast", PLAIN_STEPS, "ToDo 2", "tomesd 0.5", *CACHES)
Which = tuple[str, int, str]  # a pass: layout, tokens of a side at level 1, change
AS_MANY = {"SDXL": "fewer steps 0.8", "SD 1.5": "fewer steps 0.7"}  # take the time of ToDo 2 at full size


def at(layout: str, side: int = 64, **changes: Any) -> pd.DataFrame:
    """The rows of a layout with ``side`` x ``side`` tokens at level 1, at the base but for these values."""
    table, values = ROWS[ROWS["layout"] == layout], {**BASE, **changes}
    for name, value in {**values, "width": round(8 * side / values["hires_scale"])}.items():
        table = table[table[name] == value]
    return table


def of(variant: str, part: pd.DataFrame) -> pd.DataFrame:
    """The rows of a variant."""
    return part[part["variant"] == variant]


def psnr(table: pd.DataFrame) -> float:
    """The PSNR of the mean MSE."""
    return -10 * math.log10(max(float(table["mse"].mean()), 1e-9))


def of_shared_prompts(part: pd.DataFrame, other: str) -> pd.DataFrame:
    """The rows of the prompts that a variant has; of variants that have all of them."""
    part = part[part["prompt"].isin(of(other, part)["prompt"])]
    count = part["prompt"].nunique()
    return part.groupby("variant").filter(lambda own: own["prompt"].nunique() == count)


def passes(sides: tuple[int, ...] = SIDES) -> Iterator[tuple[str, int, str, pd.DataFrame]]:
    """Layout, tokens of a side, change and rows of each hires pass that was measured."""
    for (name, change), layout, side in itertools.product(CHANGES.items(), LAYOUTS, sides):
        part = of_shared_prompts(at(layout, side, **change), variant_of("Balanced", layout, side, name))
        if len(part):
            yield layout, side, name, part


def variant_of(aim: str, layout: str, side: int, name: str) -> str:
    """What a preset does, by its plan, in a pass of this name with ``side`` x ``side`` tokens."""
    request = BASE | CHANGES[name]
    size, steps = TokenGrid(*2 * (side * LAYOUTS[layout],)), request["hires_steps"]
    of = round(steps / request["denoising"])
    course = course_of_scheduler(make_scheduler(request["sampler"], request["schedule"], steps, of))
    plan = make_plan(Settings.preset(aim), full_host(layout), Pass(size, steps, course))
    tolerance = plan.whole.tolerance
    predicted = f"predicted, tolerance {tolerance:g}" if plan.predicts else ""
    in_more = predicted and plan.reduced and tolerance < plan.settings.tolerance
    where = "" if not in_more else "more steps" if plan.whole.way is Hold else "all steps"
    return ", ".join(filter(None, ("ToDo 2" if plan.reduced else "", where, predicted)))


def speed_at_full_size(layout: str, side: int, variant: str, own: pd.DataFrame) -> float:
    """The speed of a pass on the GPU that was timed: its steps, each with the time of its kind (`local.step_letters`).

    A predicted whole step takes no time here. Fewer tokens than those of a hires pass take the time of the fewest.
    """
    unet, latent = UNETS[layout], max(side, *REAL[:1]) * LAYOUTS[layout]
    calls, timed = performance.on_gpu("calls", unet), performance.on_gpu("passes", unet)
    whole = calls["baseline", latent]["seconds"]
    seconds = dict.fromkeys(".tdb-", 0.0) | {".": whole, "t": whole / calls["ToDo 2", latent]["speed"]}
    ran = "".join(map(what_ran, own.to_dict("records")))
    if {*ran} & {*"db"}:  # computed steps measure, too
        whole = timed["unpatched", latent]["computed"]["seconds"]
        for letters, setting in ((".d", "interval 2"), ("tb", "ToDo 2, interval 2")):
            for letter, kind in zip(letters, ("computed", "predicted"), strict=True):
                seconds[letter] = timed[setting, latent][kind]["seconds"]
    elif variant.startswith("ToMe 0.5"):
        seconds["t"] = whole / calls["ToMe 0.5", latent]["speed"]
    return len(ran) * whole / sum(seconds[letter] for letter in ran)


def what_ran(row: dict[str, Any]) -> str:
    """A letter for each step of a row. Older rows tell the computed steps alone."""
    if isinstance(row.get("ran"), str):
        return row["ran"]
    computed = int(row["computed"])
    letters = "tb" if row["variant"].startswith(("ToDo", "ToMe")) else ".d"
    return letters[0] * computed + (letters[1] if "deep" in row["variant"] else "-") * (row["hires_steps"] - computed)


def beside_plain_steps(layout: str, side: int, variant: str, part: pd.DataFrame) -> tuple[float, int, pd.DataFrame]:
    """The speed of a variant, and the number and rows of the plain steps that take as much time, or a bit more.

    No rows where all steps are needed, or where that number was not measured.
    """
    own, steps = of(variant, part), int(part["hires_steps"].iloc[0])
    speed = speed_at_full_size(layout, side, variant, own)
    plain = {round(float(name.split()[-1]) * steps): name for name in set(part["variant"]) if "fewer" in name}
    count = min((each for each in plain if each >= math.ceil(steps / speed)), default=steps)
    return speed, count, of(plain.get(count, ""), part)


def shown_psnr(table: pd.DataFrame) -> str:
    """The PSNR of the mean MSE, and of the worst image."""
    return "equal" if not table["mse"].any() else f"{psnr(table):.1f} dB ({table['psnr'].min():.1f})"


def cells_of(aim: str, layout: str, side: int, name: str, part: pd.DataFrame) -> list[str]:
    """Speed and PSNR of a preset in a pass, those of the plain steps of its time, and how often it is closer."""
    variant = variant_of(aim, layout, side, name)
    if of(variant, part).empty:
        return ["", "", ""]
    speed, count, plain = beside_plain_steps(layout, side, variant, part)
    own = of(variant, part).set_index("prompt")["psnr"]
    cell = f"{speed:.2f}x, {shown_psnr(of(variant, part))}"
    if plain.empty:
        return [cell, "", ""]
    closer = sum(own[prompt] > other for prompt, other in zip(plain["prompt"], plain["psnr"], strict=True))
    return [cell, f"{count} steps: {shown_psnr(plain)}", f"{closer} of {len(plain)}"]


def called(layout: str, side: int, name: str, _: pd.DataFrame) -> str:
    """A hires pass."""
    size = f"{8 * side * LAYOUTS[layout]} px" if side in REAL else ""
    return ", ".join(filter(None, (layout, size, name)))


def of_aims() -> Table:
    """Each preset in the base's passes with as many tokens as the smaller real ones."""
    parts = {which[0]: which for which in passes(REAL[:1]) if not which[2]}
    found = [["preset", "it aims at", *(called(*which) for which in parts.values())]]
    for aim, least in AIMS.items():
        cells = (cells_of(aim, *which)[0] for which in parts.values())
        found.append([f"*{aim}*: {WISHES[aim]}", f"{seen(least)}: {least} dB", *cells])
    return found


def of_balanced() -> Table:
    """The hires pass of each kind of user: *Balanced* beside the plain steps of its time."""
    measured = {which[:3]: [called(*which), *cells_of("Balanced", *which)] for which in passes(REAL)}
    found = [["hires pass", "Balanced", "plain steps of its time", "closer in"]]
    return found + [measured[user] for user in USERS if user in measured]


def of_all_presets() -> Table:
    """Each hires pass beside plain steps that README lacks, or has no *Fast* of, and that no other table has."""
    found = [["hires pass", "Balanced", "plain steps", "closer in", "Fast", "Closest"]]
    beside = beside_programs(*EULER)
    for which in passes():
        row = [*cells_of("Balanced", *which), *(cells_of(aim, *which)[0] for aim in ("Fast", "Closest"))]
        if row[1] and which[:3] not in beside and (row[3] or which[:3] not in USERS):
            found.append([f"{called(*which)} ({which[-1]['prompt'].nunique()})", *row])
    return found


def of_base() -> Table:
    """Work and PSNR of each variant at the base, by layout and tokens."""
    return of_parts({which[:3]: which[-1] for which in passes() if not which[2]}, WAYS)


def of_others() -> Table:
    """Other programs at the base, by layout and tokens."""
    return of_parts(beside_programs(""), OTHERS)


def of_others_with_euler() -> Table:
    """Other programs with Euler and Euler a, by layout and tokens."""
    return of_parts(beside_programs(*EULER), WITH_EULER)


def beside_programs(*names: str) -> dict[Which, pd.DataFrame]:
    """The rows of the prompts with which other programs were run in the passes of these names."""
    ran = (("SDXL", 64), ("SDXL", 96), ("SD 1.5", 96))
    parts = {(*where, name): at(*where, **CHANGES[name]) for name in names for where in ran}
    shared = {which: of_shared_prompts(part, "Spectrum 5") for which, part in parts.items()}
    return {which: part for which, part in shared.items() if len(part)}


def of_parts(parts: dict[Which, pd.DataFrame], names: tuple[str, ...]) -> Table:
    """Work and PSNR of each variant or preset in each part of the rows."""
    found = [["work: PSNR", *itertools.starmap(heading, parts.items())]]
    for name in names:
        each = [rows_of(name, which, part) for which, part in parts.items()]
        cells = [f"{own['work'].mean():.2f}: {shown_psnr(own)}".replace(" dB", "") if len(own) else "" for own in each]
        found += [[shown(name), *cells]] if any(cells) else []
    return found


def rows_of(name: str, which: Which, part: pd.DataFrame) -> pd.DataFrame:
    """The rows of a variant, of what a preset does, or of the plain steps of *Balanced*'s time."""
    if name == PLAIN_STEPS:
        return beside_plain_steps(*which[:2], variant_of("Balanced", *which), part)[-1]
    return of(variant_of(name, *which) if name in AIMS else name, part)


def heading(which: Which, part: pd.DataFrame) -> str:
    """The layout, the tokens, the sampler if it is not the base's, and the number of prompts."""
    layout, side, name = which
    return ", ".join(filter(None, (layout, f"{side} x {side}", name.split(",")[0]))) + f" ({part['prompt'].nunique()})"


def shown(variant: str) -> str:
    """The name on the page, of ten steps."""
    if variant.startswith("fewer steps "):
        return f"{round(10 * float(variant.split()[-1]))} of 10 plain steps"
    return f"**{variant}**" if variant in ("Balanced", variant_of("Balanced", "SDXL", 64, "")) else variant


def of_paper() -> Table:
    """ToDo's own protocol, beside the paper's figures (arXiv 2402.13573); its baseline's magnitude is 4.846."""
    table = pd.read_parquet(RESULTS / "paper.parquet")
    found = [["variant", "keys left", "MSE", "high frequencies", "the paper's MSE", "its high-pass magnitude"]]
    for variant, (left, *told) in PAPER.items():
        mean = of(variant, table)[["mse", "high_frequency"]].mean()
        mse, energy = f"{mean['mse']:.1e}".replace("e-0", "e-"), f"{mean['high_frequency']:.2f}"
        found.append([variant, left, mse, energy, *told])
    return found


PAPER = {
    "ToDo 2, fixed": ("25 %", "6.25e-3", "1.01"),
    "ToDo 2": ("25 %", "", ""),
    "ToMe 0.75": ("25 %", "2.69e-2", "0.83"),
    "ToDo 3, fixed": ("11 %", "9.21e-3", "0.98"),
    "ToDo 3": ("11 %", "", ""),
    "ToMe 0.88": ("12 %", "2.67e-2", "0.83"),
}
TABLES = (of_all_presets, of_base, of_others, of_others_with_euler, of_paper)


def of_grids(layout: str, variant: str) -> dict[int, pd.DataFrame]:
    """The rows of the prompts with which all grids were run, at 2x and the base, by the tokens of a side."""
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


def images_of(evaluation: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The rows of an evaluation's first scene, and the image of each variant."""
    rows = pd.read_json(evaluation / "rows.jsonl", lines=True)
    rows = rows[rows["scene"] == rows["scene"].iloc[0]]
    return rows, {row.variant: pyplot().imread(evaluation / row.image)[..., :3] for row in rows.itertuples()}


def plot_opening(path: Path, evaluation: Path) -> None:
    """A pass as baseline, with *Balanced* and with plain steps of its time: whole, enlarged, and the difference."""
    layout, side = "SDXL", REAL[0]
    rows, images = images_of(evaluation)
    balanced, steps = variant_of("Balanced", layout, side, ""), int(rows["hires_steps"].iloc[0])
    speed, count, plain = beside_plain_steps(layout, side, balanced, rows)
    shown = {
        f"Baseline, {steps} steps": images["baseline"],
        f"Balanced: {speed:.2f}x, {psnr(of(balanced, rows)):.0f} dB": images[balanced],
        f"{count} plain steps: {steps / count:.2f}x, {psnr(plain):.0f} dB": images[plain["variant"].item()],
    }
    baseline, _, other = shown.values()
    crop = most_different(baseline, other, len(baseline) // 4)
    chart, grid = pyplot().subplots(3, 3, figsize=(9, 9.9), layout="constrained")
    for column, (title, image) in zip(grid.T, shown.items(), strict=True):
        column[0].set_title(title, fontsize=13)
        difference = 255 * abs(image - baseline).mean(2)
        for axes, part in zip(column, (image, image[crop], difference), strict=True):
            scale = axes.imshow(part, cmap="magma", vmin=0, vmax=MOST_SHOWN)
            axes.axis("off")
    chart.colorbar(scale, ax=grid[2], location="bottom", aspect=60, label="difference to the baseline, of 255 levels")
    saved(chart, path)


def plot_differences(path: Path, evaluation: Path) -> None:
    """The same crop of the baseline and of the images that just reach some differences."""
    rows, images = images_of(evaluation)
    near = rows.loc[[rows["psnr"][rows["psnr"] >= level].idxmin() for level in SHOWN]]
    baseline, worst = images["baseline"], images[near["variant"].iloc[-1]]
    crop = most_different(baseline, worst, len(baseline) // 3)
    chart, line = pyplot().subplots(1, 1 + len(near), figsize=(12, 2.75), layout="constrained")
    titles = ["baseline", *(f"{found:.0f} dB: {seen(found)}" for found in near["psnr"])]
    for axes, name, title in zip(line, ["baseline", *near["variant"]], titles, strict=True):
        axes.imshow(images[name][crop])
        axes.set_title(title, fontsize=11)
        axes.axis("off")
    saved(chart, path)


MOST_SHOWN = 25  # of 255 levels
SHOWN = (45, 40, 35, 30)  # dB


def everything() -> str:
    """Each variant at each request: prompts, work, PSNR of the mean MSE, that of the worst image, ST-LPIPS."""
    groups = ROWS.groupby([*REQUEST, "variant"])
    found = groups.agg(prompts=("prompt", "nunique"), work=("work", "mean"), worst=("psnr", "min"))
    found.insert(2, "psnr", groups.apply(psnr, include_groups=False))
    return found.assign(st_lpips=groups["st_lpips"].mean()).round(4).to_csv()


if __name__ == "__main__":
    match [Path(word) for word in sys.argv[1:]]:
        case [folder]:
            plot_tokens(folder / "tokens.png")
        case [picture, evaluation]:
            {"before-after": plot_opening, "differences": plot_differences}[picture.stem](picture, evaluation)
        case _:
            sys.stdout.write(everything())
