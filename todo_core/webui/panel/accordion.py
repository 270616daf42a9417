"""The panel: presets, one control for each declared setting, and the estimate line."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from modules.ui_components import FormRow, InputAccordion

from ...settings import SETTINGS, Settings
from ...settings.presets import DEFAULT, Presets
from .. import compat
from ..generation import infotext
from . import options, texts
from .controls import build as build_control
from .controls import control_value
from .estimate_line import estimate_line
from .preset_row import PresetRow
from .visibility import QUIET, hide_unused, set_initial

SETTING_OF_TAB = {"txt2img": "passes", "img2img": "img2img"}  # the other tab's setting is among the advanced ones
SIMPLE = (("factor_1", "ratio_1"), ("start", "end"))
ADVANCED = (
    ("method", "target"),
    ("factor_2", "ratio_2"),
    ("resample", "phase"),
    ("window", "afterwards"),
    ("sx", "sy"),
    ("random", "seed"),
    ("reach",),
    ("attn", "crossattn", "mlp"),
)


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
    start = starting_preset(presets)
    with InputAccordion(False, label=texts.PANEL.label, elem_id=f"todo_{tab}") as enabled:
        row = PresetRow(tab, presets, start or DEFAULT)
        estimate = gr.HTML(elem_id=f"todo_{tab}_estimate", elem_classes=["todo-estimate"])
        page = gr.Textbox(visible=True, elem_id=f"todo_{tab}_page", elem_classes=["todo-hidden"], label="ToDo page")
        first, *others = SIMPLE
        _rows(((*first, SETTING_OF_TAB[tab]), *others), tab, controls)
        with gr.Accordion(texts.ADVANCED.label, open=False, elem_id=f"todo_{tab}_advanced"):
            _rows((*ADVANCED, (SETTING_OF_TAB[_other(tab)],)), tab, controls)
    panel = Panel(enabled, controls)
    if start:
        _start_with(presets.get(start), [row.choice, *panel.settings], controls)
    row.connect(panel.settings)
    hide_unused(controls)
    _update_estimate(panel, page, estimate, is_img2img=tab == "img2img")
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


def _other(tab: str) -> str:
    return "img2img" if tab == "txt2img" else "txt2img"


def _rows(rows: tuple[tuple[str, ...], ...], tab: str, controls: dict[str, Any]) -> None:
    used = Settings().used
    for row in rows:
        with FormRow(elem_id=f"todo_{tab}_row_{row[0]}"):
            for name in row:
                controls[name] = build_control(SETTINGS[name], f"todo_{tab}_{name}", visible=name in used)


def _update_estimate(panel: Panel, page: Any, estimate: Any, *, is_img2img: bool) -> None:
    def update(fields: str, *values: Any) -> str:
        by_name = dict(zip(SETTINGS, values, strict=True))
        return html.escape(estimate_line(fields, by_name, compat.loaded_model(), is_img2img=is_img2img))

    for control in (page, *panel.inputs):
        control.change(fn=update, inputs=[page, *panel.settings], outputs=[estimate], **QUIET)
