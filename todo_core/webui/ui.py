"""The panel: one control for each declared setting, hidden where the method has no use for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from modules.ui_components import FormRow, InputAccordion

from ..declaration import Setting
from ..errors import SettingsError
from ..settings import SETTINGS, Settings
from . import infotext

LABEL = "ToDo"
FACTORS = ("auto", "1", "1.5", "2", "2.5", "3", "4", "6", "8")
# what decides which other settings are of use
DECIDING = ("method", "target", "resample", "afterwards", "random")
ROWS = (
    ("method", "target"),
    ("factor_1", "factor_2"),
    ("ratio_1", "ratio_2"),
    ("resample", "phase"),
    ("passes", "img2img"),
    ("start", "end"),
    ("window", "afterwards"),
    ("sx", "sy"),
    ("random", "seed"),
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
        return [self.enabled, *(self.controls[name] for name in SETTINGS)]

    @property
    def infotext_fields(self) -> list[tuple[Any, Any]]:
        """(control, function of the infotext) for each of them."""
        fields = [(self.controls[name], infotext.paste(name, _shown(SETTINGS[name]))) for name in SETTINGS]
        return [(self.enabled, infotext.paste_enabled), *fields]

    @property
    def paste_field_names(self) -> list[str]:
        """The infotext keys that belong to these controls."""
        return list(infotext.KEYS)


def build(tab: str) -> Panel:
    """Build the accordion of ``tab`` ("txt2img" or "img2img") in the open gradio context."""
    controls: dict[str, Any] = {}
    used = Settings().used
    with InputAccordion(False, label=LABEL, elem_id=f"todo_{tab}") as enabled:
        for row in ROWS:
            with FormRow(elem_id=f"todo_{tab}_row_{row[0]}"):
                for name in row:
                    controls[name] = _control(SETTINGS[name], f"todo_{tab}_{name}", visible=name in used)
    _hide_what_is_unused(controls)
    return Panel(enabled, controls)


def _shown(setting: Setting) -> Any:
    """A setting's value in the form that its control holds."""
    return {"factor": setting.format, "seed": lambda seed: "" if seed is None else str(seed)}.get(
        setting.kind, lambda value: value
    )


def _control(setting: Setting, elem_id: str, *, visible: bool) -> Any:
    common = {"label": setting.label, "info": setting.help, "elem_id": elem_id, "visible": visible}
    value = _shown(setting)(setting.default)
    if setting.kind == "flag":
        return gr.Checkbox(value=value, **common)
    if setting.kind == "choice":
        kind = gr.Radio if len(setting.choices) < 5 else gr.Dropdown
        return kind(choices=list(setting.choices), value=value, **common)
    if setting.kind == "factor":
        return gr.Dropdown(choices=list(FACTORS), value=value, allow_custom_value=True, **common)
    if setting.kind == "seed":
        return gr.Textbox(value=value, max_lines=1, placeholder="each image's own", **common)
    # float even for whole numbers: the host casts API infotext to the type of the default, and int("2.5") is an error
    limits = {"minimum": setting.minimum, "maximum": setting.maximum, "step": setting.step}
    return gr.Slider(value=float(value), **limits, **common)


def _hide_what_is_unused(controls: dict[str, Any]) -> None:
    deciding = [controls[name] for name in DECIDING]
    for control in deciding:
        control.change(
            fn=lambda *values: [gr.update(visible=shown) for shown in _visible(values)],
            inputs=deciding,
            outputs=list(controls.values()),
            show_progress=False,
        )
        # the host calls this when the user's saved defaults are another than ours
        control.init_field = lambda _: _apply_saved(controls)


def _visible(values: Any) -> list[bool]:
    """Which controls, in the order of the rows, have a use beside these values of the deciding ones."""
    try:
        used = Settings.parse({"ratio_1": 0, "ratio_2": 0, **dict(zip(DECIDING, values, strict=True))}).used
    except SettingsError:
        used = tuple(SETTINGS)
    return [name in used for row in ROWS for name in row]


def _apply_saved(controls: dict[str, Any]) -> None:
    visible = _visible([controls[name].value for name in DECIDING])
    for control, shown in zip(controls.values(), visible, strict=True):
        control.visible = shown
