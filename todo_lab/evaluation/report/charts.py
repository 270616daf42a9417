"""The chart of the report. Variants differ by marker and grey, so that a print without colours is readable."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from . import aggregation
from .matplotlib_files import pyplot, saved

MARKERS = "osD^vP*X<>hp"
GREYS = ("0.0", "0.35", "0.55")
SLOWEST = 0.85  # slower variants would leave the others no room; they are named above the chart


def plot_frontier(summary: pd.DataFrame, path: Path) -> Path | None:
    """Plot speed against MSE, one point per variant and one panel per scale. A dashed line is the Pareto front."""
    from matplotlib.ticker import LogLocator

    known = summary[(summary["mse"] > 0) & summary["speed"].notna()]
    points = known[known["speed"] >= SLOWEST]
    scales = sorted(points["hires_scale"].unique())
    if not scales:
        return None
    chart, grid = pyplot().subplots(len(scales), 1, figsize=(11, 7 * len(scales)), squeeze=False, layout="constrained")
    numbers = {name: number for number, name in enumerate(points["variant"].unique())}
    for scale, axes in zip(scales, grid.flat, strict=True):
        part = points[points["hires_scale"] == scale]
        best = aggregation.pareto_front(part)[::-1]
        speeds = [part["speed"].min(), *best["speed"], best["speed"].iloc[-1]]  # to the edges, for a single point, too
        axes.step(speeds, [best["mse"].iloc[0], *best["mse"], part["mse"].max()], "k--", where="pre", linewidth=0.8)
        for row in part.itertuples():
            n = numbers[row.variant]
            marker, grey = MARKERS[n % len(MARKERS)], GREYS[(n + n // len(MARKERS)) % len(GREYS)]  # 36 are unlike
            axes.plot(row.speed, row.mse, marker, label=row.variant, color=grey, markersize=6)
        slow = known[(known["hires_scale"] == scale) & (known["speed"] < SLOWEST)]
        missing = "".join(f"; not shown: {row.variant} ({row.speed:.2f}x)" for row in slow.itertuples())
        title = f"hires {scale:g}x; no variant is better in both than those on the dashed line{missing}"
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("hires speed, relative to the baseline", fontsize=9)
        axes.set_ylabel("image MSE to the baseline (values 0 to 1)", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")  # 0.5 in place of a power of ten
        axes.yaxis.set_minor_formatter("")
        axes.axvline(1, color="black", linewidth=0.6)
    return saved(chart, path)
