"""The controls of Compare, and its table under the images."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gradio as gr
from modules.ui_common import create_refresh_button
from modules.ui_components import FormRow

from ...settings.declaration import DEFAULT
from ..panel import texts
from ..presets import Presets
from . import output
from .request import DEFAULT_REPEATS, FROM_PANEL, MOST_REPEATS, SEPARATOR
from .table import ComparisonTable

DEFAULT_CHOICE = (DEFAULT, "Fast", "ToMe paper")


def build(presets: Callable[[], Presets], *, is_img2img: bool) -> list[Any]:
    """The controls, in the order of the API's script_args. ``presets`` reads the presets anew."""
    own = f"todo_compare_{'img2img' if is_img2img else 'txt2img'}"
    with FormRow(elem_id=f"{own}_row"):
        label, info = texts.COMPARE_PRESETS
        listed = {"choices": choices(presets()), "value": list(DEFAULT_CHOICE), "multiselect": True}
        names = gr.Dropdown(label=label, info=info, elem_id=f"{own}_presets", **listed)
        create_refresh_button(names, lambda: None, lambda: {"choices": choices(presets())}, f"{own}_refresh")
    with FormRow(elem_id=f"{own}_flags"):
        flags = []
        for name, (label, tooltip) in (("heat_maps", texts.COMPARE_HEAT_MAPS), ("plain_steps", texts.COMPARE_PLAIN)):
            flags.append(gr.Checkbox(True, label=label, elem_id=f"{own}_{name}"))
            flags[-1].webui_tooltip = tooltip  # a checkbox would have it above its box
        label, info = texts.COMPARE_REPEATS
        numbers = {"minimum": 1, "maximum": MOST_REPEATS, "value": float(DEFAULT_REPEATS), "step": 1}
        repeats = gr.Slider(label=label, info=info, elem_id=f"{own}_repeats", **numbers)
    return [names, flags[0], repeats, flags[1]]


def choices(presets: Presets) -> list[str]:
    """The variants on offer: the panel's settings, and each preset."""
    return [FROM_PANEL, *presets.names]


def pasted_presets(params: dict[str, Any]) -> list[str] | None:
    """The presets in the infotext of a pasted grid."""
    names = params.get(output.INFOTEXT_KEY)
    return gr.update(value=[name.strip() for name in names.split(SEPARATOR)]) if names else None


class ResultTable:
    """The table under the images of one tab. It reads the result's JSON on the page, and keeps no state."""

    def __init__(self) -> None:
        self._log: Any = None
        self._table: Any = None

    def after_log(self, on_component: Any) -> None:
        """WebUI callback: the line with the comments and the time has been built."""
        self._log = on_component.component
        self._table = gr.HTML(elem_id=f"{self._log.elem_id}_todo", elem_classes=["todo-comparison-container"])

    def after_info(self, on_component: Any) -> None:
        """WebUI callback: the hidden text with the result's JSON has been built."""
        # gradio sends no change event for the hidden text; the visible log line changes at the same time
        self._log.change(
            table_html, inputs=[on_component.component], outputs=[self._table], show_progress=False, queue=False
        )


def table_html(info: str) -> str:
    """The table in the JSON of a result; empty if Compare did not make the result."""
    try:
        values = json.loads(info or "{}").get(output.INFO_KEY)
    except (ValueError, AttributeError):
        return ""
    return ComparisonTable.from_dict(values).html() if values else ""
