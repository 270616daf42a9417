"""Grids of images: the unreduced one leftmost, merging rising to the right; below each a crop and a heat map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from todo_core.image_difference import HEAT_GAIN, heat_map

from ..running.variants import UNREDUCED
from . import aggregation
from .matplotlib_files import pyplot, saved

ROWS, COLUMNS = 3, 6
CROP = 4  # a crop's side is that part of the image's shorter one

Picture = Callable[[pd.Series], np.ndarray]


def grids(table: pd.DataFrame, summary: pd.DataFrame, picture: Picture, folder: Path) -> list[tuple[str, Path]]:
    """One grid a series of rising amount, and those for the rest; (title, file)."""
    found, shown = [], set()
    for scale in sorted(summary["hires_scale"].unique()):
        part = summary[(summary["hires_scale"] == scale) & (summary["images"] > 0)]
        series = {family: line for (family, _), line in aggregation.families(part).items()}
        shown = {variant for line in series.values() for variant in line["variant"]}
        rest = part[~part["variant"].isin(shown | {UNREDUCED.name})].sort_values("mse", kind="stable")
        series |= {f"others {n // COLUMNS + 1}": rest[n : n + COLUMNS] for n in range(0, len(rest), COLUMNS)}
        for family, line in series.items():
            title, names = f"{family}, hires {scale:g}x", list(line["variant"])[:COLUMNS]
            path = folder / f"grid-{_file_name(title)}.webp"  # photographs: a PNG is five times as large
            if grid(table[table["hires_scale"] == scale], names, picture, path):
                found.append((title, path))
    return found


def grid(table: pd.DataFrame, names: Sequence[str], picture: Picture, path: Path) -> Path | None:
    """Up to three scenes, from the least changed to the most by the last of ``names``."""
    fine = aggregation.good(table)
    scenes = [number for number, rows in fine.groupby("scene") if {UNREDUCED.name, *names} <= set(rows["variant"])]
    if not scenes:
        return None
    last = fine[(fine["variant"] == names[-1]) & fine["scene"].isin(scenes)].sort_values("mse", kind="stable")
    picked = [last["scene"].iloc[i] for i in _spread(len(last), ROWS)]
    plt = pyplot()
    columns = len(names) + 1
    size = (2.1 * columns, 6.5 * len(picked))
    chart, axes = plt.subplots(3 * len(picked), columns, figsize=size, squeeze=False, layout="constrained")
    for place, scene in enumerate(picked):
        rows = fine[fine["scene"] == scene].set_index("variant")
        _scene(axes[3 * place : 3 * place + 3], rows, names, picture)
    return saved(chart, path)


def _scene(axes: Any, rows: pd.DataFrame, names: Sequence[str], picture: Picture) -> None:
    whole = picture(rows.loc[UNREDUCED.name])
    images = {name: picture(rows.loc[name]) for name in names}
    window = _where_most(whole, images[names[-1]])
    for column, name in zip(axes.T, (UNREDUCED.name, *names), strict=True):
        row, image = rows.loc[name], images.get(name, whole)
        _show(column[0], image, _title(name, row))
        _frame(column[0], window)
        _show(column[1], image[window], "")
        _show(column[2], heat_map(whole, image), "")
    request = rows.loc[UNREDUCED.name]
    _side(axes[0][0], f"{_shortened(request['prompt'])}\nseed {request['seed']}")
    _side(axes[1][0], "the framed part")
    _side(axes[2][0], f"difference x{HEAT_GAIN:g}")


def _title(name: str, row: pd.Series) -> str:
    if name == UNREDUCED.name:
        return name
    return f"{name}\n{row['speed']:.2f}x, {_decibels(row)}"


def _decibels(row: pd.Series) -> str:
    return "equal" if row["mse"] == 0 else f"{row['psnr']:.0f} dB"


def _where_most(whole: np.ndarray, image: np.ndarray) -> tuple[slice, slice]:
    """The window in which the two differ most, by sums over a summed-area table (Crow 1984)."""
    apart = np.square(whole.astype(np.float64) - image).sum(-1)
    side = max(8, min(apart.shape) // CROP)
    area = np.pad(apart, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    sums = area[side:, side:] - area[:-side, side:] - area[side:, :-side] + area[:-side, :-side]
    top, left = np.unravel_index(int(sums.argmax()), sums.shape)
    return slice(int(top), int(top) + side), slice(int(left), int(left) + side)


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


def _side(axes: Any, text: str) -> None:
    axes.set_ylabel(text, fontsize=7)


def _shortened(text: str, most: int = 44) -> str:
    import textwrap

    lines = textwrap.wrap(text, most // 2 + 6)
    return "\n".join(lines[:3]) + (" ..." if len(lines) > 3 else "")


def _spread(count: int, most: int) -> list[int]:
    """The first, the last and what lies evenly between."""
    most = min(count, most)
    return [round(i * (count - 1) / max(1, most - 1)) for i in range(most)]


def _file_name(title: str) -> str:
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in title).split())
