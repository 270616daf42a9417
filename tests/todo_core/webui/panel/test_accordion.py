"""The panel, built by the gradio that the WebUI ships: what its handlers answer, and what an infotext sets."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import gradio as gr
import pytest
import torch
from hypothesis import given, settings

from tests.models import LatentDiffusion, shallow_ldm_unet
from tests.todo_core.settings.test_settings import valid_settings
from tests.todo_core.webui.webui_double import pasted
from todo_core import SETTINGS, Settings, SettingsError
from todo_core.reason import Reason
from todo_core.settings import BUILT_IN
from todo_core.webui.extension import on_infotext_pasted
from todo_core.webui.generation import request
from todo_core.webui.panel import accordion, texts
from todo_core.webui.panel.controls import control_value
from todo_core.webui.panel.estimate_line import PageRun
from todo_core.webui.panel.page_course import course_of
from todo_core.webui.presets import Presets


class Page:
    """The panel of a tab without a browser: ``of`` has the state of each element by the end of its name."""

    def __init__(self, folder, tab="txt2img"):
        self.presets = Presets(folder / "presets.json")
        with gr.Blocks() as self.blocks:
            self.panel = accordion.build(tab, self.presets)
        self.ids = {str(b.elem_id).removeprefix(f"todo_{tab}_"): i for i, b in self.blocks.blocks.items()}
        self.states = {
            i: {name: getattr(block, name, None) for name in ("value", "visible", "label", "choices")}
            for i, block in self.blocks.blocks.items()
        }

    def of(self, name):
        return self.states[self.ids[name]]

    def handlers(self, name, event):
        """The events that Python answers, with its functions."""
        on = {"targets": [self.ids[name]], "trigger": event, "backend_fn": True}
        with_functions = zip(self.blocks.dependencies, self.blocks.fns, strict=True)
        return [(each, function.fn) for each, function in with_functions if on.items() <= each.items()]

    def do(self, name, event):
        """What the page does with a click or an input."""
        ((event, answer),) = self.handlers(name, event)
        answers = answer(*(self.states[i]["value"] for i in event["inputs"]))
        for output, new in zip(event["outputs"], answers if len(event["outputs"]) > 1 else [answers], strict=True):
            self.states[output] |= new if isinstance(new, dict) else {"value": new}

    def set(self, wanted=None, **values):
        """Set these controls, or all to ``wanted``; then todo.js asks."""
        values = values if wanted is None else {name: getattr(wanted, name) for name in SETTINGS}
        for name, value in values.items():
            self.of(name)["value"] = control_value(SETTINGS[name], value)
        self.ask()

    def ask(self, **fields):
        self.of("page")["value"] = json.dumps(fields)
        self.do("page", "change")

    def save(self, name):
        """Click the button; returns the message."""
        self.of("preset_name")["value"] = name
        self.do("preset_save", "click")
        return self.of("preset_message")["value"]

    @property
    def values(self):
        return [self.of(name)["value"] for name in SETTINGS]

    @property
    def shown(self):
        return {name for name in SETTINGS if self.of(name)["visible"]}


@pytest.fixture
def page(tmp_path):
    return Page(tmp_path)


@pytest.fixture(scope="module")
def shared_page(tmp_path_factory):
    return Page(tmp_path_factory.mktemp("extension"))


def read(args):
    return request.settings_of(args, BUILT_IN.__getitem__)


@given(valid_settings())
@settings(max_examples=50, deadline=None)
def test_what_is_set_is_asked_for_by_position_and_by_name_and_decides_what_is_shown(shared_page, wanted):
    shared_page.set(wanted)
    by_name = {"enabled": True, **wanted.to_dict()}
    assert read([True, *shared_page.values]) == read([by_name]) == wanted
    assert read([False, *shared_page.values]) is None
    assert shared_page.shown == set(wanted.used)
    assert shared_page.of("preset")["value"] == {s: name for name, s in BUILT_IN.items()}.get(wanted, "custom")


@given(valid_settings().filter(lambda wanted: wanted.method != "none"))
@settings(max_examples=50, deadline=None)
def test_pasting_what_was_written_restores_every_setting_in_use(shared_page, wanted):
    panel = shared_page.panel
    values = pasted(panel.infotext_fields, wanted.to_infotext())
    restored = read([values[control] for control in panel.inputs])
    assert {name: getattr(restored, name) for name in wanted.used} == {n: getattr(wanted, n) for n in wanted.used}


THEIRS = {"ToDo factor": "2.5", "ToDo factor2": "1.0", "ToDo disable after": "0.6"}
AS_OURS = Settings(factor_1=3, factor_2=1, end=0.6, phase="fixed", passes="all", interval=1)
ALWAYS = THEIRS | {"ToDo disable after": "1.0"}, replace(AS_OURS, end=1)


@pytest.mark.parametrize(("params", "expected"), [(THEIRS, AS_OURS), ALWAYS])
def test_fractions_of_the_other_extension_are_rounded_and_told(shared_page, params, expected):
    with pytest.warns(UserWarning, match="Factor, level 1: 2.5 of the image is now 3"):
        values = pasted(shared_page.panel.infotext_fields, params)
    assert read([values[control] for control in shared_page.panel.inputs]) == expected


NOT_MERGED = {"Steps": "20", "Token merging ratio hr": "0.5", "ToDo factor": "1.0"}


@pytest.mark.parametrize("params", [NOT_MERGED, {}, {"ToDo factor": "2.0", "ToDo disable after": "0.0"}])
def test_pasting_an_image_without_reduction_only_switches_off(shared_page, params):
    values = pasted(shared_page.panel.infotext_fields, params)
    assert values.pop(shared_page.panel.enabled) is False
    assert set(values.values()) == {None}


MEDIAN = "'median' is not possible. Use downsample, similarity, cluster, none."
UNKNOWN = [
    ({"ToDo method": "median", "ToDo version": "9.0"}, f"Method: {MEDIAN}"),
    ({"ToDo method": "downsample", "ToDo factor 1": "99", "ToDo end": "much"}, "Factor, level 1: 99 is not possible."),
    ({"ToDo factor": "<b>"}, "Factor, level 1: '<b>' is not possible."),
]


@pytest.mark.parametrize(("params", "told"), UNKNOWN)
def test_an_infotext_with_unknown_values_is_told_once_and_only_switches_off(shared_page, params, told):
    fields, params = shared_page.panel.infotext_fields, {**params}
    on_infotext_pasted("", params)  # not by API
    with pytest.warns(UserWarning, match=f"^ToDo is off: .* the pasted image. {re.escape(told)}") as warned:
        values = pasted(fields, params)
    assert (len(warned), values.pop(shared_page.panel.enabled), {*values.values()}) == (1, False, {None})


@pytest.mark.parametrize(("params", "told"), UNKNOWN)
def test_by_api_a_generation_reports_unknown_values_of_its_infotext(shared_page, params, told):
    panel = shared_page.panel
    values = pasted(panel.infotext_fields, params)
    assert values[panel.enabled] is True
    args = [control.value if values[control] is None else values[control] for control in panel.inputs]
    with pytest.raises(SettingsError) as error:
        read(args)
    name, value = error.value.field, str(error.value.value)
    assert name == "method"
    assert value == "median" or value.startswith("factor_1 = ")


GOOD = {"method": "similarity", "start": 0.5, "end": 0.7}
USED = set(Settings(**GOOD).used)


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        *(({"seed": "x"}, USED), ({"factor_1": "2.5"}, USED), ({"ratio_1": 0.9, "sx": 1}, USED), ({"end": 0.5}, USED)),
        ({"sx": 1, "sy": 1}, set(Settings(method="similarity").used)),
    ],
)
def test_a_value_that_is_not_possible_counts_as_the_default(page, bad, shown):
    page.set(**GOOD | bad)
    assert page.shown == shown
    assert " is not possible. Use " in page.of("line")["value"]
    assert page.of("preset")["value"] == "custom"
    assert page.of("advanced")["label"] == "Advanced"


def test_img2img_never_shows_the_passes_of_txt2img(tmp_path):
    page = Page(tmp_path, "img2img")
    page.set(Settings(method="similarity"))
    assert page.shown == set(Settings(method="similarity").used) - {"passes"}


def test_one_answer_alone_tells_the_line_the_preset_and_what_is_shown(page):
    page.presets.save("mine", Settings(method="cluster", window="noise", sx=3, end=0.5))
    page.set(method="cluster", window="noise", sx=3, end=0.5)
    page.ask(question=7, width=512, height=512, hires=False)
    assert (
        page.of("line")["value"]
        == f'<span title="{texts.LINE}" data-question="7">Nothing to reduce: hires fix is off.</span>'
    )
    assert page.of("preset")["value"] == "mine"
    assert page.of("preset")["choices"] == [*BUILT_IN, "mine"], "saved after the page was built; custom is no choice"
    assert page.of("advanced")["label"] == "Advanced (Method; Start/end unit)", "cluster has no cells"
    page.ask(question=8, width=512, height=512, hires=True)
    assert not any(page.handlers(name, "change") for name in SETTINGS), "several answers would race"
    not_yet = "Estimate: once the checkpoint is loaded."
    assert page.of("line")["value"] == f'<span title="{texts.LINE}" data-question="8" data-ask-again>{not_yet}</span>'


@pytest.mark.parametrize(("sampler", "is_steady"), [("DPM++ 2M", True), ("Euler a", True), ("of an extension", False)])
def test_the_sampler_of_the_page_decides_what_is_predicted_and_shown(page, monkeypatch, sampler, is_steady):
    """The schedule is known in the pass alone, and auto needs it there."""
    model = LatentDiffusion(shallow_ldm_unet(), image_size=64)
    monkeypatch.setattr(accordion.compat, "loaded_model", lambda: model)
    page.set(factor_1=1)
    page.ask(width=1024, height=1024, steps=20, hires=True, sampler=sampler)
    assert ("of 20 steps predicted" in page.of("line")["value"]) == is_steady
    assert ("predict" in page.shown) == is_steady
    page.set(factor_1=2)
    page.ask(width=1024, height=1024, steps=20, hires=True, sampler=sampler)
    assert "tolerance" in page.shown, "it decides start and end too"


def passes(sampler, scheduler="", steps=10, of_steps=None):
    """The number of calls, and the shares of the way that the first and the last but one of them go."""
    model = SimpleNamespace(alphas_cumprod=torch.linspace(0.9999, 0.005, 1000))
    page = PageRun("", 512, 512, steps, sampler, False, False, scheduler, of_steps)
    with torch.random.fork_rng():  # of an image that is made meanwhile
        torch.manual_seed(0)
        course, drawn = course_of(page, model), torch.rand(1)
        assert drawn == torch.rand(1, generator=torch.Generator().manual_seed(0))
    ways = [weight / (1 + at.noise**2) for weight, at in zip(course.weights, course.scales, strict=True)]
    return len(ways), ways[0] / sum(ways), ways[-2] / sum(ways)


def test_the_schedule_of_the_page_is_the_one_that_the_webui_makes():
    karras, uniform = (passes("Euler", name, of_steps=20) for name in ("Karras", "Uniform"))
    assert karras[0] == uniform[0] == 10
    assert karras[1] > 0.25 > uniform[1] == pytest.approx(uniform[2], rel=0.01)
    assert passes("Euler", "Uniform")[0] == passes("Euler", "Karras")[0] == 10
    # the WebUI's own: DDIM makes 4 calls of 6 hires steps, UniPC 5
    assert [passes(name, steps=6, of_steps=12)[0] for name in ("DDIM", "UniPC")] == [4, 5]
    assert [passes(name, steps=20)[0] for name in ("DDIM", "UniPC")] == [19, 20]
    assert passes("Euler", "Unknown")[0] == 10, "as a guess"


@pytest.mark.parametrize(("scheduler", "why"), [("Karras", None), ("Uniform", Reason.GROWS)])
def test_the_sampler_of_the_page_is_asked(scheduler, why):
    page = PageRun("", 512, 512, 10, "DPM++ 2M", False, False, scheduler, 20)
    assert course_of(page, SimpleNamespace()).why_not(whole=True) == why


def test_the_webuis_token_merging_is_named(page, monkeypatch, opts):
    monkeypatch.setattr(accordion.compat, "loaded_model", lambda: LatentDiffusion(shallow_ldm_unet(), image_size=64))
    fields = {"width": 512, "height": 512, "steps": 20, "hires": True, "sampler": "DPM++ 2M", "scheduler": "Karras"}
    named = "(Token merging (0.5) is on: ToDo skips the layers that it merges)"
    for name, passes in (("token_merging_ratio", ["hires", "first"]), ("token_merging_ratio_hr", ["hires"])):
        opts.reset()
        setattr(opts, name, 0.5)
        for each in ("hires", "first"):
            page.set(passes=each, factor_1=2)
            page.ask(**fields)
            assert (named in page.of("line")["value"].replace("&nbsp;", " ")) == (each in passes)


def test_the_webui_stores_the_chosen_preset_and_none_of_its_values(page):
    """It stores what has a label, unless it is marked, and hands the stored choice back before it sends the page."""
    fields = (gr.Textbox, gr.Dropdown, gr.Radio, gr.Checkbox, gr.Slider)
    labelled = [b for b in page.blocks.blocks.values() if isinstance(b, fields) and b.label is not None]
    stored = [b for b in labelled if not getattr(b, "do_not_save_to_config", False)]
    choice = page.blocks.blocks[page.ids["preset"]]
    assert stored == [page.panel.enabled, choice]
    assert choice.custom_script_source == "todo.py", "other extensions have presets too"
    choice.init_field("ToMe paper")
    assert read([True, *(control.value for control in page.panel.settings)]) == BUILT_IN["ToMe paper"]


def test_a_chosen_preset_fills_every_control_and_a_chosen_method_takes_the_target_of_its_paper(page):
    for name in ("ToMe paper", "custom"):
        page.of("preset")["value"] = name
        page.do("preset", "input")
        assert read([True, *page.values]) == BUILT_IN["ToMe paper"]
    for method, target in (("downsample", "keys/values"), ("similarity", "all")):
        page.of("method")["value"] = method
        page.do("method", "input")
        assert page.of("target")["value"] == target


def test_an_own_preset_stays_chosen_beside_an_equal_one_and_replacing_and_deleting_ask_first(page):
    assert page.save("mine") == "Saved as mine."
    page.of("preset")["value"] = "mine"
    page.ask()
    assert page.of("preset")["value"] == "mine", "Balanced has these settings too"
    page.set(factor_1=4)
    assert page.of("preset")["value"] == "custom"
    assert page.of("preset")["choices"] == [*BUILT_IN, "mine", "custom"]
    assert page.save(" mine") == "Click \U0001f4be again to replace mine."
    assert page.presets.get("mine") == Settings()
    assert page.save("mine") == "Saved as mine."
    assert page.presets.get("mine") == Settings(factor_1=4)
    page.ask()
    for text in ("Click \U0001f5d1️ again to delete mine.", "Deleted mine."):
        assert "mine" in page.presets.names
        page.do("preset_delete", "click")
        assert page.of("preset_message")["value"] == text
    page.ask()
    assert page.of("preset")["value"] == "custom"
    assert page.presets.names == list(BUILT_IN)


def test_an_answer_leaves_alone_what_is_chosen_while_it_is_under_way(page):
    ((event, answer),) = page.handlers("page", "change")
    answers = answer(*(page.states[i]["value"] for i in event["inputs"]))
    assert "value" not in answers[event["outputs"].index(page.ids["preset"])]


def test_what_cannot_be_saved_is_told_and_escaped(page, monkeypatch):
    page.of("preset")["value"] = "Fast"
    assert "any name but" in page.save("custom")
    page.set(factor_1="<i>")
    assert page.save("mine").startswith("Factor, level 1: &#x27;&lt;i&gt;&#x27; is not possible.")
    page.set(factor_1=3)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", Mock(side_effect=OSError("<b> is full")))
        assert page.save("mine") == "&lt;b&gt; is full"
    assert page.save("<b>") == "Saved as &lt;b&gt;."
