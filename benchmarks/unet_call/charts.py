"""The plots: speed by setting, and time by image size. They need no colours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from todo_lab.evaluation.report.matplotlib_files import pyplot, saved
from unet_call.measure import quartiles
from unet_call.models import PIXELS
from unet_call.variants import BASELINE, LOWER_BOUNDS, NAMES, OURS

Row = dict[str, Any]
BARS = {"ours": {"facecolor": "0.25"}, "bound": {"facecolor": "white"}, "peer": {"facecolor": "0.75", "hatch": "////"}}
LABELS = {"ours": "ours", "peer": "other implementations"}
LABELS["bound"] = "lower bound of the time: the same number of keys, at no cost"
OURS_LINE, PEER_LINE = {"color": "0", "linewidth": 1.6}, {"color": "0.5", "linewidth": 1.6}
LINES: dict[str, dict[str, Any]] = {
    BASELINE: {"color": "0", "linewidth": 2.4, "marker": "s"},
    "tomesd 0.5": {**PEER_LINE, "marker": "X", "linestyle": "--"},
    "ToMe 0.5": {**OURS_LINE, "marker": "P", "linestyle": "--"},
    "BiGain 2": {**PEER_LINE, "marker": "^", "linestyle": "-"},
    "HyperTile 256": {**PEER_LINE, "marker": "v", "linestyle": ":"},
    # a large mark around a small one: both stay visible where the lines coincide
    "token-downsampling 2": {
        **PEER_LINE,
        "marker": "o",
        "markersize": 11,
        "markerfacecolor": "none",
        "linestyle": "-.",
    },
    "ToDo 2": {**OURS_LINE, "marker": "o"},
    "ToDo 4": {**OURS_LINE, "marker": "o", "markerfacecolor": "white"},
    "lower bound of ToDo 4": {"color": "0.75", "linewidth": 5, "zorder": 0, "solid_capstyle": "round"},
}


def plots(rows: Sequence[Row], layout: str, folder: Path) -> None:
    """``unet.png`` and ``growth.png``: the calls of a layout."""
    rows = [row for row in rows if (row["part"], row["layout"]) == ("calls", layout) and "turns" in row]
    title = "{layout} layout, batch {batch}, {dtype}, torch {torch}, {device}".format(**rows[0])
    rows = [row for row in rows if all(row[key] == rows[0][key] for key in ("batch", "dtype", "torch", "device"))]
    folder.mkdir(parents=True, exist_ok=True)
    bars(rows, folder / "unet.png", title)
    growth(rows, folder / "growth.png", title)


def _kind(name: str) -> str:
    return "ours" if name in OURS else "bound" if name in LOWER_BOUNDS else "peer"


def bars(rows: Sequence[Row], path: Path, title: str) -> None:
    """Speed by setting, a panel for each latent; the thin lines are quartiles."""
    plt = pyplot()
    sides = sorted({row["side"] for row in rows})
    names = sorted({row["setting"] for row in rows if row["setting"] != BASELINE}, key=NAMES.index)
    size = (max(7, 2.4 + 2.3 * len(sides)), 0.27 * len(names) + 1.5)
    chart, grid = plt.subplots(1, len(sides), figsize=size, squeeze=False, sharey=True, layout="constrained")
    for side, axes in zip(sides, grid[0], strict=True):
        here = {row["setting"]: row for row in rows if row["side"] == side}
        for y, name in enumerate(names):
            if name in here:
                _bar(axes, y, here[name], rows)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_title(f"latent {side}, image {side * PIXELS} px", fontsize=9)
        axes.margins(x=0.24, y=0.01)
        axes.set_xlim(left=0)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0][0].set_yticks(range(len(names)), names)
    grid[0][0].invert_yaxis()
    chart.suptitle(f"Speed of one UNet call, relative to the unpatched UNet\n{title}", fontsize=9)
    kinds = [kind for kind in BARS if any(_kind(name) == kind for name in names)]
    patches = [plt.Rectangle((0, 0), 1, 1, edgecolor="black", linewidth=0.6, **BARS[kind]) for kind in kinds]
    chart.legend(patches, [LABELS[kind] for kind in kinds], loc="outside lower center", ncols=3, fontsize=8)
    saved(chart, path)


def _bar(axes: Any, y: int, row: Row, rows: Sequence[Row]) -> None:
    (baseline,) = (r for r in rows if (r["setting"], r["side"]) == (BASELINE, row["side"]))
    lower, upper = quartiles([b / s for b, s in zip(baseline["turns"], row["turns"], strict=True)])
    axes.barh(y, row["speed"], 0.72, edgecolor="black", linewidth=0.6, **BARS[_kind(row["setting"])])
    axes.plot([lower, upper], [y, y], color="black" if _kind(row["setting"]) != "ours" else "0.6", linewidth=1)
    end = max(upper, row["speed"])
    axes.annotate(f"{row['speed']:.2f}", (end, y), (3, 0), textcoords="offset points", va="center", fontsize=7.5)


def growth(rows: Sequence[Row], path: Path, title: str) -> None:
    """Seconds by side of the image, and seconds for each pixel: a flat line grows as fast as the pixels."""
    plt = pyplot()
    from matplotlib.ticker import LogLocator

    sides = sorted({row["side"] for row in rows})
    chart, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for name, look in LINES.items():
        line = {row["side"]: row["seconds"] for row in rows if row["setting"] == name}
        look = {"markersize": 6, **look}
        if line:
            left.plot(list(line), list(line.values()), label=name, **look)
            costs = [1e6 * seconds / (side**2 * rows[0]["batch"]) for side, seconds in line.items()]
            right.plot(list(line), costs, label=name, **look)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(sides, [f"{side}\n{side * PIXELS} px" for side in sides])
        axes.set_xlabel("side of the latent, and of the image")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9", zorder=-1)
    left.set_yscale("log")
    left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.yaxis.set_major_formatter("{x:g}")
    for axes in (left, right):
        axes.minorticks_off()
    left.set_title("seconds of one UNet call (logarithmic)", fontsize=9)
    right.set_ylim(bottom=0)
    what = "microseconds of one UNet call for each pixel of the latent"
    right.set_title(f"{what}:\na flat line: time grows with the pixels", fontsize=9)
    right.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=8, handlelength=4)
    chart.suptitle(title, fontsize=9)
    saved(chart, path)
