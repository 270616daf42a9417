"""The page's text: HTML of the figures and of the plan. Everything from outside is escaped."""

from __future__ import annotations

import html
from dataclasses import astuple

from ..sampling.comparison import Pair
from .results import PLAN_HEAD, notes_of, numbers_of, plan_rows, why_untouched


def message(text: str) -> str:
    """One line of its own."""
    return f'<p class="todo-message">{html.escape(text)}</p>'


def verdict(pair: Pair) -> str:
    """What came of it, in a sentence."""
    if why := why_untouched(pair.settings, pair.reduced):
        return f"Nothing was reduced in the hires pass: {why}."
    alike = "the pictures are equal" if not pair.difference.mse else f"PSNR {pair.difference.psnr:.1f} dB"
    return f"The reduced hires pass ran at {pair.ratio:.2f} times the speed of the whole one; {alike}."


def numbers(pair: Pair) -> str:
    """The figures, each under its name."""
    cells = (
        f'<div><dt title="{html.escape(number.meaning)}">{number.name}</dt><dd>{number.text}</dd></div>'
        for number in numbers_of(pair)
    )
    return f'<dl class="todo-numbers">{"".join(cells)}</dl>'


def plan(pair: Pair) -> str:
    """The plan's table, and what was noticed on the way."""
    rows = plan_rows(pair.planned, pair.request)
    notes = "".join(message(note) for note in notes_of(pair.planned))
    if not rows:
        return notes
    head = "".join(f"<th>{html.escape(title)}</th>" for title in PLAN_HEAD)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in astuple(row))}</tr>" for row in rows)
    return f'<div class="todo-plan"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{notes}'
