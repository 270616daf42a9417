"""HTML of the page: messages, captions, presets and the plan. All text from outside is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from ..sampling.comparison import Comparison
from . import results

LEGEND = "dB: PSNR to the baseline. Above 40 a difference is hard to see, below 30 easy."
ROOM = '<div class="todo-room"></div>'  # for the progress bar


def message(text: str, style: str = "todo-message") -> str:
    """A paragraph of one line, if there is one."""
    return f'<p class="{style}">{html.escape(text)}</p>' if text else ""


def heading(comparisons: Sequence[Comparison], model: str) -> str:
    """Of which request the pictures are, and whether the speeds are uncertain."""
    title = results.title(comparisons[0].request, model)
    return message(title, "todo-request") + message(results.doubt(comparisons), "todo-doubt")


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
    rows = [(name, *figures.get(name, ("not run", ""))) for name in names]
    return _table(("preset", "speed", "PSNR"), rows, bold=shown)


def plan_table(comparison: Comparison) -> str:
    """The table of the plan, followed by the notes."""
    rows = results.plan_rows(comparison)
    notes = "".join(map(message, results.unique_notes(comparison)))
    return (_table(results.PlanRow._fields, rows) if rows else "") + notes


def _table(head: Iterable[str], rows: Iterable[Sequence[object]], bold: str = "") -> str:
    """The row that begins with ``bold`` stands out."""
    body = ""
    for row in rows:
        cells = [html.escape(str(cell)) for cell in row]
        body += f"<tr>{''.join(f'<td><b>{c}</b></td>' if row[0] == bold else f'<td>{c}</td>' for c in cells)}</tr>"
    titles = "".join(f"<th>{title}</th>" for title in head)
    return f'<div class="todo-table"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'
