"""The template for translators: every text that the page shows of this extension."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...settings import SETTINGS
from ..compare.runner import PANEL
from . import texts
from .options import OPTIONS, SECTION


def template() -> str:
    """JSON as the host's localizations are: each text with its translation, which here is the text itself."""
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
    yield PANEL
