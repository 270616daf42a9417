"""Answers to the questions of the evaluation, one sentence each, computed from the summary."""

from __future__ import annotations

import pandas as pd

from . import aggregation


def list_findings(table: pd.DataFrame, summary: pd.DataFrame) -> list[str]:
    """One sentence per question that the run can answer."""
    prompts = [_prompts(table, name) for name in ("words", "nouns")]
    sentences = [_rises(summary), *prompts, _repeats(summary), _visible(summary), _fastest(summary)]
    return [sentence for sentence in sentences if sentence]


def _rises(summary: pd.DataFrame) -> str:
    rises = {}
    for (family, _), part in aggregation.series_by_family(summary).items():
        for scale, line in part.groupby("hires_scale"):
            if len(line) > 1:
                rises[f"{family} at {scale:g}x"] = (line["mse"].diff().dropna() > 0).all()
    exceptions = [name for name in rises if not rises[name]]
    text = f"Does the MSE rise with the amount of reduction? At every step in {len(rises) - len(exceptions)} of "
    text += f"{len(rises)} series" + (f"; not in {', '.join(exceptions)}." if exceptions else ".")
    return text if rises else ""


def _prompts(table: pd.DataFrame, name: str) -> str:
    found = aggregation.correlation(table, name)
    if found is None:
        return ""
    rho, p, prompts = found
    answer = "No clear relation" if p > 0.05 else "It falls with it" if rho < 0 else "It rises with it"
    value = "< 0.001" if p < 0.001 else f"{p:.2g}"
    return (
        f"Does the MSE depend on the number of {name} in the prompt? {answer}: Spearman's rho {rho:+.2f} over "
        f"{prompts} prompts, p {value}."
    )


def _repeats(summary: pd.DataFrame) -> str:
    question = "Does the same seed give the same image?"
    counts = summary.groupby("variant", sort=False)[["repeated", "tried_again"]].sum()
    if not counts["tried_again"].any():
        return f"{question} Every image was made once; --runs 2 makes it again."
    bad = counts[counts["repeated"] < counts["tried_again"]]
    names = [f"{row.Index} ({row.repeated} of {row.tried_again})" for row in bad.itertuples()]
    if not names:
        return f"{question} Yes, bit for bit, with every variant."
    return f"{question} Not with {', '.join(names)}. Bit for bit with all other variants."


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
