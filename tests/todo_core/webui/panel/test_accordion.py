"""The panel, built by the gradio that the WebUI ships: one control a setting, pasted and hidden as it should be."""

from __future__ import annotations

import gradio as gr
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.todo_core.webui.webui_double import pasted
from todo_core import SETTINGS, Settings, SettingsError
from todo_core.settings import BUILT_IN
from todo_core.webui.extension import Extension
from todo_core.webui.generation import infotext, request
from todo_core.webui.generation.infotext import KEYS
from todo_core.webui.panel import accordion, controls, visibility
from todo_core.webui.panel.estimate_line import NOT_LOADED
from todo_core.webui.panel.preset_row import PresetRow
from todo_core.webui.presets import Presets


@pytest.fixture(scope="module")
def panel(tmp_path_factory):
    with gr.Blocks():
        return accordion.build("txt2img", Presets(tmp_path_factory.mktemp("extension") / "presets.json"))


def read(args, overrides=None):
    return request.read(args, BUILT_IN.__getitem__, overrides)


def values_of(panel, changes):
    """What the panel sends when these controls are changed, as its components hand values over."""
    values = {name: panel.controls[name].value for name in SETTINGS}
    values |= {name: controls.control_value(SETTINGS[name], value) for name, value in changes.items()}
    return [True, *values.values()]


def chosen(settings):
    return {name: getattr(settings, name) for name in SETTINGS}


def anything():
    """Settings of any kind that are possible together."""
    drawn = {}
    for name, s in SETTINGS.items():
        drawn[name] = {
            "choice": st.sampled_from(s.choices) if s.choices else st.nothing(),
            "flag": st.booleans(),
            "number": st.floats(0, 0.75),
            "integer": st.integers(2, 16),
            "factor": st.just("auto") | st.integers(1, 8),
            "seed": st.none() | st.integers(0, 2**40),
        }[s.kind]
    drawn |= {"start": st.floats(0, 0.4), "end": st.floats(0.5, 1)}
    return st.fixed_dictionaries({}, optional=drawn).map(lambda values: Settings(**values))


def test_every_setting_has_one_control_in_the_order_of_the_api(panel):
    assert [c.label for c in panel.inputs] == ["ToDo: faster hires fix", *(s.label for s in SETTINGS.values())]
    assert len({c.label for c in panel.inputs}) == len(panel.inputs) == len(request.POSITIONS)
    assert sorted(panel.controls) == sorted(SETTINGS)


def test_every_control_has_its_own_elem_id_and_help(panel):
    ids = [c.elem_id for c in panel.inputs]
    assert len(set(ids)) == len(ids)
    for name, setting in SETTINGS.items():
        control = panel.controls[name]
        assert setting.help in (control.info, getattr(control, "webui_tooltip", None)), name
        assert setting.kind != "flag" or not control.info, "it would stand above its box"


def test_ranges_and_choices_are_the_declared_ones(panel):
    for name, setting in SETTINGS.items():
        control = panel.controls[name]
        if setting.kind in ("number", "integer"):
            assert (control.minimum, control.maximum, control.step) == (setting.minimum, setting.maximum, setting.step)
            assert isinstance(control.value, float)  # the WebUI casts API infotext to the type of the default
        if setting.kind == "choice":
            assert list(control.choices) in (list(setting.choices), [(c, c) for c in setting.choices])


def test_the_untouched_panel_asks_for_the_defaults(panel):
    values = [control.value for control in panel.inputs]
    assert read(values) is None
    assert read([True, *values[1:]]) == Settings()


@given(anything())
@settings(max_examples=200, deadline=None)
def test_positional_and_named_requests_say_the_same(panel, wanted):
    by_position = read(values_of(panel, chosen(wanted)))
    by_name = read([{"enabled": True, **chosen(wanted)}])
    assert by_position == by_name == wanted


@given(anything())
@settings(max_examples=200, deadline=None)
def test_pasting_what_was_written_restores_every_setting_in_use(panel, wanted):
    if wanted.method == "none":
        return
    text = ", ".join(f"{key}: {value}" for key, value in wanted.to_infotext().items())
    params = dict(pair.split(": ", 1) for pair in text.split(", "))
    values = pasted(panel.infotext_fields, params)
    restored = read([values[control] for control in panel.inputs])
    for name in wanted.used:
        assert getattr(restored, name) == getattr(wanted, name)


