"""The lines under the image. Scripts such as SD upscale run many batches for one image: equal lines are told once."""

from __future__ import annotations

import re
from typing import Any

_TOLD = "todo_told"  # attribute of a processing object; each cell of an X/Y/Z plot has an object of its own
# what the measured error decides anew in each batch
_DECIDED = re.compile(
    r"(?<=computed in )\d+|(?<=below level 1 in )\d+|(?<=of these )\d+|\d+(?= % less work)|(?<=: error )[\d.]+"
)


def tell(p: Any, line: str) -> None:
    """Add a line, or count it if a batch of ``p`` has told it before; then it has the range of its numbers."""
    told: dict[str, list[str]] = vars(p).setdefault(_TOLD, {})
    lines = told.setdefault(_DECIDED.sub("", line), [])
    if lines:
        p.comments.pop(_summary(lines), None)
    lines.append(line)
    p.comment(_summary(lines))


def _summary(lines: list[str]) -> str:
    """One line for lines that are equal except for what the error has decided."""
    found = zip(*map(_DECIDED.findall, lines), strict=True)
    ranges = (dict.fromkeys((min(each, key=float), max(each, key=float))) for each in found)
    line = _DECIDED.sub(lambda _: " to ".join(next(ranges)), lines[0])
    return line if len(lines) == 1 else f"{line} ({len(lines)} times)"
