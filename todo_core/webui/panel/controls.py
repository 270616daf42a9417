"""The gradio control of a declared setting."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ...settings.setting import Setting


def control_value(setting: Setting, value: Any) -> Any:
    """The value that the control of a setting holds for ``value``."""
    if setting.kind == "factor":
        return setting.format(value)
    if setting.kind == "seed":
        return "" if value is None else str(value)
    return value


def build(setting: Setting, elem_id: str, *, visible: bool, min_width: int = 220, has_line: bool = True) -> Any:
    """The control, with the default value. ``Setting.parse`` reads every value that it can hold.

    ``has_line``: its help is a line under the label, else the WebUI's tooltip.
    """
    common: dict[str, Any] = {"label": setting.label, "elem_id": elem_id, "visible": visible, "min_width": min_width}
    control = _build(setting, {**common, "info": setting.help if has_line else None})
    if not has_line:
        control.webui_tooltip = setting.help
    return control


def _build(setting: Setting, common: dict[str, Any]) -> Any:
    value = control_value(setting, setting.default)
    if setting.kind == "flag":
        return gr.Checkbox(value=value, **common)
    if setting.kind == "choice":
        kind = gr.Radio if len(setting.choices) < 5 else gr.Dropdown
        return kind(choices=list(setting.choices), value=value, **common)
    if setting.kind == "factor":
        numbers = range(int(setting.minimum), int(setting.maximum) + 1)
        return gr.Dropdown(choices=["auto", *map(str, numbers)], value=value, allow_custom_value=True, **common)
    if setting.kind == "seed":
        return gr.Textbox(value=value, max_lines=1, placeholder="each image's own", **common)
    # a float even for whole numbers: the WebUI casts API infotext to the default's type, and int("2.5") is an error
    limits = {"minimum": setting.minimum, "maximum": setting.maximum, "step": setting.step}
    return gr.Slider(value=float(value), **limits, **common)
