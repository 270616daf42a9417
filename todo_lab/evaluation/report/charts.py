"""The charts of the report. Families differ by marker, dash and grey, so that a print without colours is readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from . import aggregation
from .matplotlib_files import pyplot, saved

MARKERS = "osD^vP*X<>hp"
DASHES = ("-", "--", ":", "-.")
GREYS = ("0.0", "0.35", "0.55")
AXES = {
    "speed": "hires speed, relative to the baseline",
    "mse": "image MSE to the baseline (values 0 to 1)",
}
AMOUNT = {"factor": "factor: the token grid shrinks by it per side", "ratio": "ratio: fraction of tokens removed"}
SLOWEST = 0.85  # slower variants would leave the others no room; they are named above the chart


def plot_amounts(summary: pd.DataFrame, path: Path) -> Path | None:
    """Plot speed and MSE by factor and by ratio, one line per family; None if no family has two amounts."""
    families = aggregation.series_by_family(summary)
    kinds = [kind for kind in AMOUNT if any(key[1] == kind for key in families)]
    scales = sorted(summary["hires_scale"].unique())
    if not kinds:
        return None
    plt = pyplot()
    rows = [(kind, scale) for kind in kinds for scale in scales]
    chart, grid = plt.subplots(len(rows), 2, figsize=(11, 3.4 * len(rows)), squeeze=False, layout="constrained")
    styles = _styles([family for family, _ in families])
    for (kind, scale), row in zip(rows, grid, strict=True):
        lines = {family: part for (family, of_kind), part in families.items() if of_kind == kind}
        for figure, axes in zip(("speed", "mse"), row, strict=True):
            for family, part in lines.items():
                line = part[part["hires_scale"] == scale]
                if len(line):
                    axes.plot(line["amount"], line[figure], label=family, **styles[family])
            _label_axes(axes, AMOUNT[kind], AXES[figure], f"hires {scale:g}x")
            axes.set_xticks(sorted({amount for part in lines.values() for amount in part["amount"]}))
        row[0].axhline(1, color="black", linewidth=0.6)
        _logarithmic(row[1])
        row[1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return saved(chart, path)


def plot_frontier(summary: pd.DataFrame, path: Path) -> Path | None:
    """Plot speed against MSE, one point per variant and one panel per scale. A dashed line is the Pareto front."""
    known = summary[(summary["mse"] > 0) & summary["speed"].notna()]
    points = known[known["speed"] >= SLOWEST]
    scales = sorted(points["hires_scale"].unique())
    if not scales:
        return None
    chart, grid = pyplot().subplots(len(scales), 1, figsize=(11, 7 * len(scales)), squeeze=False, layout="constrained")
    styles = _styles(list(points["variant"]))
    for scale, axes in zip(scales, grid.flat, strict=True):
        part = points[points["hires_scale"] == scale]
        best = aggregation.pareto_front(part)
        axes.step(best["speed"][::-1], best["mse"][::-1], "k--", where="pre", linewidth=0.8)
        for row in part.itertuples():
            axes.plot(row.speed, row.mse, label=row.variant, **{**styles[row.variant], "linestyle": "none"})
        slow = known[(known["hires_scale"] == scale) & (known["speed"] < SLOWEST)]
        missing = "".join(f"; not shown: {row.variant} ({row.speed:.2f}x)" for row in slow.itertuples())
        title = f"hires {scale:g}x; no variant is better in both than those on the dashed line{missing}"
        _label_axes(axes, AXES["speed"], AXES["mse"], title)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        _logarithmic(axes)
        axes.axvline(1, color="black", linewidth=0.6)
    return saved(chart, path)


def plot_prompts(table: pd.DataFrame, path: Path) -> Path | None:
    """Plot MSE by words and by nouns of the prompt, relative to each variant's median so that all weigh the same."""
    prompts = aggregation.relative_mse(table)
    kinds = [name for name in ("words", "nouns") if prompts[name].notna().any()]
    if len(prompts) < 2 or not kinds:
        return None
    plt = pyplot()
    chart, grid = plt.subplots(1, len(kinds), figsize=(5.6 * len(kinds), 4.2), squeeze=False, layout="constrained")
    for name, axes in zip(kinds, grid.flat, strict=True):
        axes.plot(prompts[name], prompts["relative"], "o", color="0.55", markersize=5, label="one prompt")
        _label_axes(axes, f"{name} of the prompt", "MSE relative to the variant's median", "")
        _logarithmic(axes)
        axes.xaxis.set_major_locator(plt.MaxNLocator(integer=True))
        axes.axhline(1, color="black", linewidth=0.6)
        axes.legend(fontsize=8)
    return saved(chart, path)


def _styles(names: list[str]) -> dict[str, dict[str, Any]]:
    """Marker, dash and grey of each name: 36 are unlike."""
    styles = {}
    for n, name in enumerate(dict.fromkeys(names)):
        grey = GREYS[(n + n // len(MARKERS)) % len(GREYS)]
        look = {"marker": MARKERS[n % len(MARKERS)], "linestyle": DASHES[n % len(DASHES)], "color": grey}
        styles[name] = {**look, "markersize": 6}
    return styles


def _logarithmic(axes: Any) -> None:
    """A logarithmic axis with plain numbers, such as 0.5 in place of a power of ten."""
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")


def _label_axes(axes: Any, x: str, y: str, title: str) -> None:
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.set_title(title, fontsize=10, loc="left")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
