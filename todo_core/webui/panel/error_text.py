"""Words a SettingsError for the page: the page's labels instead of the API's names."""

from __future__ import annotations

import json
import math
from typing import Any

from ...errors import SettingsError, UnknownNameError, short_repr
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
    if isinstance(error, UnknownNameError):
        return f"{error}."
    setting = SETTINGS.get(error.field)
    # else a rule over several settings, or a value that is no setting
    is_single = setting is not None and error.allowed == setting.allowed
    label = setting.label if setting else _OTHER_LABELS.get(error.field, error.field)
    usage = _usage(setting) if setting and is_single else error.allowed
    if error.value is None or error.value in ("", (), []):
        return f"{label} is empty. Use {usage}."
    problem = _problem(setting, error.value) if setting and is_single else "is not possible"
    return f"{label}: {_json(error.value)} {problem}. Use {usage}."


def api_text(error: SettingsError) -> str:
    """The error by name, with values as they stand in JSON."""
    if isinstance(error, UnknownNameError):
        return str(error)
    allowed = error.allowed.replace("True or False", "true or false").replace("None or -1", "null or -1")
    return f"{error.field} = {_json(error.value)} is not possible; allowed: {allowed}"


def _json(value: Any) -> str:
    """A value as text; True, None and lists as they stand in JSON."""
    return json.dumps(value) if value in (None, [], {}) or isinstance(value, bool) else short_repr(value)


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
