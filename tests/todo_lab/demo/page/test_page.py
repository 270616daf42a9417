"""The page: its functions, and requests to a real gradio server."""

import re
from types import SimpleNamespace

import gradio as gr
import pytest
from gradio_client import Client
from PIL import Image

from tests.models import hook_count
from todo_core import SETTINGS, __version__
from todo_core.webui.panel.controls import control_value
from todo_lab.demo import page_html, results
from todo_lab.demo.page import REQUEST_FIELDS, Page, parse_values
from todo_lab.pocket.model.vocabulary import vocabulary
from todo_lab.sampling.request import Request

VISITOR = SimpleNamespace(session_hash="somebody")
STATE = ("status", "results", "cancel")
RESULT = (
    *("heading", "baseline", "baseline_caption", "own", "own_caption", "other", "other_caption", "acted"),
    *("zoom", "own_map", "other_map", "plan", "data"),
)


@pytest.fixture(scope="session")
def page(runner, opening):
    return Page(runner, opening)


@pytest.fixture(scope="session")
def url(page):
    _, url, _ = page.blocks.launch(prevent_thread_lock=True, quiet=True, server_port=None, show_error=True)
    yield url
    page.blocks.close()


def values(**changes):
    """Values of the page's controls: the defaults with changes by name."""
    start = Request(prompt="a red ball on stripes")
    held = {name: getattr(start, name) for name in REQUEST_FIELDS}
    held |= {f"set_{name}" if name in held else name: control_value(s, s.default) for name, s in SETTINGS.items()}
    assert not changes.keys() - held.keys()
    return list((held | changes).values())


def told(page, *given, on_progress=lambda text: None):
    """What a click returns, by output."""
    outputs = page.compare(VISITOR, lambda share, desc: on_progress(desc), *given)
    return SimpleNamespace(**dict(zip((*STATE, *RESULT), outputs, strict=True)))


def shows_the_last(outputs):
    """The last result stays as it was, with the request that it is of."""
    return outputs.results["elem_classes"] == [] and all(getattr(outputs, name) == gr.skip() for name in RESULT)


# the values of the controls -------------------------------------------------------------------------------------------


def test_the_page_opens_with_the_given_comparison(page, comparison):
    held = [control.value for control in (*page._request.values(), *page._settings.values())]
    assert parse_values(held) == (comparison.request, comparison.settings)
    assert tuple(page._request) == REQUEST_FIELDS
    assert tuple(page._settings) == tuple(SETTINGS)
    parts = [each["props"] for each in page.blocks.config["components"] if "value" in each["props"]]
    shown = {each.get("elem_id"): each["value"] for each in parts}
    assert "<b>baseline</b>: all tokens in 2 steps" in shown["acted"]
    assert re.search(r"([12]) plain steps</b>: all tokens in \1 steps", shown["acted"])
    assert shown["preset"] == "custom"
    assert shown["set_factor_1"] == "2"
    assert shown["prompt"] == comparison.request.prompt
    assert "a small model made for this demo" in shown["model"]
    assert "so its factors differ" in shown["model"]
    texts = [str(each["value"]).split(", ") for each in parts]
    assert any(set(vocabulary().words) <= set(text) for text in texts)


def test_a_preset_fills_the_controls_and_they_name_it_again(page):
    filled = page._fill_settings("ToMe paper")
    held = [update["value"] for update in filled]
    name, *shows = page._update_visibility(*held)
    assert name == "ToMe paper"
    by_name = dict(zip(SETTINGS, shows, strict=True))
    assert by_name["ratio_1"]["visible"]
    assert not by_name["factor_1"]["visible"]
    held[list(SETTINGS).index("end")] = 0.7
    assert page._update_visibility(*held)[0] == "custom"


# the functions behind the buttons ------------------------------------------------------------------------------------


