"""Shows only the controls that have an effect beside the others."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ...errors import SettingsError
from ...settings import SETTINGS, Settings

DECIDING = ("method", "target", "resample", "afterwards", "random")  # settings that decide which others have an effect
QUIET = {"show_progress": False, "queue": False}  # answered at once, without the WebUI's queue and its sockets


def hide_unused(controls: dict[str, Any]) -> None:
    """Keep the visibility of the controls up to date; ``controls`` are all of them, by setting name."""
    deciding = [controls[name] for name in DECIDING]
    for control in deciding:
        control.change(
            fn=lambda *values: _updates(controls, values),
            inputs=deciding,
            outputs=list(controls.values()),
            **QUIET,
        )
        # the WebUI calls this after it has loaded the user's saved default
        control.init_field = lambda _: set_initial(controls)


def set_initial(controls: dict[str, Any]) -> None:
    """Set what is visible when the page loads, from the values of the controls."""
    used = used_settings([controls[name].value for name in DECIDING])
    for name, control in controls.items():
        control.visible = name in used


def used_settings(values: Any) -> tuple[str, ...]:
    """The settings that have an effect with these values of DECIDING."""
    try:
        return Settings.parse({"ratio_1": 0, "ratio_2": 0, **dict(zip(DECIDING, values, strict=True))}).used
    except SettingsError:
        return tuple(SETTINGS)


def _updates(controls: dict[str, Any], values: Any) -> list[Any]:
    used = used_settings(values)
    return [gr.update(visible=name in used) for name in controls]
