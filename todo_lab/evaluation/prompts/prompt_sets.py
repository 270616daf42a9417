"""Prompts from a file, one per line, or from one of the two shipped sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from todo_core.errors import SettingsError

SETS = ("pocket", "checkpoint")


def load_prompts(source: str) -> list[str]:
    """The prompts of a shipped set or of a text file, without empty lines, comments and repetitions.

    ``pocket`` has captions for the pocket model, ``checkpoint`` prompts for full-size models. Raises SettingsError if
    there are no prompts.
    """
    path = Path(__file__).with_name(f"{source}.txt") if source in SETS else Path(source)
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError("prompts", source, f"{' or '.join(SETS)}, or a text file ({error})") from error
    found = list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if not found:
        raise SettingsError("prompts", source, "a file with one prompt a line")
    return found


def evenly_spaced(rows: list[Any], count: int | None) -> list[Any]:
    """``count`` of the rows at equal distances from the first to the last, or all if there are not more."""
    if count is None or count >= len(rows):
        return rows
    last = len(rows) - 1
    return [rows[round(i * last / max(1, count - 1))] for i in range(count)]