def test_a_comparison_shows_pictures_with_their_infotext_figures_and_plan(page, runner, quick):
    texts = []
    out = told(page, *values(**quick), on_progress=texts.append)
    assert (out.status, out.results["elem_classes"], out.cancel["visible"]) == ("", [], False)
    assert {picture.size for picture in (out.baseline, out.own, out.other)} == {(128, 128)}
    assert (out.zoom.width, out.own_map.width, out.other_map.width) == (3 * 256 + 2 * 6, 128, 128)
    assert "a red ball on stripes" in out.heading  # of which request it is
    for (name, ran), caption in zip(out.data["variants"].items(), (out.own_caption, out.other_caption), strict=True):
        for part in (f"<dt>{name}</dt>", f"{ran['speed']:.2f}x", f"<dd>{results.seconds(ran['seconds'])}</dd>"):
            assert part in caption
    assert f"{ran_psnr(out, 'custom'):.1f} dB" in out.own_caption
    assert " s</dd>" in out.baseline_caption
    assert "<b>custom</b>: 4 % less work; level 1 from 256 to 64 tokens (downsample) in 1 of 2 steps" in out.acted
    assert "hires pass, level 1: 16 x 16, 256 tokens -&gt; 64 by downsample (8 x 8), 3 blocks" in out.plan
    assert "this model was trained at" in out.plan
    assert "left" in texts[-1]
    assert hook_count(runner.model.target) == 0
    plain, ours, fewer = (picture.info["parameters"] for picture in (out.baseline, out.own, out.other))
    assert plain.startswith("a red ball on stripes\nSteps: 1, Sampler: DDIM, Schedule type: DDIM,")
    assert "ToDo" not in plain
    used = "ToDo start: auto (0.5), ToDo end: auto (1), ToDo interval: auto (1)"
    assert ours.endswith(f"ToDo method: downsample, ToDo factor 1: 2, {used}, ToDo version: {__version__}")
    assert "ToDo" not in fewer


def ran_psnr(out, name):
    return out.data["variants"][name]["difference"]["psnr"]


def test_the_page_says_why_nothing_was_reduced(page, quick):
    out = told(page, *values(**quick | {"factor_1": "1", "factor_2": "1"}))
    assert "nothing reduced: whole steps need 6 or more steps" in out.acted
    assert "equal to the baseline" in out.own_caption
    assert "faster" not in out.own_caption
    assert out.data["variants"]["custom"]["difference"] == {"mse": 0.0, "psnr": None, "ssim": 1.0}
    out = told(page, *values(**quick | {"factor_1": "1", "factor_2": "1", "hires_steps": 6, "tolerance": 0}))
    assert re.search(r"<b>custom</b>: nothing reduced: error [0-9.]+, tolerance 0<", out.acted)
    out = told(page, *values(**quick | {"method": "none"}))
    assert "<b>custom</b>: nothing reduced: the method is none" in out.acted
    assert not out.plan


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"width": 68}, "a multiple of 8"), ({"prompt": "a <b>haert</b> on stripes"}, "&lt;b&gt;haert&lt;/b&gt;")],
)
def test_a_refusal_says_why_and_keeps_the_last_result(page, quick, caplog, change, reason):
    out = told(page, *values(**quick | change))
    assert shows_the_last(out)
    assert out.cancel["visible"] is False
    assert reason in out.status
    (record,) = caplog.records
    assert record.getMessage().startswith("page: ")
    assert "\n" not in record.getMessage()
    assert record.exc_info is None


def test_a_cancelled_run_is_no_error_and_the_next_one_runs(page, runner, quick, caplog):
    def cancels(text):
        if text.startswith("Hires pass"):
            page.leave(VISITOR)

    status, results, cancel = page.begin(VISITOR)
    assert (status, results["elem_classes"], cancel["visible"]) == (page_html.ROOM, ["todo-last"], True)
    out = told(page, *values(**quick), on_progress=cancels)
    assert "Cancelled." in out.status
    assert shows_the_last(out)
    assert not caplog.records
    assert not page._stops  # nothing is kept of those who have gone
    assert hook_count(runner.model.target) == 0
    page.begin(VISITOR)
    assert told(page, *values(**quick)).results["elem_classes"] == []


@pytest.mark.parametrize("visitor", [VISITOR, SimpleNamespace(session_hash="somebody else")], ids=["same", "other"])
def test_who_cancels_ends_the_own_run_also_after_a_second_click_and_no_other(page, quick, visitor):
    def clicks_and_cancels(text):
        page.begin(visitor)
        page.leave(visitor)

    page.begin(VISITOR)
    out = told(page, *values(**quick), on_progress=clicks_and_cancels)
    assert ("Cancelled." in out.status) == (visitor is VISITOR)
    page._stops.clear()


# through the server ---------------------------------------------------------------------------------------------------


def test_the_server_makes_a_comparison_and_its_files(url, quick, tmp_path):
    outputs = Client(url, verbose=False, download_files=tmp_path).predict(*values(**quick), api_name="/compare")
    out = SimpleNamespace(**dict(zip(("status", *RESULT), outputs, strict=True)))
    assert (" dB: " in out.own_caption, "by downsample" in out.plan, out.data["request"]["width"]) == (True, True, 64)
    assert f"ToDo version: {__version__}" in Image.open(out.own).info["parameters"]
