"""The lines under the image. Scripts such as SD upscale run many batches for one image: equal lines are told once."""

from __future__ import annotations

from typing import Any

from ...reason import Because, merged

_TOLD = "todo_told"  # attribute of a processing object; each cell of an X/Y/Z plot has an object of its own


def tell(p: Any, line: Because, cell: str = "") -> None:
    """Add a line, or count it if a batch of ``p`` has told it before; then it has the range of its numbers.

    ``cell`` is that of an X/Y/Z plot.
    """
    told: dict[Because, tuple[Because, int]] = vars(p).setdefault(_TOLD, {})
    before, count = told.get(line, (line, 0))
    if count:
        p.comments.pop(_text(before, count, cell), None)
    told[line] = merged(before, line), count + 1
    p.comment(_text(*told[line], cell))


def _text(line: Because, count: int, cell: str) -> str:
    text = f"ToDo with {cell}: {str(line).removeprefix('ToDo ')}" if cell else str(line)
    return text if count == 1 else f"{text} ({count} times)"
