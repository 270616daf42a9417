"""Each setting is declared once, and panel, API and infotext agree with it; test_axes.py has the axes."""

import re

import gradio as gr
import pytest

from todo_core import SETTINGS, Settings
from todo_core.webui.generation import request
from todo_core.webui.generation.infotext import KEYS
from todo_core.webui.panel import accordion, texts
from todo_core.webui.panel.controls import control_value
from todo_core.webui.presets import Presets

EACH = pytest.mark.parametrize("setting", SETTINGS.values(), ids=list(SETTINGS))


@pytest.fixture(params=["txt2img", "img2img"], scope="module")
def tab(request):
    return request.param


@pytest.fixture(scope="module")
def panel(tab, tmp_path_factory):
    with gr.Blocks():
        return accordion.build(tab, Presets(tmp_path_factory.mktemp("extension") / "presets.json"))


def test_the_panel_has_the_settings_in_the_order_of_the_api(panel, tab):
    title = {"txt2img": "ToDo: faster hires fix", "img2img": "ToDo: faster img2img"}[tab]
    assert [control.label for control in panel.inputs] == [title, *(s.label for s in SETTINGS.values())]
    assert len({c.label for c in panel.inputs}) == len({c.elem_id for c in panel.inputs}) == len(request.POSITIONS)
    assert panel.paste_field_names == ["ToDo enabled", *(s.infotext_key for s in SETTINGS.values())]
    assert [control for control, _ in panel.infotext_fields] == panel.inputs, "so they can be sent to the other tab"
    assert set(KEYS) - set(panel.paste_field_names) == {"ToDo version"}
    values = [control.value for control in panel.inputs]
    assert request.settings_of(values, None) is None, "the untouched panel is off"


@EACH
def test_a_control_tells_help_default_and_range_as_the_webuis_script_info_does(panel, tab, setting):
    control = panel.controls[setting.name]
    assert (control.label, control.elem_id) == (setting.label, f"todo_{tab}_{setting.name}")
    assert setting.help in (control.info, getattr(control, "webui_tooltip", None))
    assert setting.kind != "flag" or not control.info, "it would stand above its box"
    assert setting.parse(control.value) == setting.default
    assert control.visible == (setting.name in Settings().used and (tab, setting.name) != ("img2img", "passes"))
    choices = [c[0] if isinstance(c, tuple) else c for c in getattr(control, "choices", ())]
    if setting.kind in ("number", "integer"):
        assert (control.minimum, control.maximum, control.step) == (setting.minimum, setting.maximum, setting.step)
        assert isinstance(control.value, float), "the WebUI casts API infotext to the type of the default"
    elif setting.has_auto:
        numbers = range(1, 9) if setting.kind == "factor" else [twentieth / 20 for twentieth in range(21)]
        assert [setting.parse(choice) for choice in choices] == ["auto", *numbers]
    else:
        assert choices == list(setting.choices)


@pytest.mark.parametrize(
    ("name", "value", "held"),
    [("seed", None, ""), ("seed", 7, "7"), ("start", "auto", "auto"), ("start", 0.5, "0.5"), ("attn", False, False)],
)
def test_a_control_holds_the_value_that_its_kind_can(name, value, held):
    """As a pasted image and a preset set it: text where it can be typed."""
    found = control_value(SETTINGS[name], value)
    assert (type(found), found) == (type(held), held)


ON_THE_PAGE = [*SETTINGS.values(), *(text for text in vars(texts).values() if isinstance(text, texts.Text))]


@pytest.mark.parametrize("text", [*ON_THE_PAGE, *texts.BUTTONS.values()], ids=lambda text: text.label)
def test_labels_and_help_are_short(text):
    assert len(re.sub(r",? level \d", "", text.label).split()) <= 3
    assert len(text.help) <= 90


@pytest.mark.parametrize("name", accordion.ADVANCED)
def test_help_under_a_label_fits_one_line_of_half_the_panel(name):
    longest = {"flag": 90, "number": 42, "integer": 42}  # a box stands above it; a number beside it
    assert len(SETTINGS[name].help) <= longest.get(SETTINGS[name].kind, 52)
