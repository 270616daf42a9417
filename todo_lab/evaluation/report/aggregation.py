"""The rows as a table, and its statistics: means by variant with their intervals, the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd

from ..running.measurement import Row
from ..variants import BASELINE

DRAWS, SEED = 2000, 0  # of the bootstrap
MIN_PROMPTS = 5  # with fewer the interval is too narrow
DIFFERENCES = ("mse", "ssim", "high_frequency", "st_lpips")
BOUNDED: dict[str, Callable[..., Any]] = {"speed": np.nanmedian}
BOUNDED |= dict.fromkeys(("mse", "ssim", "high_frequency"), np.nanmean)
NAMES = ("sampler", "schedule")
REQUEST = (*NAMES, "steps", "guidance", "hires_steps", "denoising")  # what a grid may change, but for the size
NUMBERS = ("hires_seconds", "baseline_step_seconds", "peak_mib", *DIFFERENCES, "psnr", "multiplications")


def to_table(rows: list[Row]) -> pd.DataFrame:
    """One row per image. ``speed`` is that of the hires pass to the scene's baseline."""
    table = pd.DataFrame(rows)
    for name in NUMBERS:  # an empty column has the dtype object
        table[name] = pd.to_numeric(table[name]) if name in table else math.nan
    baseline = table[table["variant"] == BASELINE.name].set_index("scene")
    # the machine may have been faster when the baseline image was made: scale its time by the baseline steps of each
    before = baseline[~baseline.index.duplicated()].reindex(table["scene"]).set_index(table.index)
    slowdown = table["baseline_step_seconds"] / before["baseline_step_seconds"]
    untimed = before["multiplications"] / table["multiplications"]
    table["speed"] = (slowdown * before["hires_seconds"] / table["hires_seconds"]).fillna(untimed)
    return table.sort_values("scene", kind="stable", ignore_index=True)  # stable: the variants keep their order


def split_requests(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """The rows of the first scene's request at any size, and those of each other request, named by its difference."""
    first = table.iloc[0]
    parts = table.groupby(list(REQUEST), sort=False, dropna=False)
    named = {", ".join(_changes(first, part.iloc[0])): part for _, part in parts}
    return named.pop(""), named


def _changes(first: pd.Series, other: pd.Series) -> list[str]:
    changed = [name for name in REQUEST if other[name] != first[name]]
    return [str(other[n]) if n in NAMES else f"{n.replace('_', ' ')} {other[n]:g}" for n in changed]


def psnr_by_request(requests: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """PSNR in dB of the mean MSE: one row per variant, one column per request."""
    columns = {}
    for name, part in requests.items():
        reduced = succeeded(part[part["variant"] != BASELINE.name])
        columns[name] = reduced.groupby("variant", sort=False)["mse"].mean().map(_decibels)
    return pd.DataFrame(columns)


def succeeded(table: pd.DataFrame) -> pd.DataFrame:
    """The rows without an error."""
    return table[table["error"].isna()]


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """One row per scale and variant, in the order of the run: medians of times, means of differences.

    Seconds are the baseline's median divided by the variant's speed, so that both compare the same minutes.
    ``*_low`` and ``*_high`` are bootstrap 95 % intervals over the prompts.
    """
    order = list(dict.fromkeys(table["variant"]))
    rows = []
    for scale, of_scale in table.groupby("hires_scale"):
        baseline = succeeded(of_scale[of_scale["variant"] == BASELINE.name])
        seconds = baseline["hires_seconds"].dropna().median()
        parts = ((variant, of_scale[of_scale["variant"] == variant]) for variant in order)
        rows += [_summarize(part, scale, variant, seconds) for variant, part in parts if len(part)]
    return pd.DataFrame(rows)


def _summarize(part: pd.DataFrame, scale: Any, variant: str, seconds: float) -> Row:
    fine = succeeded(part)
    row: Row = {"hires_scale": scale, "variant": variant}
    row |= {"images": len(fine), "failed": len(part) - len(fine)}
    for name in ("speed", "peak_mib"):
        row[name] = fine[name].dropna().median()
    row["hires_seconds"] = seconds / row["speed"]
    for name in DIFFERENCES:
        row[name] = fine[name].mean()
    for name, statistic in BOUNDED.items():
        by_prompt = [group.to_numpy(float) for _, group in fine.dropna(subset=[name]).groupby("prompt")[name]]
        row[f"{name}_low"], row[f"{name}_high"] = interval(by_prompt, statistic)
    row["psnr"], row["psnr_low"], row["psnr_high"] = (_decibels(row[n]) for n in ("mse", "mse_high", "mse_low"))
    repeats = fine["repeats"].dropna() if "repeats" in fine else fine["error"].dropna()
    return row | {"repeated": int(repeats.astype(bool).sum()), "tried_again": len(repeats)}


def _decibels(mse: float) -> float:
    return -10 * math.log10(mse) if mse > 0 else math.nan


def pareto_front(summary: pd.DataFrame) -> pd.DataFrame:
    """The variants that no other variant beats in both speed and MSE, fastest first."""
    points = summary.dropna(subset=["speed", "mse"]).sort_values(["speed", "mse"], ascending=[False, True])
    best = points["mse"].cummin()
    return points[(points["mse"] <= best) & ~points["mse"].duplicated()]


def interval(by_prompt: Sequence[np.ndarray], statistic: Callable[..., Any]) -> tuple[float, float]:
    """The 95 % interval of ``statistic(figures, axis)`` by the percentile bootstrap (Efron 1979).

    ``by_prompt`` has the figures of each prompt's images; ``statistic`` skips NaN, which fills the shorter rows. Rows
    are drawn as a whole, because images of one prompt are alike. Both ends are NaN with fewer than 5 prompts.
    """
    count = len(by_prompt)
    if count < MIN_PROMPTS:
        return np.nan, np.nan
    figures = np.array(list(zip_longest(*by_prompt, fillvalue=math.nan))).T
    drawn = figures[np.random.default_rng(SEED).integers(count, size=(DRAWS, count))]
    low, high = np.percentile(statistic(drawn.reshape(DRAWS, -1), axis=1), [2.5, 97.5])
    return float(low), float(high)
