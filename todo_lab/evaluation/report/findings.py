"""The questions of the course evaluation, answered from the figures in plain sentences, whichever way they fall."""

from __future__ import annotations

import pandas as pd

from . import aggregation


def findings(table: pd.DataFrame, summary: pd.DataFrame) -> list[str]:
    """One sentence a question; none for a question that this run cannot answer."""
    asked = (
        _rises(summary),
        *_prompts(table),
        _repeats(summary),
        _visible(summary),
        _fastest(summary),
        _peers(summary),
    )
    return [sentence for sentence in asked if sentence]


def _rises(summary: pd.DataFrame) -> str:
    told = []
    for (family, _), part in aggregation.families(summary).items():
        for scale, line in part.groupby("hires_scale"):
            if len(line) > 1:
                steps = line["mse"].diff().dropna()
                told.append((f"{family} at {scale:g}x", bool((steps > 0).all())))
    if not told:
        return ""
    not_so = [name for name, rises in told if not rises]
    text = "Does the MSE rise with the amount of merging? "
    text += f"At every step in {len(told) - len(not_so)} of {len(told)} series"
    return text + (f"; not in {', '.join(not_so)}." if not_so else ".")


def _prompts(table: pd.DataFrame) -> list[str]:
    prompts = aggregation.relative_mse(table)
    sentences = []
    for name, question in (("words", "longer prompts"), ("nouns", "prompts with more nouns")):
        known = prompts.dropna(subset=[name])
        if len(known) < aggregation.LEAST_PROMPTS or known[name].nunique() < 2 or known["relative"].nunique() < 2:
            continue
        from scipy.stats import spearmanr

        found = spearmanr(known[name].astype(float), known["relative"])
        word = "no clear connection" if found.pvalue > 0.05 else "it falls" if found.statistic < 0 else "it rises"
        sentences.append(
            f"Is the MSE another for {question}? {word.capitalize()}: Spearman's rho {found.statistic:+.2f} over "
            f"{len(known)} prompts, p {chance(found.pvalue)}."
        )
    return sentences


def chance(p: float) -> str:
    """A p-value; tiny ones are not told apart."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def _repeats(summary: pd.DataFrame) -> str:
    tried = summary[summary["tried_again"] > 0]
    if tried.empty:
        return ""
    bad = tried[tried["repeated"] < tried["tried_again"]]
    names = ", ".join(dict.fromkeys(bad["variant"]))
    if bad.empty:
        return "Does a seed give the same image twice? Yes, to the byte, with everything that was tried."
    return f"Does a seed give the same image twice? Not with {names}; to the byte with everything else."


def _visible(summary: pd.DataFrame) -> str:
    seen = summary[(summary["visible"] > 0.5) & summary["amount"].notna()]
    if seen.empty:
        return (
            f"Where do images visibly change? Nowhere do more than half of them fall under {aggregation.VISIBLE:g} dB."
        )
    least = seen.sort_values("amount").groupby(["family", "hires_scale"], sort=False).first().reset_index()
    told = [f"{row.variant} at {row.hires_scale:g}x" for row in least.itertuples()]
    return f"Where do images visibly change (more than half under {aggregation.VISIBLE:g} dB)? From {', '.join(told)}."


def _fastest(summary: pd.DataFrame) -> str:
    told = []
    for scale, part in summary[summary["mse"] > 0].groupby("hires_scale"):
        best = aggregation.frontier(part)
        told.append(f"at {scale:g}x " + ", ".join(f"{row.variant} ({row.speed:.2f}x)" for row in best.itertuples()))
    return f"Which are beaten by no other in both speed and MSE? {'; '.join(told)}." if told else ""


def _peers(summary: pd.DataFrame) -> str:
    """Of every other implementation, the nearest of our settings that is as fast or faster."""
    told = []
    for scale, part in summary[summary["mse"] > 0].groupby("hires_scale"):
        ours = part[part["peer"] == ""]
        for peer in part[part["peer"] != ""].itertuples():
            better = ours[(ours["speed"] >= peer.speed) & (ours["mse"] <= peer.mse)].sort_values("mse")
            which = f"{better.iloc[0]['variant']} ({better.iloc[0]['speed']:.2f}x)" if len(better) else "none"
            told.append(f"{peer.variant} at {scale:g}x ({peer.speed:.2f}x): {which}")
    return (
        f"Which setting of ours is as fast as each other implementation, and nearer? {'; '.join(told)}." if told else ""
    )
