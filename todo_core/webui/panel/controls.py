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


def shown(tab: str, values: Mapping[str, Any]) -> set[str]:
    """The settings to show in a tab: those that have an effect beside the others."""
    return set(_used(values)) - (ONLY_TXT2IMG if tab == "img2img" else set())


def _used(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings that have an effect. One that is not possible, as while it is typed, counts as its default."""
    try:
        return Settings.parse(values).used
    except SettingsError as error:
        if error.field not in values:
            return tuple(SETTINGS)
        return _used({name: value for name, value in values.items() if name != error.field})


def watch_saved_defaults(tab: str, controls: dict[str, Any]) -> None:
    """Set what is shown once the WebUI has loaded the user's saved defaults; ``controls`` are all, by name."""

    def set_initial(_: Any) -> None:
        names = shown(tab, {name: control.value for name, control in controls.items()})
        for name, control in controls.items():
            control.visible = name in names

    for control in controls.values():
        control.init_field = set_initial  # the WebUI calls it after it has loaded the control's default
