"""Shows only the controls that have an effect beside the others."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ...errors import SettingsError
from ...settings import SETTINGS, Settings

QUIET = {"show_progress": False, "queue": False}  # answered at once, without the WebUI's queue and its sockets


def watch_saved_defaults(controls: dict[str, Any]) -> None:
    """Set what is visible once the WebUI has loaded the user's saved defaults; ``controls`` are all, by name."""

    def set_initial(_: Any) -> None:
        used = used_settings({name: control.value for name, control in controls.items()})
        for name, control in controls.items():
            control.visible = name in used and control.todo_shown

    for control in controls.values():
        control.init_field = set_initial  # the WebUI calls it after it has loaded the control's default


def used_settings(values: dict[str, Any]) -> tuple[str, ...]:
    """The settings that have an effect. One that is not possible, as while it is typed, counts as its default."""
    try:
        return Settings.parse(values).used
    except SettingsError as error:
        if error.field not in values:
            return tuple(SETTINGS)
        return used_settings({name: value for name, value in values.items() if name != error.field})


def updates(shown: Any, values: dict[str, Any]) -> list[Any]:
    """The visibility of each control that is ever ``shown``, in the order of SETTINGS."""
    used = used_settings(values)
    return [gr.update(visible=name in used and name in shown) for name in SETTINGS]
