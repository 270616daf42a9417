"""``python -m todo_core.webui``: print the template for translators, localizations/template.json.sample."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from ..settings import SETTINGS
from .panel import texts


def template() -> str:
    """Every text on the page as JSON, in the format of the WebUI's localizations. Each is its own translation."""
    return json.dumps({text: text for text in _texts() if text}, indent=1, ensure_ascii=False) + "\n"


def _texts() -> Iterator[str]:
    for setting in SETTINGS.values():
        yield from (setting.label, setting.help, *setting.choices)
    for value in vars(texts).values():
        if isinstance(value, texts.Text):
            yield from value
    yield from texts.TITLES.values()
    yield from (button.help for button in texts.BUTTONS.values())


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(template())
