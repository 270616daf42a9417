"""Write results.parquet, report.md and its plots from a folder of results."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from ..running.row_store import RUN_FILE, RowStore, write_atomically
from ..variants import BASELINE
from . import aggregation, charts
from .document import markdown_table, picture, section
from .image_grids import draw_grids

MISSING = "n/a"
COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "images": ("images", lambda v: f"{v:.0f}"),
    "speed": ("speed, hires pass", lambda v: f"{v:.2f}x"),
    "hires_seconds": ("hires pass, s", lambda v: f"{v:.3g}"),
    "mse": ("MSE", lambda v: f"{v:.2g}"),
    "psnr": ("PSNR, dB", lambda v: f"{v:.1f}"),
    "ssim": ("SSIM", lambda v: f"{v:.4f}"),
    "high_frequency": ("high-freq. energy", lambda v: f"{v:.3f}"),
    "st_lpips": ("ST-LPIPS", lambda v: f"{v:.5f}"),
    "peak_mib": ("peak, MiB", lambda v: f"{v:.0f}"),
}
GRIDS = (
    "The baseline is on the left; the mean difference rises to the right. The top scene is the one that the "
    "rightmost variant changes least, the bottom scene the one that it changes most. Below each image are the "
    "framed part, where the rightmost image differs most, and the difference. Black means equal."
)


def write_report(folder: Path) -> str:
    """Write the files and the plots into ``folder``; returns the report. Raises ValueError without rows."""
    store = RowStore(folder)
    if not store.rows:
        raise ValueError(f"{folder} has no results")
    table = aggregation.to_table(store.latest())
    table.to_parquet(folder / "results.parquet", index=False, compression="zstd", compression_level=19)
    about = json.loads((folder / RUN_FILE).read_text("utf-8"))
    text = "\n\n".join(_blocks(store, table, about)) + "\n"
    write_atomically(folder / "report.md", text)
    return text


def _blocks(store: RowStore, everything: pd.DataFrame, about: dict[str, Any]) -> list[str]:
    table, others = aggregation.split_requests(everything)
    summary = aggregation.summarize(table)
    folder, plots = store.folder, store.folder / "plots"
    grids = draw_grids(table, summary, store.load_image, plots)
    frontier = charts.plot_frontier(summary, plots / "frontier.png")
    return [
        "# Token reduction: time and image difference",
        *_what_ran(everything, about),
        *section("Repeatability", repeatability(summary)),
        *section("Plot", picture(frontier, "Speed against difference: better is to the right and down", folder)),
        *section("Table", *_table(summary, about)),
        *section("Other requests", *_requests(others)),
        *section("Images", GRIDS, *(picture(path, title, folder) for title, path in grids)),
        *section("Failed", *_failures(table)),
    ]


def _what_ran(table: pd.DataFrame, about: dict[str, Any]) -> list[str]:
    first, made = table.iloc[0], len(aggregation.succeeded(table))
    scenes, prompts, seeds = (table[name].nunique() for name in ("scene", "prompt", "seed"))
    sizes = {f"{r.width} x {r.height} to {r.hires_width} x {r.hires_height}" for r in table.itertuples()}
    passes = (
        f"{first['sampler']}, schedule {first['schedule']}, {first['steps']} steps, {first['hires_steps']} hires steps"
    )
    ran = (
        f"{made} images of {scenes} scenes; prompts: {prompts}, seeds: {seeds}; {', '.join(sorted(sizes))} "
        f"pixels; {passes}, denoising {first['denoising']:g}, guidance {first['guidance']:g}. "
        "Every image is compared with the baseline: the image without reduction, from the same first pass."
    )
    names = ("model", "device", "dtype", "machine", "versions", "command")
    facts = "\n".join(f"- {name}: {about[name]}" for name in names if about.get(name))
    rows = about["rows"]
    lacking = f"The run is not complete: it has {made} of {rows} images." if rows != made else ""
    return [block for block in (ran, facts, lacking) if block]


def _table(summary: pd.DataFrame, about: dict[str, Any]) -> list[str]:
    known = [name for name in COLUMNS if summary[name].notna().any()]
    blocks = [
        "Speeds are medians over the images, differences are means. Seconds are the baseline's median divided by the "
        "speed. Peak memory is what torch allocated on CUDA. In brackets: bootstrap 95 % intervals over the prompts."
    ]
    for scale, part in summary.groupby("hires_scale"):
        head = [f"hires {scale:g}x", *(COLUMNS[name][0] for name in known)]
        rows = [[row["variant"], *(_cell(name, row) for name in known)] for _, row in part.iterrows()]
        blocks.append(markdown_table([head, *rows]))
    absent = [COLUMNS[name][0] for name in COLUMNS if name not in known]
    reasons = "".join(f" {name}: {reason}." for name, reason in about.get("missing", {}).items())
    return [*blocks, f"Not available: {', '.join(absent)}.{reasons}"] if absent else blocks


def _cell(name: str, row: pd.Series) -> str:
    """A figure, and its interval where it has one: "1.48x (1.47-1.50)" without the repeated unit."""
    value, low, high = (row.get(f"{name}{end}", math.nan) for end in ("", "_low", "_high"))
    text = COLUMNS[name][1]
    if math.isnan(value):
        return MISSING
    if math.isnan(low) or row["variant"] == BASELINE.name:
        return text(value)
    return f"{text(value)} ({text(low).rstrip('x')}\u2013{text(high)})"


def _requests(requests: dict[str, pd.DataFrame]) -> list[str]:
    """The other requests of a grid; all else is of the first one."""
    if not requests:
        return []
    explained = "PSNR in dB of the mean MSE where one thing is changed. All other sections are of the first request."
    found = aggregation.psnr_by_request(requests)
    psnr = COLUMNS["psnr"][1]
    rows = [[str(name), *(MISSING if v != v else psnr(v) for v in row)] for name, row in found.T.items()]
    return [explained, markdown_table([["variant", *found.columns], *rows])]


def _failures(table: pd.DataFrame) -> list[str]:
    failed = table[table["error"].notna()]
    counted = failed.groupby(["variant", "error"], sort=False).size()
    rows = [[variant, str(count), error] for (variant, error), count in counted.items()]
    return [markdown_table([["variant", "images", "error"], *rows])] if rows else []


def repeatability(summary: pd.DataFrame) -> str:
    """Whether the same seed gives the same image."""
    question = "Does the same seed give the same image?"
    counts = summary.groupby("variant", sort=False)[["repeated", "tried_again"]].sum()
    if not counts["tried_again"].any():
        return f"{question} Every image was made once; --runs 2 makes it again."
    bad = counts[counts["repeated"] < counts["tried_again"]]
    names = [f"{row.Index} ({row.repeated} of {row.tried_again})" for row in bad.itertuples()]
    if not names:
        return f"{question} Yes, bit for bit, with every variant."
    return f"{question} Not with {', '.join(names)}. Bit for bit with all other variants."
