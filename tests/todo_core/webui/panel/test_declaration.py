"""Each setting is declared once, and panel, API, axes, infotext agree with it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from tests.todo_core.webui.webui_double import pasted
from todo_core import SETTINGS, Settings
from todo_core.webui.generation import request
from todo_core.webui.panel import accordion, axes, controls, texts
from todo_core.webui.presets import Presets

ROOT = Path(__file__).parents[4]
EACH = pytest.mark.parametrize("setting", SETTINGS.values(), ids=list(SETTINGS))
OTHER = {"choice": lambda s: s.choices[-1], "flag": lambda s: not s.default, "number": lambda s: 0.65}
OTHER |= {"integer": lambda s: s.maximum, "factor": lambda s: 3, "seed": lambda s: 7}


def presets(folder):
    return Presets(folder / "presets.json")


@pytest.fixture(params=["txt2img", "img2img"], scope="module")
def panel(request, tmp_path_factory):
    with gr.Blocks():
        return accordion.build(request.param, presets(tmp_path_factory.mktemp("extension")))


def script_info(panel):
    """What the WebUI's ``GET /sdapi/v1/script-info`` tells, read from the widgets as it reads them."""
    listed = []
    for control in panel.inputs:
        fields = {n: getattr(control, n, None) for n in ("label", "value", "minimum", "maximum", "step", "choices")}
        fields["choices"] = [c[0] if isinstance(c, tuple) else c for c in fields["choices"] or ()]
        listed.append(SimpleNamespace(**fields))
    return dict(zip(request.POSITIONS, listed, strict=True))


def another(setting):
    """A value that is not the default, and settings in which it is in use."""
    value = OTHER[setting.kind](setting)
    for base in (
        {},
        {"method": "similarity"},
        {"target": "all"},
        {"method": "similarity", "target": "all"},
        {"end": 0.5},
    ):
        chosen = Settings(**{"ratio_1": 0.5, **base, setting.name: value})
        if setting.name in chosen.used or setting.name == "method":
            return value, chosen
    raise AssertionError("never in use")


@EACH
def test_the_api_tells_label_default_and_range(panel, setting):
    control = script_info(panel)[setting.name]
    assert control.label == setting.label
    assert setting.parse(control.value) == setting.default
    if setting.kind in ("number", "integer"):
        assert (control.minimum, control.maximum, control.step) == (setting.minimum, setting.maximum, setting.step)
    if setting.kind == "choice":
        assert control.choices == list(setting.choices)
    if setting.kind == "factor":
        assert all(setting.parse(choice) for choice in control.choices)


@EACH
def test_the_panels_control_explains_it(panel, setting):
    control = panel.controls[setting.name]
    assert setting.help in (control.info, getattr(control, "webui_tooltip", None))
    assert setting.name in control.elem_id


@EACH
def test_the_axis_has_the_label_and_takes_what_is_allowed(setting):
    made = axes._axes(lambda label, kind, apply, **more: SimpleNamespace(label=label, kind=kind, **more), lambda: None)
    axis = {axis.label: axis for axis in made}[f"[ToDo] {setting.label}"]
    axis.confirm(None, [axis.kind(setting.format(value)) for value in (setting.default, another(setting)[0])])
    if setting.kind == "choice":
        assert axis.choices() == list(setting.choices)


@EACH
def test_the_infotext_brings_it_back_into_the_panel(panel, setting):
    value, chosen = another(setting)
    text = chosen.to_infotext()
    assert text[setting.infotext_key] == setting.format(value)
    values = pasted(panel.infotext_fields, text)
    assert setting.parse(values[panel.controls[setting.name]]) == value
    assert setting.infotext_key in panel.paste_field_names


@EACH
def test_the_api_takes_it_by_name_and_by_position(setting):
    value, chosen = another(setting)
    assert request.read([{**chosen.to_dict(), "reach": 1}], lambda name: None) == chosen, "what is retired does nothing"
    by_position = [True, *(controls.control_value(s, getattr(chosen, s.name)) for s in SETTINGS.values())]
    assert getattr(request.read(by_position, lambda name: None), setting.name) == value


def page_texts():
    """Every text on the page."""
    found = [texts.Text(declared.label, declared.help) for declared in SETTINGS.values()]
    found += [text for text in vars(texts).values() if isinstance(text, texts.Text)]
    return found + list(texts.BUTTONS.values())


@pytest.mark.parametrize("text", page_texts(), ids=lambda text: text.label)
def test_labels_and_help_are_short(text):
    assert len(re.sub(r",? level \d", "", text.label).split()) <= 3
    assert len(text.help) <= 90


@pytest.mark.parametrize("name", [*accordion.ADVANCED, *accordion.EXPERT])
def test_help_under_a_label_fits_one_line_of_half_the_panel(name):
    longest = {"flag": 90, "number": 42, "integer": 42}  # a box stands above it; a number beside it
    assert len(SETTINGS[name].help) <= longest.get(SETTINGS[name].kind, 52)
