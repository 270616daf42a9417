"""HTML of the page: messages, captions, presets and the plan. All text from outside is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple

from ..sampling.comparison import Comparison
from . import results

LEGEND = "dB: PSNR to the baseline. Above 40 a difference is hard to see, below 30 easy."
ROOM = '<div class="todo-room"></div>'  # for the progress bar


def message(text: str) -> str:
    """A paragraph of one line."""
    return f'<p class="todo-message">{html.escape(text)}</p>'


def heading(comparisons: Sequence[Comparison], model: str) -> str:
    """Of which request the pictures are, and whether the speeds are uncertain."""
    lines = {
        results.title(comparisons[0].request, model): "todo-request",
        results.doubt(comparisons): "todo-doubt",
    }
    return "".join(f'<p class="{style}">{html.escape(line)}</p>' for line, style in lines.items() if line)


def caption(told: results.Caption) -> str:
    """What stands under a picture, a line each."""
    lines = "".join(f"<dd>{html.escape(line)}</dd>" for line in (told.time, told.speed, told.difference) if line)
    return f'<dl class="todo-caption"><dt>{html.escape(told.name)}</dt>{lines}</dl>'


def acted(told: Iterable[results.Caption]) -> str:
    """What acted in how many steps, a line for each picture."""
    lines = "".join(f"<p><b>{html.escape(each.name)}</b>: {html.escape(each.acted)}</p>" for each in told)
    return f'<div class="todo-acted">{lines}<p>{LEGEND}</p></div>'


def preset_table(names: Iterable[str], figures: Mapping[str, tuple[str, str]], shown: str) -> str:
    """Speed and PSNR that each preset had with this request; the one that is shown is bold."""
    rows = [
        tuple(f"<b>{cell}</b>" if name == shown else cell for cell in map(html.escape, (name, *cells)))
        for name in names
        for cells in [figures.get(name, ("not run", ""))]
    ]
    return _table(("preset", "speed", "PSNR"), rows)


def plan_table(comparison: Comparison) -> str:
    """The table of the plan, followed by the notes."""
    passes = comparison.planned_passes
    plan = results.plan_rows(passes, comparison.request)
    rows = [tuple(html.escape(str(cell)) for cell in astuple(row)) for row in plan]
    notes = "".join(message(note) for note in results.unique_notes(passes))
    return (_table(results.PLAN_HEAD, rows) if rows else "") + notes


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    titles = "".join(f"<th>{html.escape(title)}</th>" for title in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="todo-table"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'
