"""The rows as a table, and what is read off it: means by variant, the frontier, correlations, plain findings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from ..running.measurement import Row
from ..running.variants import UNREDUCED

VISIBLE = 30.0  # dB of PSNR; an image under it differs from the unreduced one for anybody who looks at both
LEAST_PROMPTS = 5  # for a correlation
TIMES = ("speed", "step_seconds", "unreduced_step_seconds", "hires_seconds", "whole_seconds", "peak_mib")
DIFFERENCES = ("mse", "ssim", "ms_ssim", "high_frequency", "lpips", "clip_score")
NUMBERS = (*TIMES, *DIFFERENCES, "psnr", "amount", "nouns")


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """One row an image, with the unreduced times, memory and CLIP score of its scene beside its own.

    ``speed`` is that of the hires pass, in which some steps may be whole, ``step_speed`` that of its median step.
    """
    table = pd.DataFrame(list(rows))
    if table.empty:
        return table
    for name in NUMBERS:  # a column that is empty everywhere holds objects
        table[name] = pd.to_numeric(table[name]) if name in table else math.nan
    beside = {"hires_seconds", "whole_seconds", "peak_mib", "clip_score"}
    whole = table[table["variant"] == UNREDUCED.name].set_index("scene")
    for name in sorted(beside):
        table[f"unreduced_{name}"] = table["scene"].map(_first(whole, name))
    # the unreduced image may have been made in a faster minute, or on another day: its time at this row's pace
    pace = table["unreduced_step_seconds"] / table["scene"].map(_first(whole, "unreduced_step_seconds"))
    table["step_speed"] = table["speed"]
    table["speed"] = (pace * table["unreduced_hires_seconds"] / table["hires_seconds"]).fillna(table["step_speed"])
    table["whole_speed"] = pace * table["unreduced_whole_seconds"] / table["whole_seconds"]
    return table.sort_values("scene", kind="stable", ignore_index=True)  # the variants keep their order


def _first(whole: pd.DataFrame, name: str) -> pd.Series:
    """The value of each scene's unreduced row."""
    return whole[name][~whole.index.duplicated()]


def good(table: pd.DataFrame) -> pd.DataFrame:
    """Without the failed rows."""
    return table[table["error"].isna()]


def reduced(table: pd.DataFrame) -> pd.DataFrame:
    """The good rows of everything but the unreduced image."""
    table = good(table)
    return table[table["variant"] != UNREDUCED.name]


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each scale and variant, in the order of the run: medians of times, means of differences."""
    order = list(dict.fromkeys(table["variant"]))
    rows = [
        _summed(part, scale, variant)
        for scale, of_scale in table.groupby("hires_scale")
        for variant in order
        if len(part := of_scale[of_scale["variant"] == variant])
    ]
    return pd.DataFrame(rows)


def _summed(part: pd.DataFrame, scale: Any, variant: str) -> Row:
    fine = good(part)
    first = part.iloc[0]
    row: Row = {"hires_scale": scale, "variant": variant, "family": first["family"], "amount": first["amount"]}
    row |= {"scale": first["scale"], "peer": first["peer"], "images": len(fine), "failed": len(part) - len(fine)}
    for name in (*TIMES, "step_speed", "whole_speed"):
        row[name] = fine[name].dropna().median()
    for name in DIFFERENCES:
        row[name] = fine[name].dropna().mean()
    row["psnr"] = -10 * math.log10(row["mse"]) if row["mse"] and row["mse"] > 0 else math.nan
    row["visible"] = float((fine["psnr"] < VISIBLE).mean()) if len(fine) else math.nan
    tried = fine["repeats"].dropna() if "repeats" in fine else fine["error"].dropna()
    return row | {"repeated": int(tried.astype(bool).sum()), "tried_again": len(tried)}


def frontier(summary: pd.DataFrame) -> pd.DataFrame:
    """The variants that no other beats in both speed and MSE, fastest first."""
    points = summary.dropna(subset=["speed", "mse"]).sort_values(["speed", "mse"], ascending=[False, True])
    best = points["mse"].cummin()
    return points[(points["mse"] <= best) & ~points["mse"].duplicated()]


def correlations(table: pd.DataFrame) -> pd.DataFrame:
    """Spearman's rank correlation of words and nouns a prompt with MSE, by variant; seeds and scales averaged first.

    ``p`` is the chance of a correlation as strong where there is none, not corrected for how many are looked at.
    """
    from scipy.stats import spearmanr

    rows = []
    for variant, part in reduced(table).groupby("variant", sort=False):
        prompts = part.groupby("prompt").agg({"mse": "mean", "words": "first", "nouns": "first"})
        for name in ("words", "nouns"):
            known = prompts.dropna(subset=[name, "mse"])
            if len(known) >= LEAST_PROMPTS and known[name].nunique() > 1 and known["mse"].nunique() > 1:
                found = spearmanr(known[name].astype(float), known["mse"])
                told = {"variant": variant, "of": name, "prompts": len(known)}
                rows.append({**told, "rho": float(found.statistic), "p": float(found.pvalue)})
    return pd.DataFrame(rows, columns=["variant", "of", "prompts", "rho", "p"])


def relative_mse(table: pd.DataFrame) -> pd.DataFrame:
    """One row a prompt: its MSE over each variant's median, the geometric mean over the variants, and its lengths."""
    part = reduced(table)
    part = part[part["mse"] > 0].copy()
    part["relative"] = part["mse"] / part.groupby(["variant", "hires_scale"])["mse"].transform("median")
    part["log"] = part["relative"].map(math.log)
    prompts = part.groupby("prompt").agg(log=("log", "mean"), words=("words", "first"), nouns=("nouns", "first"))
    return prompts.assign(relative=prompts["log"].map(math.exp))


def families(summary: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """By (family, factor or ratio): the variants of rising amount, where there are at least two of one scale."""
    known = summary.dropna(subset=["amount", "speed", "mse"])
    groups = known.groupby(["family", "scale"], sort=False)
    once = ["hires_scale", "amount"]  # a preset may say the same as a point of the grid
    rising = ((key, part.sort_values("amount", kind="stable").drop_duplicates(once)) for key, part in groups)
    found = {(str(family), str(scale)): part for (family, scale), part in rising}
    return {key: part for key, part in found.items() if part["amount"].nunique() > 1}