def test_pasting_another_image_only_switches_off(panel):
    values = pasted(panel.infotext_fields, {"Steps": "20", "Token merging ratio hr": "0.5", "ToDo factor": "1.0"})
    assert values.pop(panel.enabled) is False
    assert set(values.values()) == {None}


def test_an_image_of_the_other_extension_is_pasted_into_the_matching_settings(panel):
    theirs = {"ToDo factor": "2.5", "ToDo factor2": "1.0", "ToDo disable after": "0.6"}
    with pytest.warns(UserWarning, match="2.5 of the image is now 3"):
        values = pasted(panel.infotext_fields, theirs)
    restored = read([values[control] for control in panel.inputs])
    expected = Settings(factor_1=3, factor_2=1, end=0.6, phase="fixed", passes="all", interval=1)
    assert restored == expected


@pytest.mark.parametrize("theirs", [{"ToDo factor": "1.0"}, {"ToDo factor": "2.0", "ToDo disable after": "0.0"}])
def test_where_the_other_extension_did_nothing_the_panel_is_off(panel, theirs):
    assert pasted(panel.infotext_fields, theirs)[panel.enabled] is False


def test_the_values_of_one_tab_can_be_sent_to_the_other(panel, tmp_path):
    """The WebUI sends the values of the fields with these names, in their order, to those of the other tab."""
    with gr.Blocks():
        other = accordion.build("img2img", Presets(tmp_path / "presets.json"))

    def sent(panel, names):
        return [field for field, name in panel.infotext_fields if name in names]

    assert sent(panel, panel.paste_field_names) == panel.inputs
    assert sent(other, panel.paste_field_names) == other.inputs
    assert len(set(panel.paste_field_names)) == len(panel.inputs)


def test_every_infotext_key_but_the_version_has_a_control(panel):
    assert set(panel.paste_field_names) - {"ToDo enabled"} == set(KEYS) - {"ToDo version"}


@pytest.mark.parametrize("method", ["downsample", "similarity", "cluster", "none"])
@pytest.mark.parametrize("target", ["keys/values", "all"])
def test_what_a_method_does_not_use_is_hidden(method, target):
    shown = visibility.used_settings({"method": method, "target": target, "resample": "area", "random": False})
    assert "method" in shown
    assert ("factor_1" in shown) == (method == "downsample")
    assert ("ratio_1" in shown) == (method in ("similarity", "cluster"))
    assert ("sx" in shown) == (method == "similarity")
    assert "seed" not in shown  # random is off
    assert "phase" not in shown  # area keeps no position
    assert ("mlp" in shown) == (target == "all" and method != "none")
    assert ("end" in shown) == (method != "none")


def test_the_method_that_takes_over_shows_its_settings_too():
    shown = visibility.used_settings({"afterwards": "cluster", "end": 0.7, "interval": "2.5"})
    assert [name in shown for name in ("factor_1", "ratio_1", "sx")] == [True, True, False]


@pytest.mark.parametrize(("interval", "is_shown"), [("auto", True), ("2", True), ("2.5", True), ("1", False)])
def test_what_is_predicted_is_asked_where_something_is(interval, is_shown):
    shown = visibility.used_settings({"interval": interval})
    assert ("predict" in shown) == is_shown
    assert "sx" not in shown


@pytest.mark.parametrize(
    ("values", "hidden"),
    [
        ({"factor_1": "1", "factor_2": "1"}, {"target", "resample", "phase"}),
        ({"method": "similarity", "ratio_1": 0}, {"target", "sx", "sy", "random", "seed"}),
        ({"resample": "area"}, {"phase"}),
        ({"end": 1}, {"window", "afterwards"}),
        ({"start": 0.2}, {"afterwards"}),
    ],
)
def test_what_has_nothing_to_act_on_is_hidden(values, hidden):
    acting = {"similarity": {"method": "similarity", "ratio_1": 0.5}}.get(values.get("method"), {})
    assert hidden <= set(visibility.used_settings({"start": 0.1, "end": 0.7, **acting}))
    assert not hidden & set(visibility.used_settings({"end": 0.7, **values} if "start" not in values else values))


