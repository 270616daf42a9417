"""Words a SettingsError for the page: the page's labels instead of the API's names."""

from __future__ import annotations

import json
from typing import Any

from ...errors import SettingsError, UnknownNameError, short_repr
from ...settings import SETTINGS
from . import texts

_OTHER_LABELS = {
    "enabled": texts.PANEL.label,
    "preset": texts.PRESET.label,
    "presets": texts.COMPARE_PRESETS.label,
    "repeats": texts.COMPARE_REPEATS.label,
    "name": texts.PRESET_NAME.label,
}


def page_text(error: SettingsError) -> str:
    """The error by label: "Factor, level 1: 'x' is not possible. Use auto or a whole number from 1 to 8."."""
    if isinstance(error, UnknownNameError):
        return f"{error}."
    setting, usage = SETTINGS.get(error.field), error.allowed
    label = setting.label if setting else _OTHER_LABELS.get(error.field, error.field)
    if setting and usage == setting.allowed:  # else a rule over several settings, or a value that is no setting
        usage = usage.replace("None or -1", "-1") if setting.kind == "seed" else usage.replace("'", "")
    if error.value is None or error.value in ("", (), []):
        return f"{label} is empty. Use {usage}."
    return f"{label}: {_json(error.value)} is not possible. Use {usage}."


def api_text(error: SettingsError) -> str:
    """The error by name, with values as they stand in JSON."""
    if isinstance(error, UnknownNameError):
        return str(error)
    allowed = error.allowed.replace("True or False", "true or false").replace("None or -1", "null or -1")
    return f"{error.field} = {_json(error.value)} is not possible; allowed: {allowed}"


def _json(value: Any) -> str:
    """A value as text; True, None and lists as they stand in JSON."""
    return json.dumps(value) if value in (None, [], {}) or isinstance(value, bool) else short_repr(value)
