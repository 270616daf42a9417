"""The panel: a preset, one control for each declared setting, and a line that says what will happen."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from modules.ui_components import FormRow, InputAccordion

from ...errors import SettingsError
from ...settings import SETTINGS, Settings
from ...settings.presets import DEFAULT, Presets
from .. import compat
from ..generation import infotext
from . import live_line, options, texts
from .controls import build as build_control
from .controls import shown
from .preset_row import PresetRow

QUIET = {"show_progress": False, "queue": False}  # answered at once, without the host's queue and its sockets
# what decides which other settings are of use
DECIDING = ("method", "target", "resample", "afterwards", "random")
OF_TAB = {"txt2img": "passes", "img2img": "img2img"}  # where each tab's images are made; the other tab's is advanced
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
    """The accordion's own checkbox and the controls, by setting name."""

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
        fields = [(self.controls[name], infotext.paste(name, partial(shown, SETTINGS[name]))) for name in SETTINGS]
        return [(self.enabled, infotext.paste_enabled), *fields]

    @property
    def paste_field_names(self) -> list[str]:
        """The infotext keys that belong to these controls."""
        return list(infotext.KEYS)


def build(tab: str, presets: Presets) -> Panel:
    """Build the accordion of ``tab`` ("txt2img" or "img2img") in the open gradio context."""
    controls: dict[str, Any] = {}
    start = starting_preset(presets)
    with InputAccordion(False, label=texts.PANEL.label, elem_id=f"todo_{tab}") as enabled:
        row = PresetRow(tab, presets, start or DEFAULT)
        estimate = gr.HTML(elem_id=f"todo_{tab}_estimate", elem_classes=["todo-estimate"])
        page = gr.Textbox(visible=True, elem_id=f"todo_{tab}_page", elem_classes=["todo-hidden"], label="ToDo page")
        first, *simple = SIMPLE
        _rows(((*first, OF_TAB[tab]), *simple), tab, controls)
        with gr.Accordion(texts.ADVANCED.label, open=False, elem_id=f"todo_{tab}_advanced"):
            _rows((*ADVANCED, (OF_TAB[_other(tab)],)), tab, controls)
    panel = Panel(enabled, controls)
    if start:
        _begin_with(presets.get(start), [row.choice, *panel.settings], controls)
    row.connect(panel.settings)
    _hide_what_is_unused(controls)
    _estimate_live(panel, page, estimate, is_img2img=tab == "img2img")
    return panel


def starting_preset(presets: Presets) -> str | None:
    """The preset chosen in the settings page, if it still exists; None leaves the start to the saved defaults."""
    name = options.value("todo_default_preset")
    return name if name in presets.names else None


def _begin_with(settings: Settings, unsaved: list[Any], controls: dict[str, Any]) -> None:
    """Start with these values, whatever the host has stored as the page's defaults."""
    for control in unsaved:
        control.do_not_save_to_config = True
    for name, control in controls.items():
        control.value = shown(SETTINGS[name], getattr(settings, name))
        if isinstance(control, gr.Slider):
            control.value = float(control.value)
    _apply_saved(controls)


def _other(tab: str) -> str:
    return "img2img" if tab == "txt2img" else "txt2img"


def _rows(rows: tuple[tuple[str, ...], ...], tab: str, controls: dict[str, Any]) -> None:
    used = Settings().used
    for row in rows:
        with FormRow(elem_id=f"todo_{tab}_row_{row[0]}"):
            for name in row:
                controls[name] = build_control(SETTINGS[name], f"todo_{tab}_{name}", visible=name in used)


def _hide_what_is_unused(controls: dict[str, Any]) -> None:
    deciding = [controls[name] for name in DECIDING]
    for control in deciding:
        control.change(
            fn=lambda *values: _visibility(controls, values),
            inputs=deciding,
            outputs=list(controls.values()),
            **QUIET,
        )
        # the host calls this when the user's saved defaults are another than ours
        control.init_field = lambda _: _apply_saved(controls)


def _visibility(controls: dict[str, Any], values: Any) -> list[Any]:
    used = _used(values)
    return [gr.update(visible=name in used) for name in controls]


def _used(values: Any) -> tuple[str, ...]:
    """Which settings have a use beside these values of the deciding ones."""
    try:
        return Settings.parse({"ratio_1": 0, "ratio_2": 0, **dict(zip(DECIDING, values, strict=True))}).used
    except SettingsError:
        return tuple(SETTINGS)


def _apply_saved(controls: dict[str, Any]) -> None:
    used = _used([controls[name].value for name in DECIDING])
    for name, control in controls.items():
        control.visible = name in used


def _estimate_live(panel: Panel, page: Any, estimate: Any, *, is_img2img: bool) -> None:
    def update(fields: str, *values: Any) -> str:
        named = dict(zip(SETTINGS, values, strict=True))
        return html.escape(live_line.line(fields, named, compat.loaded_model(), is_img2img=is_img2img))

    for control in (page, *panel.settings):
        control.change(fn=update, inputs=[page, *panel.settings], outputs=[estimate], **QUIET)
