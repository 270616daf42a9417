"""From a folder of rows and images: results.parquet, report.md and report.html."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..metrics.pretrained_metrics import FID_LEAST, fid, fid_at_hand
from ..running.row_store import ABOUT, Journal, load_png, write_whole
from ..running.variants import UNREDUCED
from . import aggregation, charts
from .document import Document
from .findings import chance, findings
from .image_grids import grids

log = logging.getLogger(__name__)
MISSING = "n/a"
COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "images": ("images", lambda v: f"{v:.0f}"),
    "speed": ("speed, hires pass", lambda v: f"{v:.2f}x"),
    "step_speed": ("speed, median step", lambda v: f"{v:.2f}x"),
    "step_seconds": ("hires step, ms", lambda v: f"{1000 * v:.1f}"),
    "hires_seconds": ("hires pass, s", lambda v: f"{v:.3g}"),
    "whole_seconds": ("whole, s", lambda v: f"{v:.3g}"),
    "whole_speed": ("speed, whole", lambda v: f"{v:.2f}x"),
    "mse": ("MSE", lambda v: f"{v:.2g}"),
    "psnr": ("PSNR, dB", lambda v: f"{v:.1f}"),
    "ssim": ("SSIM", lambda v: f"{v:.4f}"),
    "ms_ssim": ("MS-SSIM", lambda v: f"{v:.4f}"),
    "high_frequency": ("high-freq. energy", lambda v: f"{v:.3f}"),
    "visible": ("under 30 dB", lambda v: f"{v:.0%}"),
    "lpips": ("LPIPS", lambda v: f"{v:.3f}"),
    "clip_score": ("CLIP score", lambda v: f"{v:.2f}"),
    "fid": ("FID", lambda v: f"{v:.2f}"),
    "peak_mib": ("peak, MiB", lambda v: f"{v:.0f}"),
}


def write(folder: Path) -> Document:
    """Write the three files into ``folder``, its plots under plots/. Raises ValueError where there are no rows."""
    journal = Journal(folder)
    table = aggregation.frame(journal.latest())
    if table.empty:
        raise ValueError(f"{folder} has no results")
    table.to_parquet(folder / "results.parquet", index=False)
    about = json.loads((folder / ABOUT).read_text("utf-8")) if (folder / ABOUT).exists() else {}
    document = _document(folder, table, about)
    write_whole(folder / "report.md", document.markdown())
    write_whole(folder / "report.html", document.html())
    return document


def _document(folder: Path, table: pd.DataFrame, about: dict[str, Any]) -> Document:
    summary = aggregation.summary(table)
    summary["fid"] = _fids(folder, table, summary)
    document = Document("Token reduction: time and image difference")
    _what_ran(document, table, about)
    document.heading("Findings")
    document.items(findings(table, summary) or ["This run is too small for any."])
    _speed_and_difference(document, folder, summary)
    _figures(document, summary, about)
    _prompts(document, folder, table)
    _repeats_and_memory(document, folder, table, summary)
    document.heading("Images")
    document.text(
        "The unreduced image leftmost, merging rising to the right; from top to bottom the scene that the rightmost "
        "setting changes least, a middle one, and the one it changes most. Under each image the framed part, where "
        "the rightmost image differs most, and the difference, black where the images are equal."
    )
    for title, path in grids(table, summary, lambda row: load_png(folder / row["image"]), folder / "plots"):
        document.figure(path, title, folder)
    _failures(document, table)
    return document


def _what_ran(document: Document, table: pd.DataFrame, about: dict[str, Any]) -> None:
    first = table.iloc[0]
    scenes, prompts, seeds = table["scene"].nunique(), table["prompt"].nunique(), table["seed"].nunique()
    sizes = ", ".join(
        sorted({f"{r.width} x {r.height} to {r.hires_width} x {r.hires_height}" for r in table.itertuples()})
    )
    passes = f"{first['sampler']}, {first['steps']} steps and {first['hires_steps']} in the hires pass"
    document.text(
        f"{len(table)} images of {scenes} scenes: prompts: {prompts}, seeds: {seeds}; {sizes} pixels; {passes}, "
        f"denoising {first['denoising']:g}, guidance {first['guidance']:g}. "
        "Everything is compared with the unreduced image of the same first pass."
    )
    told = [f"{name}: {about[name]}" for name in ("model", "device", "dtype", "machine", "versions") if about.get(name)]
    document.items([*told, f"command: {about['command']}"] if about.get("command") else told)
    wanted = about.get("rows", len(table))
    if wanted != len(table):
        document.text(f"The run is not complete: {len(table)} of {wanted} images are there.")


def _speed_and_difference(document: Document, folder: Path, summary: pd.DataFrame) -> None:
    document.heading("Speed and difference")
    path = folder / "plots"
    document.figure(
        charts.frontier(summary, path / "frontier.png"),
        "Speed against difference: further right and down is better",
        folder,
    )
    document.figure(
        charts.by_amount(summary, path / "amount.png"), "Speed and difference by factor and by ratio", folder
    )
    document.figure(
        charts.seconds(summary, path / "seconds.png"),
        "Time of the hires pass as it was measured, in different minutes; speeds are relative to the same minute",
        folder,
    )


def _figures(document: Document, summary: pd.DataFrame, about: dict[str, Any]) -> None:
    document.heading("Figures")
    known = [name for name in COLUMNS if summary[name].notna().any()]
    for scale, part in summary.groupby("hires_scale"):
        document.text(f"Hires {scale:g}x; times and speeds are medians, differences means over the images.")
        rows = [[row["variant"], *(_cell(name, row[name]) for name in known)] for _, row in part.iterrows()]
        document.table(["variant", *(COLUMNS[name][0] for name in known)], rows)
    gone = [COLUMNS[name][0] for name in COLUMNS if name not in known]
    if gone:
        why = [f"{name}: {reason}" for name, reason in (about.get("missing") or {}).items()]
        fid_why = [] if fid_at_hand() else [f"FID: its weights are not at hand (and it needs {FID_LEAST} images)"]
        document.text(f"Not available here: {', '.join(gone)}. {'; '.join([*why, *fid_why])}.")


def _prompts(document: Document, folder: Path, table: pd.DataFrame) -> None:
    document.heading("Prompts")
    chart = charts.by_prompt(table, folder / "plots/prompts.png")
    document.figure(chart, "MSE by length and nouns of the prompt; 1 is what is usual for the variant", folder)
    found = aggregation.correlations(table)
    if found.empty:
        document.text(f"Too few prompts for a correlation: it takes {aggregation.LEAST_PROMPTS}.")
        return
    kinds = [kind for kind in ("words", "nouns") if kind in set(found["of"])]
    head = ["variant", *(text for kind in kinds for text in (f"rho, {kind}", f"p, {kind}"))]
    rows = [[str(name), *_correlated(part, kinds)] for name, part in found.groupby("variant", sort=False)]
    document.text("Spearman's rank correlation of the MSE with the words and the nouns of the prompt, seeds averaged.")
    document.table(head, rows)


def _repeats_and_memory(document: Document, folder: Path, table: pd.DataFrame, summary: pd.DataFrame) -> None:
    document.heading("Same seed, same image")
    _repeats(document, summary)
    document.heading("Memory")
    kinds = ", ".join(dict.fromkeys(aggregation.good(table)["peak_kind"]))
    chart = charts.memory(summary, kinds, folder / "plots/memory.png")
    document.figure(chart, f"Peak memory of a pass ({kinds})", folder)
    if chart is None:
        document.text("Not available here.")


def _repeats(document: Document, summary: pd.DataFrame) -> None:
    if not summary["tried_again"].any():
        document.text("Every image was made once: --runs 2 tells.")
        return
    document.text("How many images came out equal to the byte when they were made again in the same process.")
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


def _fids(folder: Path, table: pd.DataFrame, summary: pd.DataFrame) -> list[float | None]:
    def stack(rows: pd.DataFrame) -> list[np.ndarray]:
        return [load_png(folder / name) for name in rows.sort_values("scene")["image"]]

    if not fid_at_hand():
        return [None] * len(summary)
    fine = aggregation.good(table)
    whole = {scale: stack(part[part["variant"] == UNREDUCED.name]) for scale, part in fine.groupby("hires_scale")}
    return [
        fid(
            whole[row.hires_scale],
            stack(fine[(fine["variant"] == row.variant) & (fine["hires_scale"] == row.hires_scale)]),
        )
        for row in summary.itertuples()
    ]


def _cell(name: str, value: Any) -> str:
    return MISSING if value is None or value != value else COLUMNS[name][1](value)


def _correlated(part: pd.DataFrame, kinds: list[str]) -> list[str]:
    """rho and p of each kind."""
    known = {row.of: (f"{row.rho:+.2f}", chance(row.p)) for row in part.itertuples()}
    return [text for kind in kinds for text in known.get(kind, (MISSING, MISSING))]
