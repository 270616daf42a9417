"""The row of presets: choosing one sets the controls; changing a control sets the choice to "custom"."""

from __future__ import annotations

import html
from typing import Any

import gradio as gr
from modules.ui_components import FormRow, ToolButton

from ...errors import SettingsError
from ...settings import SETTINGS, Settings
from ...settings.presets import CUSTOM, DEFAULT, Presets
from . import texts
from .controls import control_value
from .error_text import page_text
from .visibility import QUIET


class PresetRow:
    """Built inside the panel's accordion; ``connect`` connects it to the controls, in the order of SETTINGS."""

    def __init__(self, tab: str, presets: Presets, start: str = DEFAULT) -> None:
        self._presets = presets
        with FormRow(elem_id=f"todo_{tab}_row_preset"):
            self.choice = gr.Dropdown(
                choices=[*presets.names, CUSTOM],
                value=start,
                label=texts.PRESET.label,
                info=texts.PRESET.help,
                elem_id=f"todo_{tab}_preset",
            )
            self._name = gr.Textbox(
                label=texts.PRESET_NAME.label,
                info=texts.PRESET_NAME.help,
                max_lines=1,
                elem_id=f"todo_{tab}_preset_name",
            )
            self._buttons = {name: _button(tab, name, text) for name, text in texts.BUTTONS.items()}
        self._message = gr.HTML(
            html.escape(presets.trouble), elem_id=f"todo_{tab}_preset_message", elem_classes=["todo-message"]
        )

    def connect(self, controls: list[Any]) -> None:
        """A chosen preset fills the controls; a changed control updates the choice."""
        self.choice.input(self._fill, [self.choice], controls, **QUIET)
        for control in controls:
            control.change(self._match, controls, [self.choice], **QUIET)
        outputs = [self.choice, self._message]
        self._buttons["save"].click(self._save, [self._name, *controls], outputs, **QUIET)
        self._buttons["rename"].click(self._rename, [self.choice, self._name], outputs, **QUIET)
        self._buttons["delete"].click(self._delete, [self.choice], outputs, **QUIET)

    def _fill(self, name: str) -> list[Any]:
        if name == CUSTOM:
            return [gr.update() for _ in SETTINGS]
        settings = self._presets.get(name)
        return [gr.update(value=control_value(setting, getattr(settings, key))) for key, setting in SETTINGS.items()]

    def _match(self, *values: Any) -> Any:
        try:
            return gr.update(value=self._presets.name_of(_parsed(values)))
        except SettingsError:
            return gr.update(value=CUSTOM)

    def _save(self, name: str, *values: Any) -> tuple[Any, str]:
        return self._change(lambda: self._presets.save(name, _parsed(values)), name.strip(), f"Saved as {name}.")

    def _rename(self, old: str, new: str) -> tuple[Any, str]:
        return self._change(lambda: self._presets.rename(old, new), new.strip(), f"Renamed {old} to {new}.")

    def _delete(self, name: str) -> tuple[Any, str]:
        return self._change(lambda: self._presets.delete(name), CUSTOM, f"Deleted {name}.")

    def _change(self, change: Any, choice: str, message: str) -> tuple[Any, str]:
        """Change the presets; returns the new state of the choice, and the message for the user."""
        try:
            change()
        except SettingsError as error:
            return gr.update(), html.escape(page_text(error))
        except OSError as error:
            return gr.update(), html.escape(str(error))
        return gr.update(choices=[*self._presets.names, CUSTOM], value=choice), html.escape(message)


def _button(tab: str, name: str, text: texts.Text) -> Any:
    return ToolButton(value=text.label, elem_id=f"todo_{tab}_preset_{name}", tooltip=text.help)


def _parsed(values: tuple[Any, ...]) -> Settings:
    return Settings.parse(dict(zip(SETTINGS, values, strict=True)))
