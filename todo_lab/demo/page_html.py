"""HTML of the page: messages, captions and presets. All text from outside is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from todo_core.settings import AIMS, seen

from ..sampling.comparison import Comparison
from . import results

_HARD, _EASY = AIMS["Balanced"], AIMS["Fast"]
LEGEND = f"dB: PSNR to the baseline. From {_HARD} on a difference is {seen(_HARD)}, below {_EASY} {seen(_EASY - 1)}."
ROOM = '<div class="todo-room"></div>'  # for the progress bar


def message(text: str, style: str = "todo-message") -> str:
    """A paragraph of one line, if there is one."""
    return f'<p class="{style}">{html.escape(text)}</p>' if text else ""


def heading(comparisons: Sequence[Comparison], model: str) -> str:
    """The request of the pictures, and whether the speeds are uncertain."""
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
