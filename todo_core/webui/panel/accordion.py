"""The panel: presets, one control for each declared setting, and a live line in its header."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from modules.ui_components import FormRow, InputAccordion

from ...settings import SETTINGS, Settings
from ...settings.declaration import DEFAULT
from .. import compat, options
from ..generation import infotext
from ..presets import Presets
from . import texts, visibility
from .controls import build as build_control
from .controls import control_value
from .estimate_line import NOT_LOADED, estimate_line
from .preset_row import PresetRow
from .visibility import QUIET, set_initial, watch_saved_defaults

SIMPLE = ("factor_1", "ratio_1", "interval", "start", "end")
ADVANCED = (
    ("method", "target"),
    ("passes",),
    ("factor_2", "ratio_2"),
    ("resample", "phase"),
    ("window", "afterwards"),
    ("sx", "sy"),
    ("reach", "seed"),
    ("random", "attn", "crossattn", "mlp"),
)
ONLY_TXT2IMG = ("passes",)


@dataclass(frozen=True)
class Panel:
    """The accordion's own checkbox, and the controls by setting name."""

    enabled: Any
    controls: dict[str, Any]

    @property
    def inputs(self) -> list[Any]:
        """All of them in the order of ``request.POSITIONS``."""
        return [self.enabled, *self.settings]

    @property
    def settings(self) -> list[Any]:
        """The controls in the order of SETTINGS."""
        return [self.controls[name] for name in SETTINGS]

    @property
    def infotext_fields(self) -> list[tuple[Any, Any]]:
        """(control, function of the infotext) for each of them."""
        to_control = {name: partial(control_value, setting) for name, setting in SETTINGS.items()}
        fields = [(self.controls[name], infotext.pasted_setting(name, to_control[name])) for name in SETTINGS]
        return [(self.enabled, infotext.pasted_enabled), *fields]

    @property
    def paste_field_names(self) -> list[str]:
        """The infotext keys of these controls."""
        return list(infotext.KEYS)


def build(tab: str, presets: Presets) -> Panel:
    """Build the accordion of ``tab`` ("txt2img" or "img2img") in the open gradio context."""
    controls: dict[str, Any] = {}
    start, row = starting_preset(presets), PresetRow(tab, presets)
    with InputAccordion(False, label=texts.PANEL.label, elem_id=f"todo_{tab}") as enabled:
        with enabled.extra():
            line = gr.HTML(elem_id=f"todo_{tab}_line", elem_classes=["todo-line"])
        page = gr.Textbox(visible=True, elem_id=f"todo_{tab}_page", elem_classes=["todo-hidden"], label="ToDo page")
        with FormRow(elem_id=f"todo_{tab}_row_simple", elem_classes=["todo-simple"]):
            row.build_choice(start or DEFAULT)
            _build(SIMPLE, tab, controls, min_width=100)
        with gr.Accordion(texts.ADVANCED.label, open=False, elem_id=f"todo_{tab}_advanced"):
            for names in ADVANCED:
                with FormRow(elem_id=f"todo_{tab}_row_{names[0]}", elem_classes=["todo-row"]):
                    _build(names, tab, controls)
            row.build_own()
    panel = Panel(enabled, controls)
    if start:
        _start_with(presets.get(start), [row.choice, *panel.settings], controls)
    row.connect(panel.settings)
    watch_saved_defaults(controls)
    _answer_the_page(panel, row, page, line, is_img2img=tab == "img2img")
    return panel


def starting_preset(presets: Presets) -> str | None:
    """The preset from the settings page, if it still exists; None: the panel starts with the saved defaults."""
    name = options.value("todo_default_preset")
    return name if name in presets.names else None


def _start_with(settings: Settings, unsaved: list[Any], controls: dict[str, Any]) -> None:
    """Start with these values instead of the defaults that the WebUI has saved."""
    for control in unsaved:
        control.do_not_save_to_config = True
    for name, control in controls.items():
        control.value = control_value(SETTINGS[name], getattr(settings, name))
        if isinstance(control, gr.Slider):
            control.value = float(control.value)
    set_initial(controls)


def _build(names: tuple[str, ...], tab: str, controls: dict[str, Any], **size: int) -> None:
    used = Settings().used
    for name in names:
        shown = tab == "txt2img" or name not in ONLY_TXT2IMG
        visible = shown and name in used
        controls[name] = build_control(SETTINGS[name], f"todo_{tab}_{name}", visible=visible, **size)
        controls[name].todo_shown = shown


def _answer_the_page(panel: Panel, row: PresetRow, page: Any, line: Any, *, is_img2img: bool) -> None:
    """Answer the page's questions, which todo.js asks one at a time: one answer sets all that depends on the controls.

    Several handlers would race, and the last answer would win, not the newest.
    """
    shown = [name for name, control in panel.controls.items() if control.todo_shown]

    def answer(fields: str, *values: Any) -> list[Any]:
        by_name = dict(zip(SETTINGS, values, strict=True))
        text = estimate_line(fields, by_name, compat.loaded_model(), is_img2img=is_img2img)
        return [answered(fields, text), row.state(values), *visibility.updates(shown, by_name)]

    page.change(answer, [page, *panel.settings], [line, row.choice, *panel.settings], **QUIET)
    for control in panel.settings:
        control.change(fn=None, _js="todoAskSoon")


def answered(fields: str, text: str) -> str:
    """The line as HTML, with the number of the question, by which todo.js knows that it is answered.

    ``data-ask-again`` tells todo.js that the answer will change by itself: a checkpoint is still being loaded.
    """
    number = int(json.loads(fields or "{}").get("question", 0))
    again = " data-ask-again" if text == NOT_LOADED else ""
    return f'<span data-question="{number}"{again}>{html.escape(text)}</span>'