@pytest.mark.parametrize("bad", [{"end": 0}, {"ratio_1": 0.9, "sx": 1}, {"factor_1": "2.5"}, {"seed": "x"}])
def test_a_value_that_is_not_possible_counts_as_the_default(bad):
    shown = visibility.used_settings({"method": "similarity", "start": 0.5, "end": 0.7, **bad})
    assert "sx" in shown


def test_only_unused_controls_start_hidden(panel):
    used = Settings().used
    assert {name: control.visible for name, control in panel.controls.items()} == {n: n in used for n in SETTINGS}


def test_img2img_never_shows_the_passes_of_txt2img(tmp_path):
    with gr.Blocks() as blocks:
        panel = accordion.build("img2img", Presets(tmp_path / "presets.json"))
    assert not panel.controls["passes"].visible
    panel.controls["method"].init_field(None)  # as the WebUI does after it has loaded the saved defaults
    assert not panel.controls["passes"].visible
    _, _, _, _, *updates = answer_of(blocks)("{}", "custom", *values_of(panel, {})[1:])
    assert not dict(zip(SETTINGS, updates, strict=True))["passes"]["visible"]


def answer_of(blocks):
    """The one handler that answers the page's questions."""
    (found,) = [each.fn for each in blocks.fns if getattr(each.fn, "__name__", "") == "answer"]
    return found


def test_only_a_line_that_changes_by_itself_is_asked_for_again():
    assert "data-ask-again" in accordion.answered('{"question": 2}', NOT_LOADED)
    assert "data-ask-again" not in accordion.answered('{"question": 2}', "Nothing to reduce: hires fix is off.")


def test_one_answer_tells_the_line_the_preset_and_what_is_shown(tmp_path):
    presets = Presets(tmp_path / "presets.json")
    with gr.Blocks() as blocks:
        panel = accordion.build("txt2img", presets)
    presets.save("mine", Settings(method="cluster"))
    page = '{"question": 7, "width": 512, "height": 512, "hires": false}'
    changed = values_of(panel, {"method": "cluster", "window": "noise", "sx": 3, "end": 0.5})
    presets.save("mine", Settings(method="cluster", window="noise", sx=3, end=0.5))
    line, choice, advanced, expert, *updates = answer_of(blocks)(page, "custom", *changed[1:])
    assert line == '<span data-question="7">Nothing to reduce: hires fix is off.</span>'
    assert choice["value"] == "mine"
    assert advanced["label"] == "Advanced (Method)"
    assert expert["label"] == "Expert (Start/end unit)", "cluster has no cells"
    assert choice["choices"][-2:] == ["mine", "custom"], "saved after the page was built"
    shown = {name for name, update in zip(SETTINGS, updates, strict=True) if update["visible"]}
    assert shown == set(Settings(method="cluster", end=0.5).used)


def test_no_other_handler_writes_what_the_answer_writes(tmp_path):
    """Several handlers would race."""
    with gr.Blocks() as blocks:
        panel = accordion.build("txt2img", Presets(tmp_path / "presets.json"))
    line = next(block for block in blocks.blocks.values() if block.elem_id == "todo_txt2img_line")
    writers = [event for event in blocks.dependencies if line._id in event["outputs"]]
    assert len(writers) == 1
    changes = [
        e for e in blocks.dependencies if e["backend_fn"] and (panel.controls["end"]._id, "change") in e["targets"]
    ]
    assert changes == []


def test_saved_defaults_of_the_user_decide_what_starts_hidden(tmp_path):
    with gr.Blocks():
        panel = accordion.build("img2img", Presets(tmp_path / "presets.json"))
    panel.controls["method"].value = "similarity"  # what the WebUI does before it calls init_field
    panel.controls["method"].init_field("similarity")
    assert panel.controls["ratio_1"].visible
    assert not panel.controls["factor_1"].visible


@pytest.mark.parametrize("bad", ["ToDo ratio 1", "ToDo end", "ToDo method"])
def test_a_broken_infotext_names_the_field(bad):
    params = {"ToDo method": "similarity", bad: "much"}
    with pytest.raises(SettingsError, match="much"):
        infotext.pasted_setting("end", str)(params)


