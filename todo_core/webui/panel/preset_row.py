"""Presets: choosing one sets the controls, and the choice always tells which preset the controls have."""

from __future__ import annotations

import html
from typing import Any

import gradio as gr
from modules.ui_components import FormRow, ToolButton

from ...errors import SettingsError
from ...settings import SETTINGS, Settings
from ...settings.declaration import CUSTOM
from ..presets import Presets
from . import texts
from .controls import control_value, hidden_field
from .error_text import page_text
from .visibility import QUIET


class PresetRow:
    """The choice, and the user's own presets: a name, buttons and a message."""

    def __init__(self, tab: str, presets: Presets) -> None:
        self._tab, self._presets = tab, presets

    def build_choice(self, start: str) -> Any:
        """The list of presets."""
        self.choice = gr.Dropdown(
            choices=self._names,
            value=start,
            label=texts.PRESET.label,
            elem_id=f"todo_{self._tab}_preset",
            min_width=160,
        )
        self.choice.webui_tooltip = texts.PRESET.help
        self.choice.do_not_save_to_config = True
        return self.choice

    def build_own(self) -> None:
        """The controls for the user's own presets."""
        tab = self._tab
        with FormRow(elem_id=f"todo_{tab}_row_own_presets"):
            self._name = gr.Textbox(
                label=texts.PRESET_NAME.label,
                max_lines=1,
                elem_id=f"todo_{tab}_preset_name",
                min_width=240,  # on a phone the buttons go below it together
            )
            self._name.do_not_save_to_config = True
            self._buttons = {name: _button(tab, name, text) for name, text in texts.BUTTONS.items()}
        self._file = hidden_field(f"todo_{tab}_preset_file")
        self._message = gr.HTML(
            html.escape(self._presets.trouble), elem_id=f"todo_{tab}_preset_message", elem_classes=["todo-message"]
        )

    def connect(self, controls: list[Any]) -> None:
        """A chosen preset fills the controls, in the order of SETTINGS; the buttons change the presets."""
        self.choice.input(self._fill, [self.choice], controls, **QUIET)
        outputs, buttons = [self.choice, self._message], self._buttons
        changes: tuple[tuple[Any, Any, list[Any]], ...] = (
            (buttons["save"].click, self._save, [self._message, self._name, *controls]),
            (buttons["rename"].click, self._rename, [self.choice, self._name]),
            (buttons["delete"].click, self._delete, [self._message, self.choice]),
            (buttons["refresh"].click, self._refresh, []),
            (self._file.input, self._import, [self._file]),
        )
        for event, change, inputs in changes:
            event(change, inputs, outputs, **QUIET).then(fn=None, _js="todoAskSoon")
        buttons["import"].click(fn=None, _js=f"() => todoOpenFile('todo_{self._tab}_preset_file')")
        export = buttons["export"].click(self._presets.to_text, [], [self._file], **QUIET)
        export.then(fn=None, inputs=[self._file], _js="(text) => todoSaveFile('todo-presets.json', text)")

    def state(self, chosen: str, values: tuple[Any, ...]) -> Any:
        """The choice for these values of all controls; ``chosen`` if it has them. The list is that of now."""
        try:
            name = self._presets.name_of(_parsed(values), chosen)
        except SettingsError:
            name = CUSTOM
        return gr.update(choices=self._names, value=name)

    @property
    def _names(self) -> list[str]:
        return [*self._presets.names, CUSTOM]

    def _fill(self, name: str) -> list[Any]:
        if name not in self._presets.names:
            return [gr.update() for _ in SETTINGS]
        settings = self._presets.get(name)
        return [gr.update(value=control_value(setting, getattr(settings, key))) for key, setting in SETTINGS.items()]

    def _save(self, message: str, name: str, *values: Any) -> tuple[Any, str]:
        again = f"Click {texts.BUTTONS['save'].label} again to replace {name.strip()}."
        if self._presets.is_own(name.strip()) and message != html.escape(again):
            return gr.update(), html.escape(again)
        return self._change(
            lambda: self._presets.save(name, _parsed(values)), name.strip(), f"Saved as {name.strip()}."
        )

    def _rename(self, old: str, new: str) -> tuple[Any, str]:
        return self._change(lambda: self._presets.rename(old, new), new.strip(), f"Renamed {old} to {new.strip()}.")

    def _delete(self, message: str, name: str) -> tuple[Any, str]:
        again = f"Click {texts.BUTTONS['delete'].label} again to delete {name}."
        if self._presets.is_own(name) and message != html.escape(again):
            return gr.update(), html.escape(again)
        return self._change(lambda: self._presets.delete(name), CUSTOM, f"Deleted {name}.")

    def _refresh(self) -> tuple[Any, str]:
        return gr.update(choices=self._names), ""

    def _import(self, text: str) -> tuple[Any, str]:
        added: list[str] = []
        update, message = self._change(lambda: added.extend(self._presets.add_text(text)), None, "")
        return update, message or html.escape(f"Added {', '.join(added)}." if added else "No new preset in this file.")

    def _change(self, change: Any, choice: str | None, message: str) -> tuple[Any, str]:
        """Change the presets; returns the new state of the choice, and the message for the user."""
        try:
            change()
        except SettingsError as error:
            return gr.update(), html.escape(page_text(error))
        except OSError as error:
            return gr.update(), html.escape(str(error))
        chosen = {} if choice is None else {"value": choice}
        return gr.update(choices=self._names, **chosen), html.escape(message)


def _button(tab: str, name: str, text: texts.Text) -> Any:
    return ToolButton(value=text.label, elem_id=f"todo_{tab}_preset_{name}", tooltip=text.help)


def _parsed(values: tuple[Any, ...]) -> Settings:
    return Settings.parse(dict(zip(SETTINGS, values, strict=True)))
