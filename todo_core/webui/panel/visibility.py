"""Shows only the controls that have an effect beside the others."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ...errors import SettingsError
from ...settings import SETTINGS, Settings

DECIDING = ("method", "target", "resample", "afterwards", "random", "interval")  # they decide which others act
QUIET = {"show_progress": False, "queue": False}  # answered at once, without the WebUI's queue and its sockets


def watch_saved_defaults(controls: dict[str, Any]) -> None:
    """Set what is visible once the WebUI has loaded the user's saved defaults; ``controls`` are all, by name."""

    def set_initial(_: Any) -> None:
        used = used_settings([controls[name].value for name in DECIDING])
        for name, control in controls.items():
            control.visible = name in used and control.todo_shown

    for name in DECIDING:
        controls[name].init_field = set_initial  # the WebUI calls it after it has loaded the control's default


def used_settings(values: Any) -> tuple[str, ...]:
    """The settings that have an effect with these values of DECIDING."""
    chosen = {"ratio_1": 0, "ratio_2": 0, **dict(zip(DECIDING, values, strict=True))}
    try:
        return Settings.parse(chosen).used
    except SettingsError as error:
        if error.field != "interval":
            return tuple(SETTINGS)
        return Settings.parse(chosen | {"interval": SETTINGS["interval"].default}).used  # a number that is being typed


def updates(shown: Any, values: dict[str, Any]) -> list[Any]:
    """The visibility of each control that is ever ``shown``, in the order of SETTINGS."""
    used = used_settings([values[name] for name in DECIDING])
    return [gr.update(visible=name in used and name in shown) for name in SETTINGS]
