"""Answers to the questions of the evaluation, one sentence each, computed from the summary."""

from __future__ import annotations

import pandas as pd

from . import aggregation
from .bootstrap import MIN_PROMPTS


def list_findings(table: pd.DataFrame, summary: pd.DataFrame) -> list[str]:
    """One sentence per question that the run can answer."""
    sentences = (
        _rises(summary),
        *_prompts(table),
        _repeats(summary),
        _visible(summary),
        _fastest(summary),
    )
    return [sentence for sentence in sentences if sentence]


def _rises(summary: pd.DataFrame) -> str:
    series = []
    for (family, _), part in aggregation.series_by_family(summary).items():
        for scale, line in part.groupby("hires_scale"):
            if len(line) > 1:
                steps = line["mse"].diff().dropna()
                series.append((f"{family} at {scale:g}x", bool((steps > 0).all())))
    if not series:
        return ""
    exceptions = [name for name, rises in series if not rises]
    text = "Does the MSE rise with the amount of reduction? "
    text += f"At every step in {len(series) - len(exceptions)} of {len(series)} series"
    return text + (f"; not in {', '.join(exceptions)}." if exceptions else ".")


def _prompts(table: pd.DataFrame) -> list[str]:
    prompts = aggregation.relative_mse(table)
    sentences = []
    for name, question in (
        ("words", "the number of words in the prompt"),
        ("nouns", "the number of nouns in the prompt"),
    ):
        known = prompts.dropna(subset=[name])
        if len(known) < MIN_PROMPTS or known[name].nunique() < 2 or known["relative"].nunique() < 2:
            continue
        from scipy.stats import spearmanr

        found = spearmanr(known[name].astype(float), known["relative"])
        direction = "It falls" if found.statistic < 0 else "It rises"
        answer = "No clear relation" if found.pvalue > 0.05 else f"{direction} with it"
        sentences.append(
            f"Does the MSE depend on {question}? {answer}: Spearman's rho {found.statistic:+.2f} over "
            f"{len(known)} prompts, p {format_p_value(found.pvalue)}."
        )
    return sentences


def format_p_value(p: float) -> str:
    """A p-value, or "< 0.001"."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def _repeats(summary: pd.DataFrame) -> str:
    tried = summary[summary["tried_again"] > 0]
    if tried.empty:
        return ""
    bad = tried[tried["repeated"] < tried["tried_again"]]
    names = ", ".join(dict.fromkeys(bad["variant"]))
    if bad.empty:
        return "Does the same seed give the same image? Yes, bit for bit, with every variant."
    return f"Does the same seed give the same image? Not with {names}. Bit for bit with all other variants."


def _visible(summary: pd.DataFrame) -> str:
    seen = summary[summary["visible"] > 0.5]
    names = [f"{row.variant} at {row.hires_scale:g}x ({row.visible:.0%})" for row in seen.itertuples()]
    question = f"Which variants visibly change more than half of the images (below {aggregation.VISIBLE:g} dB)?"
    return f"{question} {', '.join(names) or 'None'}."


def _fastest(summary: pd.DataFrame) -> str:
    fronts = []
    for scale, part in summary[summary["mse"] > 0].groupby("hires_scale"):
        best = aggregation.pareto_front(part)
        fronts.append(f"at {scale:g}x " + ", ".join(f"{row.variant} ({row.speed:.2f}x)" for row in best.itertuples()))
    return f"Which variants does no other beat in both speed and MSE? {'; '.join(fronts)}." if fronts else ""
