"""The template for translators: every text of this extension on the page."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...settings import SETTINGS
from ..options import OPTIONS, SECTION
from . import texts


def template() -> str:
    """JSON in the format of the WebUI's localizations. Each text is its own translation."""
    return json.dumps({text: text for text in _texts() if text}, indent=1, ensure_ascii=False) + "\n"


def _texts() -> Iterator[str]:
    yield SECTION[1]
    for setting in SETTINGS.values():
        yield from (setting.label, setting.help, *setting.choices)
    for option in OPTIONS.values():
        yield from (option.label, f"({option.help})", *option.choices)
    for value in vars(texts).values():
        if isinstance(value, texts.Text):
            yield from value
    yield from (button.help for button in texts.BUTTONS.values())
