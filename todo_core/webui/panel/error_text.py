"""Words a SettingsError for the page: the page's labels instead of the API's names."""

from __future__ import annotations

import math
from typing import Any

from ...errors import SettingsError, short_repr
from ...settings import SETTINGS
from ...settings.setting import Setting
from . import texts

_OTHER_LABELS = {
    "enabled": texts.PANEL.label,
    "preset": texts.PRESET.label,
    "presets": texts.COMPARE_PRESETS.label,
    "repeats": texts.COMPARE_REPEATS.label,
    "name": texts.PRESET_NAME.label,
}


class PanelError(SettingsError):
    """A SettingsError whose text is for the page, where the WebUI shows the text of an exception."""

    def __init__(self, error: SettingsError) -> None:
        super().__init__(error.field, error.value, error.allowed)
        self._text = page_text(error)

    def __str__(self) -> str:
        return self._text


def page_text(error: SettingsError) -> str:
    """The error by label: "Factor, level 1: 'x' is not a number. Use auto, or 1 to 1024."."""
    setting, value = SETTINGS.get(error.field), short_repr(error.value)
    if setting and error.allowed == setting.allowed:
        return f"{setting.label}: {value} {_problem(setting, error.value)}. Use {_usage(setting)}."
    # a rule over several settings, or a value that is no setting
    label = setting.label if setting else _OTHER_LABELS.get(error.field, error.field)
    return f"{label}: {value} is not possible. Use {error.allowed}."


def _problem(setting: Setting, value: Any) -> str:
    if setting.kind == "choice":
        return "is not a choice"
    if setting.kind == "flag":
        return "is not possible"
    whole = setting.kind in ("integer", "seed", "factor")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return f"is not a {'whole ' if whole else ''}number"
    if whole and isinstance(value, float) and not value.is_integer():
        return "is not a whole number"
    return "is out of range"


def _usage(setting: Setting) -> str:
    if setting.kind == "choice":
        *first, last = setting.choices
        return f"{', '.join(first)} or {last}"
    if setting.kind == "flag":
        return "True or False"
    if setting.kind == "seed":
        return "a whole number, or leave it empty"
    if setting.kind == "factor":
        return f"auto, or a whole number from {setting.minimum:g} to {setting.maximum:g}"
    whole = "whole " if setting.kind == "integer" else ""
    return f"a {whole}number from {setting.minimum:g} to {setting.maximum:g}"
