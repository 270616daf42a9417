"""HTML of the page: the summary, the figures and the plan. All text from outside is escaped."""

from __future__ import annotations

import html
from dataclasses import astuple

from ..sampling.comparison import Comparison
from .results import PLAN_HEAD, measurements, plan_rows, unique_notes, why_not_reduced


def message(text: str) -> str:
    """A paragraph of one line."""
    return f'<p class="todo-message">{html.escape(text)}</p>'


def verdict(comparison: Comparison) -> str:
    """The result in one sentence."""
    if why := why_not_reduced(comparison.settings, comparison.reduced):
        return f"Nothing was reduced in the hires pass: {why}."
    difference = comparison.difference
    closeness = f"PSNR {difference.psnr:.1f} dB" if difference.mse else "the images are equal"
    return f"The reduced hires pass ran at {comparison.speedup:.2f} times the speed of the baseline; {closeness}."


def figure_list(comparison: Comparison) -> str:
    """The figures, each below its label."""
    cells = (
        f'<div><dt title="{html.escape(each.meaning)}">{each.name}</dt><dd>{each.text}</dd></div>'
        for each in measurements(comparison)
    )
    return f'<dl class="todo-numbers">{"".join(cells)}</dl>'


def plan_table(comparison: Comparison) -> str:
    """The table of the plan, followed by the notes."""
    passes = comparison.planned_passes
    rows = plan_rows(passes, comparison.request)
    notes = "".join(message(note) for note in unique_notes(passes))
    if not rows:
        return notes
    head = "".join(f"<th>{html.escape(title)}</th>" for title in PLAN_HEAD)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in astuple(row))}</tr>" for row in rows)
    return f'<div class="todo-plan"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{notes}'
