"""Write results.parquet, report.md and report.html of a folder of results."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from ..running.png import load_png
from ..running.row_store import RUN_FILE, RowStore, write_atomically
from ..variants import BASELINE
from . import aggregation, charts
from .bootstrap import MIN_PROMPTS
from .document import Document
from .findings import format_p_value, list_findings
from .image_grids import draw_grids

log = logging.getLogger(__name__)
MISSING = "n/a"
COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "images": ("images", lambda v: f"{v:.0f}"),
    "speed": ("speed, hires pass", lambda v: f"{v:.2f}x"),
    "step_seconds": ("hires step, ms", lambda v: f"{1000 * v:.1f}"),
    "hires_seconds": ("hires pass, s", lambda v: f"{v:.3g}"),
    "total_seconds": ("total, s", lambda v: f"{v:.3g}"),
    "total_speed": ("speed, total", lambda v: f"{v:.2f}x"),
    "mse": ("MSE", lambda v: f"{v:.2g}"),
    "psnr": ("PSNR, dB", lambda v: f"{v:.1f}"),
    "ssim": ("SSIM", lambda v: f"{v:.4f}"),
    "high_frequency": ("high-freq. energy", lambda v: f"{v:.3f}"),
    "visible": ("below 30 dB", lambda v: f"{v:.0%}"),
    "st_lpips": ("ST-LPIPS", lambda v: f"{v:.5f}"),
    "peak_mib": ("peak, MiB", lambda v: f"{v:.0f}"),
}


def write_report(folder: Path) -> Document:
    """Write the three files and the plots into ``folder``. Raises ValueError without rows."""
    store = RowStore(folder)
    table = aggregation.to_table(store.latest())
    if table.empty:
        raise ValueError(f"{folder} has no results")
    table.to_parquet(folder / "results.parquet", index=False, compression="zstd", compression_level=19)
    about = json.loads((folder / RUN_FILE).read_text("utf-8")) if (folder / RUN_FILE).exists() else {}
    document = _document(folder, table, about)
    write_atomically(folder / "report.md", document.markdown())
    write_atomically(folder / "report.html", document.html())
    return document


def _document(folder: Path, table: pd.DataFrame, about: dict[str, Any]) -> Document:
    everything, (table, others) = table, aggregation.split_requests(table)
    summary = aggregation.summarize(table)
    document = Document("Token reduction: time and image difference")
    _what_ran(document, everything, about)
    document.heading("Findings")
    document.items(list_findings(table, summary) or ["This run is too small for findings."])
    _speed_and_difference(document, folder, summary)
    _peers(document, aggregation.matches(table, summary))
    _table(document, summary, about)
    _requests(document, others)
    _prompts(document, folder, table)
    _repeats_and_memory(document, folder, table, summary)
    document.heading("Images")
    document.text(
        "The baseline is on the left; the amount of reduction rises to the right. The top scene is the one that the "
        "rightmost variant changes least, the bottom scene the one that it changes most. Below each image are the "
        "framed part, where the rightmost image differs most, and the difference. Black means equal."
    )
    for title, path in draw_grids(table, summary, lambda row: load_png(folder / row["image"]), folder / "plots"):
        document.image(path, title, folder)
    _failures(document, table)
    return document


def _what_ran(document: Document, table: pd.DataFrame, about: dict[str, Any]) -> None:
    first = table.iloc[0]
    scenes, prompts, seeds = table["scene"].nunique(), table["prompt"].nunique(), table["seed"].nunique()
    sizes = ", ".join(
        sorted({f"{r.width} x {r.height} to {r.hires_width} x {r.hires_height}" for r in table.itertuples()})
    )
    passes = f"{first['sampler']}, {first['steps']} steps, {first['hires_steps']} hires steps"
    document.text(
        f"{len(table)} images of {scenes} scenes; prompts: {prompts}, seeds: {seeds}; {sizes} pixels; {passes}, "
        f"denoising {first['denoising']:g}, guidance {first['guidance']:g}. "
        "Every image is compared with the baseline: the image without reduction, from the same first pass."
    )
    facts = [
        f"{name}: {about[name]}" for name in ("model", "device", "dtype", "machine", "versions") if about.get(name)
    ]
    document.items([*facts, f"command: {about['command']}"] if about.get("command") else facts)
    expected = about.get("rows", len(table))
    if expected != len(table):
        document.text(f"The run is not complete: it has {len(table)} of {expected} images.")


def _speed_and_difference(document: Document, folder: Path, summary: pd.DataFrame) -> None:
    document.heading("Speed and difference")
    path = folder / "plots"
    document.image(
        charts.plot_frontier(summary, path / "frontier.png"),
        "Speed against difference: better is to the right and down",
        folder,
    )
    document.image(
        charts.plot_amounts(summary, path / "amount.png"), "Speed and difference by factor and by ratio", folder
    )
    document.image(
        charts.plot_seconds(summary, path / "seconds.png"),
        "Time of the hires pass: the median time of the baseline divided by the speed",
        folder,
    )


def _peers(document: Document, matches: pd.DataFrame) -> None:
    if matches.empty:
        return
    document.heading("Other implementations")
    document.text(
        "Each beside the setting of ours with the lowest MSE that is at least as close, and as fast to "
        f"{1 - aggregation.AS_FAST:.0%}. The last column is its MSE divided by ours. Where the whole bootstrap 95 % "
        "interval over the prompts is above 1, ours is clearly closer."
    )
    for scale, part in matches.groupby("hires_scale"):
        head = [f"hires {scale:g}x", "speed", "PSNR, dB", "ours", "speed", "PSNR, dB", "MSE, theirs to ours"]
        document.table(head, [_match_cells(row) for _, row in part.iterrows()])


def _match_cells(row: pd.Series) -> list[str]:
    speed, psnr = COLUMNS["speed"][1], COLUMNS["psnr"][1]
    cells = [row["variant"], speed(row["speed"]), psnr(row["psnr"])]
    if not row["ours"]:
        return [*cells, "none", "", "", ""]
    ratio = _with_interval(two_digits, row["ratio"], row["ratio_low"], row["ratio_high"])
    return [*cells, row["ours"], speed(row["ours_speed"]), psnr(row["ours_psnr"]), ratio]


def two_digits(value: float) -> str:
    """Two significant digits without an exponent: 0.99, 2.5, 13, 120."""
    return f"{float(f'{value:.2g}'):g}"


def _table(document: Document, summary: pd.DataFrame, about: dict[str, Any]) -> None:
    document.heading("Table")
    known = [name for name in COLUMNS if summary[name].notna().any()]
    for scale, part in summary.groupby("hires_scale"):
        document.text(
            f"Hires {scale:g}x. Speeds are medians over the images, differences are means. Seconds are the baseline's "
            "median divided by the speed. In brackets: bootstrap 95 % intervals over the prompts."
        )
        rows = [[row["variant"], *(_cell(name, row) for name in known)] for _, row in part.iterrows()]
        document.table(["variant", *(COLUMNS[name][0] for name in known)], rows)
    absent = [COLUMNS[name][0] for name in COLUMNS if name not in known]
    if absent:
        reasons = [f"{name}: {reason}" for name, reason in (about.get("missing") or {}).items()]
        document.text(f"Not available: {', '.join(absent)}. {'; '.join(reasons)}.")


def _requests(document: Document, requests: dict[str, pd.DataFrame]) -> None:
    """The other requests of a grid; all else is of the first one."""
    if not requests:
        return
    document.heading("Other requests")
    document.text("PSNR in dB of the mean MSE where one thing is changed. All other sections are of the first request.")
    found = aggregation.psnr_by_request(requests)
    psnr = COLUMNS["psnr"][1]
    rows = [
        [str(name), *(MISSING if v != v else psnr(v) for v in row)]
        for name, row in zip(found.index, found.to_numpy(), strict=True)
    ]
    document.table(["variant", *found.columns], rows)


def _prompts(document: Document, folder: Path, table: pd.DataFrame) -> None:
    document.heading("Prompts")
    chart = charts.plot_prompts(table, folder / "plots/prompts.png")
    document.image(chart, "MSE by words and nouns of the prompt, relative to the median of the variant", folder)
    found = aggregation.correlations(table)
    if found.empty:
        document.text(f"Too few prompts for a correlation, which needs {MIN_PROMPTS}.")
        return
    kinds = [kind for kind in ("words", "nouns") if kind in set(found["of"])]
    head = ["variant", *(text for kind in kinds for text in (f"rho, {kind}", f"p, {kind}"))]
    rows = [[str(name), *_correlation_cells(part, kinds)] for name, part in found.groupby("variant", sort=False)]
    document.text("Spearman's rank correlation of the MSE with the words and nouns of the prompt. Seeds are averaged.")
    document.table(head, rows)


def _repeats_and_memory(document: Document, folder: Path, table: pd.DataFrame, summary: pd.DataFrame) -> None:
    document.heading("Repeatability")
    _repeats(document, summary)
    document.heading("Memory")
    kinds = ", ".join(dict.fromkeys(aggregation.succeeded(table)["peak_kind"]))
    chart = charts.plot_memory(summary, kinds, folder / "plots/memory.png")
    document.image(chart, f"Peak memory of a pass ({kinds})", folder)
    if chart is None:
        document.text("Not available.")


def _repeats(document: Document, summary: pd.DataFrame) -> None:
    if not summary["tried_again"].any():
        document.text("Every image was made once. Use --runs 2 to test repeatability.")
        return
    document.text("Number of images that were equal, bit for bit, when the same process made them again.")
    parts = summary.groupby("variant", sort=False)[["repeated", "tried_again"]].sum()
    rows = [
        [str(name), f"{r.repeated} of {r.tried_again}"] for name, r in zip(parts.index, parts.itertuples(), strict=True)
    ]
    document.table(["variant", "equal"], rows)


def _failures(document: Document, table: pd.DataFrame) -> None:
    failed = table[table["error"].notna()]
    if failed.empty:
        return
    document.heading("Failed")
    counted = failed.groupby(["variant", "error"], sort=False).size().reset_index(name="rows")
    document.table(["variant", "images", "error"], [[r.variant, str(r.rows), r.error] for r in counted.itertuples()])


def _cell(name: str, row: pd.Series) -> str:
    """A figure, and its interval where it has one: "1.48x (1.47x-1.50x)" without the repeated unit."""
    value, low, high = row[name], row.get(f"{name}_low"), row.get(f"{name}_high")
    if value is None or value != value:
        return MISSING
    text = COLUMNS[name][1]
    return text(value) if row["variant"] == BASELINE.name else _with_interval(text, value, low, high)


def _with_interval(text: Callable[[float], str], value: float, low: float | None, high: float | None) -> str:
    """A figure, and its interval if that is known."""
    if low is None or high is None or low != low:
        return text(value)
    return f"{text(value)} ({text(low).rstrip('x%')}\u2013{text(high)})"


def _correlation_cells(part: pd.DataFrame, kinds: list[str]) -> list[str]:
    """rho and p of each kind of count."""
    known = {row.of: (f"{row.rho:+.2f}", format_p_value(row.p)) for row in part.itertuples()}
    return [text for kind in kinds for text in known.get(kind, (MISSING, MISSING))]
