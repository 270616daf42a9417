"""Grids of images: the baseline on the left, the difference rising to the right, with crops and heat maps below."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from todo_core.image_difference import HEAT_GAIN, heat_map

from ...sampling.comparison import most_different
from ..prompts.prompt_sets import evenly_spaced
from ..variants import BASELINE
from . import aggregation
from .matplotlib_files import pyplot, saved

ROWS, COLUMNS = 3, 6
CROP = 4  # the side of a crop is the shorter side of the image divided by this

LoadImage = Callable[[pd.Series], np.ndarray]


def draw_grids(
    table: pd.DataFrame, summary: pd.DataFrame, load_image: LoadImage, folder: Path
) -> list[tuple[str, Path]]:
    """Grids of all variants of each scale, from the least to the most changed; (title, file)."""
    found = []
    reduced = summary[(summary["images"] > 0) & (summary["variant"] != BASELINE.name)]
    for scale, part in reduced.groupby("hires_scale"):
        names = list(part.sort_values("mse", kind="stable")["variant"])
        for n in range(0, len(names), COLUMNS):
            path = folder / f"grid-{scale:g}x-{n // COLUMNS + 1}.webp"  # photographs: a PNG is five times as large
            if draw_grid(table[table["hires_scale"] == scale], names[n : n + COLUMNS], load_image, path):
                found.append((f"hires {scale:g}x, {n // COLUMNS + 1}", path))
    return found


def draw_grid(table: pd.DataFrame, names: Sequence[str], load_image: LoadImage, path: Path) -> Path | None:
    """Draw up to three scenes, from the least to the most changed by the last of ``names``."""
    fine = aggregation.succeeded(table)
    scenes = [number for number, rows in fine.groupby("scene") if {BASELINE.name, *names} <= set(rows["variant"])]
    if not scenes:
        return None
    last = fine[(fine["variant"] == names[-1]) & fine["scene"].isin(scenes)].sort_values("mse", kind="stable")
    picked = evenly_spaced(list(last["scene"]), ROWS)
    columns = len(names) + 1
    size = (2.1 * columns, 6.5 * len(picked))
    chart, axes = pyplot().subplots(3 * len(picked), columns, figsize=size, squeeze=False, layout="constrained")
    for index, scene in enumerate(picked):
        rows = fine[fine["scene"] == scene].set_index("variant")
        _scene(axes[3 * index : 3 * index + 3], rows, names, load_image)
    return saved(chart, path)


def _scene(axes: Any, rows: pd.DataFrame, names: Sequence[str], load_image: LoadImage) -> None:
    baseline = load_image(rows.loc[BASELINE.name])
    images = {name: load_image(rows.loc[name]) for name in names}
    window = most_different(baseline, images[names[-1]], max(8, min(baseline.shape[:2]) // CROP))
    for column, name in zip(axes.T, (BASELINE.name, *names), strict=True):
        row, image = rows.loc[name], images.get(name, baseline)
        _show(column[0], image, _title(name, row))
        _frame(column[0], window)
        _show(column[1], image[window], "")
        _show(column[2], heat_map(baseline, image), "")
    request = rows.loc[BASELINE.name]
    prompt = textwrap.fill(request["prompt"], 28, max_lines=3, placeholder=" ...")
    sides = (f"{prompt}\nseed {request['seed']}", "framed part", f"difference x{HEAT_GAIN:g}")
    for row_axes, text in zip(axes[:, 0], sides, strict=True):
        row_axes.set_ylabel(text, fontsize=7)


def _title(name: str, row: pd.Series) -> str:
    if name == BASELINE.name:
        return name
    return f"{name}\n{row['speed']:.2f}x, " + ("equal" if row["mse"] == 0 else f"{row['psnr']:.0f} dB")


def _show(axes: Any, image: np.ndarray, title: str) -> None:
    axes.imshow(image, interpolation="nearest")
    axes.set_title(title, fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_linewidth(0.4)


def _frame(axes: Any, window: tuple[slice, slice]) -> None:
    from matplotlib.patches import Rectangle

    rows, columns = window
    corner, side = (columns.start - 0.5, rows.start - 0.5), rows.stop - rows.start
    for colour, width in (("black", 2.0), ("white", 0.8)):
        axes.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=colour, linewidth=width))
