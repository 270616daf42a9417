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
from ...patching.facts import Holder, Pass
from ...reason import Reason, Why
from ...settings import SETTINGS, Settings
from .. import compat
from ..generation import infotext
from ..presets import Presets
from . import controls, texts
from .controls import QUIET
from .error_text import page_text
from .estimate_line import PREDICTION, Answer, PageRun, estimate_line
from .page_course import course_of
from .preset_row import PresetRow

STRENGTH, WINDOW = ("factor_1", "ratio_1", "interval"), ("start", "end")
ADVANCED: tuple[str, ...] = ("method", "target", "factor_2", "ratio_2", "phase", "passes", "predict", "tolerance")
ADVANCED += ("resample", "window", "afterwards", "sx", "sy", "seed", "random", "attn", "crossattn", "mlp")


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
        fields = [(self.enabled, infotext.PasteField.of(infotext.ENABLED_KEY, "enabled", bool))]
        for name, setting in SETTINGS.items():
            field = infotext.PasteField.of(setting.infotext_key, name, partial(controls.control_value, setting))
            fields.append((self.controls[name], field))
        return fields

    @property
    def paste_field_names(self) -> list[str]:
        """The infotext keys of the controls whose values the WebUI sends to another tab."""
        return [str(key) for _, key in self.infotext_fields]


def build(tab: str, presets: Presets) -> Panel:
    """Build the accordion of ``tab`` ("txt2img" or "img2img") in the open gradio context."""
    row, made, start = PresetRow(tab, presets), dict[str, Any](), controls.shown(tab, Settings())

    def build_row(name: str, settings: tuple[str, ...], *classes: str, has_lines: bool = False) -> None:
        """One row of controls. With ``has_lines`` their help is a line on the page, else a tooltip."""
        with FormRow(elem_id=f"todo_{tab}_row_{name}", elem_classes=[*classes] or None):
            if name == "strength":
                row.build_choice()
            for each in settings:
                has_line = has_lines and SETTINGS[each].kind != "flag"  # a checkbox would have it above its box
                look: dict[str, Any] = {"visible": each in start, "min_width": 130, "has_line": has_line}
                made[each] = controls.build(SETTINGS[each], f"todo_{tab}_{each}", **look)

    with InputAccordion(False, label=texts.TITLES[tab], elem_id=f"todo_{tab}") as enabled:
        with enabled.extra():
            line = gr.HTML(elem_id=f"todo_{tab}_line", elem_classes=["todo-line"])
        # todo.js writes here; without a label it stays out of Settings > Defaults
        page = gr.Textbox(elem_id=f"todo_{tab}_page", elem_classes=["todo-hidden"], show_label=False)
        build_row("strength", STRENGTH, "todo-strength")
        build_row("window", WINDOW)
        with gr.Accordion(texts.ADVANCED.label, open=False, elem_id=f"todo_{tab}_advanced") as advanced:
            build_row("advanced", ADVANCED, "todo-columns", has_lines=True)
            row.build_own(f"todo_{tab}_row_own_presets")
        gr.HTML(f"ToDo {__version__}", elem_classes=["todo-version"])
    panel = Panel(enabled, made)
    row.connect(panel.settings)
    of_papers = {"similarity": "all"}  # the target; of the others it is the default
    made["method"].input(lambda name: of_papers.get(name, "keys/values"), [made["method"]], [made["target"]], **QUIET)
    _answer_the_page(tab, panel, row, page, [line, row.choice, advanced])
    return panel


def _answer_the_page(tab: str, panel: Panel, row: PresetRow, page: Any, answers: list[Any]) -> None:
    """Answer the page's questions, which todo.js asks one at a time: one answer sets all that depends on the controls.

    Several handlers would race, and the last answer would win, not the newest.
    """

    def answer(fields: str, preset: str, *values: Any) -> list[Any]:
        settings, error = controls.settings_of(dict(zip(SETTINGS, values, strict=True)))
        shown, model = controls.shown(tab, settings), compat.loaded_model()
        told = estimate_line(fields, settings, model, partial(_known, model), is_img2img=tab == "img2img")
        if error:
            told = Answer(page_text(error))
        shown -= set() if told.can_predict else PREDICTION
        visible = [gr.update(visible=name in shown) for name in SETTINGS]
        fold = gr.update(label=texts.ADVANCED.label if error else fold_title(settings, shown))
        return [answered(fields, told), row.state(preset, None if error else settings), fold, *visible]

    page.change(answer, [page, row.choice, *panel.settings], [*answers, *panel.settings], **QUIET)
    for control in panel.settings:
        control.change(fn=None, _js="todoAskSoon")


def _known(model: Any, page: PageRun) -> tuple[Pass, Why | None]:
    """What the WebUI knows of a pass, and what else of the WebUI acts in it."""
    holder: Holder | None = "ControlNet" if page.controlnet and not compat.has_patcher(model) else None
    if compat.is_pipeline(model):
        holder = "pipeline"
    course, ratio = course_of(page, model), compat.merging_on_page(page.kind)
    steps = len(course.weights) if course else page.steps
    facts = Pass(page.latent, steps, course, is_asked=True, holder=holder, alternates=page.alternates)
    return facts, Reason.MERGING(ratio) if ratio else None


def fold_title(settings: Settings, shown: set[str]) -> str:
    """The title of the fold, with the labels of its settings that are shown and not at their defaults."""
    title = texts.ADVANCED.label
    active = [n for n in ADVANCED if n in shown and getattr(settings, n) != SETTINGS[n].default]
    return f"{title} ({'; '.join(SETTINGS[n].label for n in active)})" if active else title


def answered(fields: str, told: Answer) -> str:
    """The line as HTML, with the number of the question, by which todo.js knows that it is answered.

    ``data-ask-again`` tells todo.js that the answer will change by itself.
    """
    number = int(json.loads(fields or "{}").get("question", 0))
    again = " data-ask-again" if told.changes else ""
    shown = html.escape(told.line).replace(" %", "&nbsp;%")
    return f'<span title="{texts.LINE}" data-question="{number}"{again}>{shown}</span>'
