"""The controls of Compare, and its table under the images."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gradio as gr
from modules.ui_common import create_refresh_button
from modules.ui_components import FormRow

from ...settings.presets import DEFAULT, Presets
from ..panel import texts
from . import output
from .request import PANEL, SEPARATOR
from .table import ComparisonTable

CHOSEN = (DEFAULT, "ToDo fast", "ToMe paper")


def build(presets: Callable[[], Presets], *, is_img2img: bool) -> list[Any]:
    """The controls, in the order of the API's script_args. ``presets`` reads those that there are now."""
    tab = "img2img" if is_img2img else "txt2img"
    with FormRow(elem_id=f"todo_compare_{tab}_row"):
        names = gr.Dropdown(
            choices=choices(presets()),
            value=list(CHOSEN),
            multiselect=True,
            label=texts.COMPARE_PRESETS.label,
            info=texts.COMPARE_PRESETS.help,
            elem_id=f"todo_compare_{tab}_presets",
        )
        create_refresh_button(
            names, lambda: None, lambda: {"choices": choices(presets())}, f"todo_compare_{tab}_refresh"
        )
    with FormRow(elem_id=f"todo_compare_{tab}_flags"):
        img2img = gr.Checkbox(
            True,
            label=texts.COMPARE_IMG2IMG.label,
            info=texts.COMPARE_IMG2IMG.help,
            elem_id=f"todo_compare_{tab}_img2img",
            visible=is_img2img,
        )
        heat_maps = gr.Checkbox(
            True,
            label=texts.COMPARE_HEAT_MAPS.label,
            info=texts.COMPARE_HEAT_MAPS.help,
            elem_id=f"todo_compare_{tab}_heat_maps",
        )
    return [names, img2img, heat_maps]


def choices(presets: Presets) -> list[str]:
    """What can be compared."""
    return [PANEL, *presets.names]


def paste(params: dict[str, Any]) -> list[str] | None:
    """The presets that a pasted grid compared."""
    names = params.get(output.INFOTEXT_KEY)
    return gr.update(value=[name.strip() for name in names.split(SEPARATOR)]) if names else None


class Table:
    """The table under the images of one tab. The host's own answer holds its numbers, so it keeps none itself."""

    def __init__(self) -> None:
        self._log: Any = None
        self._table: Any = None

    def after_log(self, on_component: Any) -> None:
        """Host callback: the line with the comments and the time has been built."""
        self._log = on_component.component
        self._table = gr.HTML(elem_id=f"{self._log.elem_id}_todo", elem_classes=["todo-comparison-place"])

    def after_answer(self, on_component: Any) -> None:
        """Host callback: the hidden text with the answer's JSON, which the page fills with that line."""
        # this text is hidden, and gradio tells of no change in what is hidden; the line changes with it
        self._log.change(
            table, inputs=[on_component.component], outputs=[self._table], show_progress=False, queue=False
        )


def table(answer: str) -> str:
    """The table of a result's JSON; empty where Compare did not make it."""
    try:
        values = json.loads(answer or "{}").get(output.ANSWER)
    except (ValueError, AttributeError):
        return ""
    return ComparisonTable.from_dict(values).html() if values else ""
