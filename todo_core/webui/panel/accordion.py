"""The panel: presets, one control for each declared setting, and a live line in its header."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from modules.ui_components import FormRow, InputAccordion

from ... import __version__
from ...errors import SettingsError
from ...patching.level_plan import Reason
from ...samplers import ADDS_NOISE
from ...settings import SETTINGS, Settings
from .. import compat
from ..generation import infotext
from ..generation.pipeline_calls import IN_PIPELINES
from ..presets import Presets
from . import texts, visibility
from .controls import build as build_control
from .controls import control_value
from .estimate_line import NOT_LOADED, PagePass, estimate_line
from .preset_row import PresetRow
from .visibility import QUIET, watch_saved_defaults

STRENGTH, WINDOW = ("factor_1", "ratio_1", "interval"), ("start", "end")
ADVANCED = ("method", "target", "factor_2", "ratio_2", "phase", "passes", "predict", "tolerance")
EXPERT = ("resample", "window", "afterwards", "seed", "sx", "sy", "random", "attn", "crossattn", "mlp")
FOLDS = ((texts.ADVANCED.label, ADVANCED), (texts.EXPERT.label, EXPERT))
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
    def infotext_fields(self) -> list[tuple[Any, infotext.PasteField]]:
        """(control, its infotext key) for each of them."""
        pasted = {name: infotext.pasted_setting(name, partial(control_value, SETTINGS[name])) for name in SETTINGS}
        fields = [(self.controls[n], infotext.PasteField.of(SETTINGS[n].infotext_key, pasted[n])) for n in SETTINGS]
        return [(self.enabled, infotext.PasteField.of(infotext.ENABLED_KEY, infotext.pasted_enabled)), *fields]

    @property
    def paste_field_names(self) -> list[str]:
        """The infotext keys of the controls whose values the WebUI sends to another tab."""
        return [str(key) for _, key in self.infotext_fields]


def build(tab: str, presets: Presets) -> Panel:
    """Build the accordion of ``tab`` ("txt2img" or "img2img") in the open gradio context."""
    controls: dict[str, Any] = {}
    row = PresetRow(tab, presets)
    with InputAccordion(False, label=texts.TITLES[tab], elem_id=f"todo_{tab}") as enabled:
        with enabled.extra():
            line = gr.HTML(elem_id=f"todo_{tab}_line", elem_classes=["todo-line"])
        # todo.js writes here; without a label it stays out of Settings > Defaults
        page = gr.Textbox(elem_id=f"todo_{tab}_page", elem_classes=["todo-hidden"], show_label=False)
        with FormRow(elem_id=f"todo_{tab}_row_strength", elem_classes=["todo-strength"]):
            row.build_choice()
            _build(STRENGTH, tab, controls, has_line=False)
        with FormRow(elem_id=f"todo_{tab}_row_window"):
            _build(WINDOW, tab, controls, has_line=False)
        with gr.Accordion(texts.ADVANCED.label, open=False, elem_id=f"todo_{tab}_advanced") as advanced:
            with FormRow(elem_id=f"todo_{tab}_row_advanced", elem_classes=["todo-columns"]):
                _build(ADVANCED, tab, controls)
            row.build_own()
        expert = gr.Accordion(texts.EXPERT.label, open=False, elem_id=f"todo_{tab}_expert")
        with expert, FormRow(elem_id=f"todo_{tab}_row_expert", elem_classes=["todo-columns"]):
            _build(EXPERT, tab, controls)
        gr.HTML(f"ToDo {__version__}", elem_classes=["todo-version"])
    panel = Panel(enabled, controls)
    row.connect(panel.settings)
    watch_saved_defaults(controls)
    controls["method"].input(_papers_target, [controls["method"]], [controls["target"]], **QUIET)
    _answer_the_page(panel, row, page, [line, row.choice, advanced, expert], is_img2img=tab == "img2img")
    return panel


def _papers_target(method: str) -> str:
    """The target of the method's paper."""
    return "all" if method == "similarity" else "keys/values"


def _build(names: tuple[str, ...], tab: str, controls: dict[str, Any], *, has_line: bool = True) -> None:
    """Build these controls. With ``has_line`` their help is a line on the page, else a tooltip."""
    used = Settings().used
    for name in names:
        setting, shown = SETTINGS[name], tab == "txt2img" or name not in ONLY_TXT2IMG
        is_line = has_line and setting.kind != "flag"  # a checkbox would have it above its box
        size: dict[str, Any] = {"min_width": 130, "has_line": is_line}
        controls[name] = build_control(setting, f"todo_{tab}_{name}", visible=shown and name in used, **size)
        controls[name].todo_shown = shown


def _answer_the_page(panel: Panel, row: PresetRow, page: Any, answers: list[Any], *, is_img2img: bool) -> None:
    """Answer the page's questions, which todo.js asks one at a time: one answer sets all that depends on the controls.

    Several handlers would race, and the last answer would win, not the newest.
    """
    shown = [name for name, control in panel.controls.items() if control.todo_shown]

    def answer(fields: str, preset: str, *values: Any) -> list[Any]:
        by_name = dict(zip(SETTINGS, values, strict=True))
        model = compat.loaded_model()
        text = estimate_line(fields, by_name, model, partial(_why_not_whole, model), is_img2img=is_img2img)
        folds = [gr.update(label=fold_title(title, names, by_name)) for title, names in FOLDS]
        return [answered(fields, text), row.state(preset, values), *folds, *visibility.updates(shown, by_name)]

    page.change(answer, [page, row.choice, *panel.settings], [*answers, *panel.settings], **QUIET)
    for control in panel.settings:
        control.change(fn=None, _js="todoAskSoon")


def _why_not_whole(model: Any, page: PagePass) -> Reason | None:
    """Why whole steps of a pass cannot be predicted."""
    if compat.is_pipeline(model):
        return IN_PIPELINES
    if page.controlnet and not compat.has_patcher(model):
        return "ControlNet is on"  # it runs the UNet by a forward of its own
    return None if compat.sampler_adds_no_noise(page.sampler) else ADDS_NOISE


def fold_title(title: str, names: tuple[str, ...], values: dict[str, Any]) -> str:
    """The title of a fold, with the labels of its settings that act and are not at their defaults."""
    try:
        settings = Settings.parse(values)
    except SettingsError:
        return title
    active = [n for n in names if n in settings.used and getattr(settings, n) != SETTINGS[n].default]
    return f"{title} ({', '.join(SETTINGS[n].label for n in active)})" if active else title


def answered(fields: str, text: str) -> str:
    """The line as HTML, with the number of the question, by which todo.js knows that it is answered.

    ``data-ask-again`` tells todo.js that the answer will change by itself: a checkpoint is still being loaded.
    """
    number = int(json.loads(fields or "{}").get("question", 0))
    again = " data-ask-again" if text == NOT_LOADED else ""
    return f'<span data-question="{number}"{again}>{html.escape(text).replace(" %", "&nbsp;%")}</span>'
