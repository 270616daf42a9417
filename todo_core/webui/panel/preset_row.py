"""Presets: choosing one sets the controls, and the choice always tells which preset the controls have."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import Any

import gradio as gr
from modules.ui_components import FormRow, ToolButton

from ...errors import SettingsError
from ...settings import SETTINGS, Settings
from ...settings.declaration import CUSTOM, DEFAULT, PRESETS
from ..presets import Presets
from . import texts
from .controls import QUIET, control_value
from .error_text import page_text

Question = tuple[str, str, str]  # what the page asks before one of the user's presets goes: button, verb, preset


class PresetRow:
    """The choice, and the user's own presets: a name, buttons and a message."""

    def __init__(self, tab: str, presets: Presets) -> None:
        self._id, self._presets = f"todo_{tab}_preset", presets

    def build_choice(self) -> Any:
        """The list of presets."""
        names, label = self._presets.names, texts.PRESET.label
        self.choice = gr.Dropdown(
            names, value=DEFAULT, label=label, info=_what_it_does(DEFAULT), elem_id=self._id, min_width=160
        )
        self.choice.webui_tooltip = texts.PRESET.help
        self.choice.custom_script_source = "todo.py"  # the WebUI marks a script's arguments so, for ui-config.json
        return self.choice

    def build_own(self, row_id: str) -> None:
        """The controls for the user's own presets."""
        with FormRow(elem_id=row_id):
            size = {"max_lines": 1, "min_width": 240}  # on a phone the buttons go below it together
            self._name = gr.Textbox(label=texts.PRESET_NAME.label, elem_id=f"{self._id}_name", **size)
            self._name.do_not_save_to_config = True
            self._buttons = {
                name: ToolButton(value=text.label, elem_id=f"{self._id}_{name}", tooltip=text.help)
                for name, text in texts.BUTTONS.items()
            }
        trouble = html.escape(self._presets.trouble)
        self._message = gr.HTML(trouble, elem_id=f"{self._id}_message", elem_classes=["todo-message"])

    def connect(self, controls: list[Any]) -> None:
        """A chosen preset fills the controls, in the order of SETTINGS; the buttons change the presets.

        The WebUI stores the choice alone (ui-config.json): a stored value would outlive the preset's own.
        """
        for control in controls:
            control.do_not_save_to_config = True
        self.choice.init_field = partial(self._begin_with, controls)
        self.choice.input(self._fill, [self.choice], controls, **QUIET)
        asked = gr.State(None)  # the question that the message shows
        clicks = {"save": (self._save, [self._name, *controls]), "delete": (self._delete, [self.choice])}
        for name, (change, inputs) in clicks.items():
            click = self._buttons[name].click(change, [asked, *inputs], [self._message, asked], **QUIET)
            click.then(fn=None, _js="todoAskSoon")

    def state(self, chosen: str, settings: Settings | None) -> Any:
        """The choice for the settings of the controls; ``chosen`` if it has them. The list is that of now.

        Nobody can choose "custom": it is listed only while the controls are no preset's. Where the choice stays,
        its value is not sent: it would undo what the user has chosen meanwhile.
        """
        names, name = self._presets.names, self._presets.name_of(settings, chosen) if settings else CUSTOM
        changed = {} if name == chosen else {"value": name}
        return gr.update(choices=names if name in names else [*names, name], info=_what_it_does(name), **changed)

    def _begin_with(self, controls: list[Any], name: str) -> None:
        """The WebUI calls this with the stored choice, one of the listed names, before it sends the page."""
        for control, value in zip(controls, self._values(name), strict=True):
            control.value = value

    def _fill(self, name: str) -> list[Any]:
        if name not in self._presets.names:
            return [gr.update() for _ in SETTINGS]
        return [gr.update(value=value) for value in self._values(name)]

    def _values(self, name: str) -> list[Any]:
        settings = self._presets.get(name)
        return [control_value(setting, getattr(settings, key)) for key, setting in SETTINGS.items()]

    def _save(self, asked: Question | None, name: str, *values: Any) -> tuple[str, Question | None]:
        name, by_name = name.strip(), dict(zip(SETTINGS, values, strict=True))
        return self._change(
            lambda: self._presets.save(name, Settings.parse(by_name)),
            f"Saved as {name}.",
            asked,
            ("save", "replace", name),
        )

    def _delete(self, asked: Question | None, name: str) -> tuple[str, Question | None]:
        return self._change(lambda: self._presets.delete(name), f"Deleted {name}.", asked, ("delete", "delete", name))

    def _change(
        self, change: Callable[[], None], message: str, asked: Question | None, question: Question
    ) -> tuple[str, Question | None]:
        """Change the presets, or ask first. Returns the message, and the question that it is.

        The answer to the page's next question has the list.
        """
        button, verb, name = question
        if self._presets.is_own(name) and asked != question:
            return html.escape(f"Click {texts.BUTTONS[button].label} again to {verb} {name}."), question
        try:
            change()
        except SettingsError as error:
            message = page_text(error)
        except OSError as error:
            message = str(error)
        return html.escape(message), None


def _what_it_does(name: str) -> str:
    """The line under the label: what a built-in preset does."""
    return PRESETS[name][1].capitalize() if name in PRESETS else ""