class Row:
    """What the preset row sends back, without a browser."""

    def __init__(self, folder):
        with gr.Blocks():
            self.extension = Extension(folder, lambda: None)
            self.row = PresetRow("txt2img", self.extension.presets)
            self.row.build_choice()
            self.row.build_own()

    def values(self, settings):
        return [controls.control_value(s, getattr(settings, name)) for name, s in SETTINGS.items()]

    def save(self, name, settings, message=""):
        choice, message = self.row._save(message, name, *self.values(settings))
        return choice.get("value"), message


def test_choosing_a_preset_fills_every_control(tmp_path):
    row = Row(tmp_path)
    updates = row.row._fill("ToMe paper")
    filled = Settings.parse({name: update["value"] for name, update in zip(SETTINGS, updates, strict=True)})
    assert filled == BUILT_IN["ToMe paper"]


@given(anything())
@settings(max_examples=50, deadline=None)
def test_the_choice_names_what_the_controls_are(tmp_path_factory, wanted):
    row = Row(tmp_path_factory.mktemp("extension"))
    known = {settings: name for name, settings in BUILT_IN.items()}
    assert row.row.state("", row.values(wanted))["value"] == known.get(wanted, "custom")


def test_an_own_preset_that_equals_a_built_in_one_stays_chosen(tmp_path):
    row = Row(tmp_path)
    row.save("mine", Settings())
    assert row.row.state("mine", row.values(Settings()))["value"] == "mine"
    assert row.row.state("ToDo balanced", row.values(Settings()))["value"] == "ToDo balanced"
    assert row.row.state("mine", row.values(Settings(end=0.5)))["value"] == "custom"


def test_settings_and_defaults_have_the_settings_and_nothing_else_of_the_panel(tmp_path):
    """The WebUI stores what has a label there, unless it is marked."""
    with gr.Blocks() as blocks:
        panel = accordion.build("txt2img", Presets(tmp_path / "presets.json"))
    fields = (gr.Textbox, gr.Dropdown, gr.Radio, gr.Checkbox, gr.Slider)
    labelled = [b for b in blocks.blocks.values() if isinstance(b, fields) and b.label is not None]
    stored = [b for b in labelled if not getattr(b, "do_not_save_to_config", False)]
    assert {block.label for block in stored} == {control.label for control in panel.inputs}


@pytest.mark.parametrize(("method", "target"), [("similarity", "all"), ("downsample", "keys/values")])
def test_a_chosen_method_takes_the_target_of_its_paper(method, target):
    assert accordion._papers_target(method) == target


def test_fractions_of_old_images_are_rounded_and_told(panel):
    with pytest.warns(UserWarning, match="Factor, level 1: 2.5 of the image is now 3"):
        values = pasted(panel.infotext_fields, {"ToDo method": "downsample", "ToDo factor 1": "2.5"})
    assert values[panel.controls["factor_1"]] == "3"


def test_saving_says_so_and_chooses_the_new_preset(tmp_path):
    row = Row(tmp_path)
    assert row.save("mine", Settings(factor_1=3)) == ("mine", "Saved as mine.")
    assert row.row.state("", row.values(Settings(factor_1=3)))["value"] == "mine"
    assert Extension(tmp_path, lambda: None).presets.get("mine") == Settings(factor_1=3)


def test_replacing_and_deleting_ask_first(tmp_path):
    row = Row(tmp_path)
    row.save("mine", Settings(factor_1=3))
    _, question = row.save(" mine", Settings(factor_1=4))
    assert question == "Click \U0001f4be again to replace mine."
    assert row.extension.presets.get("mine") == Settings(factor_1=3)
    assert row.save("mine", Settings(factor_1=4), question) == ("mine", "Saved as mine.")
    assert row.extension.presets.get("mine") == Settings(factor_1=4)

    _, question = row.row._delete("", "mine")
    assert "again to delete mine" in question
    assert row.row._delete("another message", "mine")[1] == question
    assert row.row._delete(question, "mine")[0]["value"] == "custom"
    assert row.extension.presets.names == list(BUILT_IN)


def test_what_cannot_be_saved_is_said_and_escaped(tmp_path):
    row = Row(tmp_path)
    value, message = row.save("custom", Settings())
    assert value is None
    assert "any name but" in message
    _, message = row.save("<b>", Settings(factor_1=3))
    assert "<b>" not in message
