"""Parts of a report in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def section(title: str, *blocks: str) -> list[str]:
    """A heading and its blocks without the empty ones; nothing if all are empty."""
    found = [block for block in blocks if block]
    return [f"## {title}", *found] if found else []


def picture(path: Path | None, caption: str, folder: Path) -> str:
    """A picture below ``folder`` with its caption; None gives nothing."""
    return f"![{caption}]({path.relative_to(folder).as_posix()})\n\n*{caption}*" if path else ""


def markdown_table(table: Sequence[Sequence[str]]) -> str:
    """A table as Markdown. Its first row is the head; columns of numbers, but the first one, stand on the right."""
    _, *others = zip(*(table[1:] or table), strict=True)
    rules = ["---:" if any(cell[:1].isdigit() for cell in column) else "---" for column in others]
    head, *body = map(_line, table)
    return "\n".join([head, f"|---|{''.join(f'{rule}|' for rule in rules)}", *body])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells).strip() + " |"
