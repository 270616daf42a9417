"""The gradio controls of the declared settings, and which of them are shown: those that have an effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from ...errors import SettingsError
from ...settings import SETTINGS, Settings
from ...settings.setting import Setting

ONLY_TXT2IMG = {"passes"}
QUIET = {"show_progress": False, "queue": False}  # answered at once, without the WebUI's queue and its sockets


def control_value(setting: Setting, value: Any) -> Any:
    """The value that the control of a setting holds for ``value``."""
    if setting.has_auto:
        return setting.format(value)
    if setting.kind == "seed":
        return "" if value is None else str(value)
    return value


def build(setting: Setting, elem_id: str, *, visible: bool, min_width: int = 220, has_line: bool = True) -> Any:
    """The control, with the default value. ``Setting.parse`` reads every value that it can hold.

    ``has_line``: its help is a line under the label, else the WebUI's tooltip.
    """
    common: dict[str, Any] = {"label": setting.label, "elem_id": elem_id, "visible": visible, "min_width": min_width}
    control = _build(setting, {**common, "info": setting.help if has_line else None})
    if not has_line:
        control.webui_tooltip = setting.help
    return control


def _build(setting: Setting, common: dict[str, Any]) -> Any:
    value = control_value(setting, setting.default)
    if setting.kind == "flag":
        return gr.Checkbox(value=value, **common)
    if setting.kind == "choice":
        kind = gr.Radio if len(setting.choices) < 5 else gr.Dropdown
        return kind(choices=list(setting.choices), value=value, **common)
    if setting.has_auto:
        numbers = map(setting.format, setting.listed)
        return gr.Dropdown(choices=["auto", *numbers], value=value, allow_custom_value=True, **common)
    if setting.kind == "seed":
        return gr.Textbox(value=value, max_lines=1, placeholder="each image's own", **common)
    # a float even for whole numbers: the WebUI casts API infotext to the default's type, and int("2.5") is an error
    limits = {"minimum": setting.minimum, "maximum": setting.maximum, "step": setting.step}
    return gr.Slider(value=float(value), **limits, **common)


def settings_of(values: Mapping[str, Any]) -> tuple[Settings, SettingsError | None]:
    """The settings of the controls, and what is not possible, as while it is typed: that counts as its default."""
    try:
        return Settings.parse(values), None
    except SettingsError as error:
        possible = {name: value for name, value in values.items() if name != error.field}
        if len(possible) == len(values):  # not even a default is possible beside the other numbers
            possible = {name: value for name, value in values.items() if SETTINGS[name].choices}
        return settings_of(possible)[0], error


def shown(tab: str, settings: Settings) -> set[str]:
    """The settings to show in a tab: those that have an effect beside the others."""
    return set(settings.used) - (ONLY_TXT2IMG if tab == "img2img" else set())
