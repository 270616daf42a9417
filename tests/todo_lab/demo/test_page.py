"""The page: its functions, and requests to a real gradio server."""

from __future__ import annotations

from statistics import median
from types import SimpleNamespace

import gradio as gr
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from PIL import Image

from tests.models import hook_count
from todo_core import SETTINGS, Settings, SettingsError
from todo_core.webui.panel.controls import control_value
from todo_lab.demo import model_runner
from todo_lab.demo import page as page_module
from todo_lab.demo.page import REQUEST_FIELDS, Page, parse_values, request_controls
from todo_lab.sampling.request import Request

VISITOR = SimpleNamespace(session_hash="somebody")


@pytest.fixture(scope="session")
def page(runner):
    return Page(runner)


@pytest.fixture(scope="session")
def url(page):
    _, url, _ = page.blocks.launch(prevent_thread_lock=True, quiet=True, server_port=None, show_error=True)
    yield url
    page.blocks.close()


def values(**changes):
    """The initial values of the page's controls, with changes by name."""
    start = Request(prompt="a red ball on stripes")
    held = {name: getattr(start, name) for name in REQUEST_FIELDS}
    held |= {f"set_{name}" if name in held else name: control_value(s, s.default) for name, s in SETTINGS.items()}
    assert not changes.keys() - held.keys()
    return list((held | changes).values())


def heard(page, *given):
    shares = []
    return page.compare(VISITOR, lambda share, desc: shares.append(share), "pocket", *given), shares


# the values of the controls -------------------------------------------------------------------------------------------


def test_the_controls_open_at_the_defaults_of_both_declarations(page):
    held = [control.value for control in (*page._request.values(), *page._settings.values())]
    request, settings = parse_values(held)
    assert request == Request(prompt=request.prompt)
    assert settings == Settings()
    assert tuple(page._request) == REQUEST_FIELDS
    assert tuple(page._settings) == tuple(SETTINGS)


def test_both_ends_of_every_slider_are_possible():
    with gr.Blocks():
        controls = request_controls()
    for name, control in controls.items():
        if isinstance(control, gr.Slider):
            for end in (control.minimum, control.maximum):
                parse_values(values(**{name: end}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 68}, "width = 68 .*a multiple of 8"),
        ({"width": 100.5}, "width = 100.5 "),
        ({"height": None}, "height = None"),
        ({"steps": 0}, "steps = 0 .*from 1"),
        ({"denoising": 1.5}, "denoising = 1.5 .*to 1"),
        ({"denoising": 0}, "denoising = 0 "),
        ({"set_seed": "x"}, "seed = 'x'"),
        ({"factor_1": "0.5"}, "factor_1 = 0.5 .*from 1 to 8"),
        ({"start": 0.5, "end": 0.5}, "start = 0.5 .*a value below the end"),
    ],
)
def test_an_invalid_value_is_named(change, message):
    with pytest.raises(SettingsError, match=message):
        parse_values(values(**change))


def test_gradios_floats_become_integers():
    request, _ = parse_values(values(width=64.0, seed=3.0))
    assert (request.width, request.seed) == (64, 3)
    assert type(request.width) is int


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


# the function behind the button ---------------------------------------------------------------------------------------


def test_a_comparison_shows_pictures_figures_and_plan(page, runner, quick):
    (status, baseline, reduced, heat, numbers, plan, everything), shares = heard(page, *values(**quick))
    assert {picture.size for picture in (baseline, reduced, heat)} == {(128, 128)}
    assert "times the speed" in status
    for title in ("MSE", "PSNR", "SSIM", "speed"):
        assert title in numbers
    assert "<td>256 (16 x 16)</td><td>64 (8 x 8)</td><td>downsample</td><td>3</td><td>2 of 2 steps</td>" in plan
    assert "Set a factor to reduce anyway" in plan
    assert everything["plan"][0]["outcome"] == "2 of 2 steps"
    steps = everything["step_seconds"]
    assert everything["speedup"] == median(steps["baseline"]) / median(steps["reduced"])
    assert everything["seconds"]["reduced"] == pytest.approx(sum(steps["reduced"]))
    assert everything["difference"]["mse"] > 0
    assert shares
    assert hook_count(runner._model("pocket").target) == 0


def test_the_pictures_carry_their_infotext(page, quick):
    (_, baseline, reduced, *_), _ = heard(page, *values(**quick))
    assert baseline.info["parameters"].startswith("a red ball on stripes\nSteps: 1, Sampler: DDIM,")
    assert "ToDo" not in baseline.info["parameters"]
    assert reduced.info["parameters"].endswith("ToDo: downsample, ToDo factor 1: 2")


def test_the_page_says_why_nothing_was_reduced(page, quick):
    (status, *_, plan, everything), _ = heard(page, *values(**quick | {"factor_1": "1", "factor_2": "1"}))
    assert "Nothing was reduced in the hires pass: level 1: its factor is 1; level 2: its factor is 1." in status
    assert everything["difference"] == {"mse": 0.0, "psnr": None, "ssim": 1.0}
    (status, *_, plan, _), _ = heard(page, *values(**quick | {"method": "none"}))
    assert "the method is none" in status
    assert not plan


def test_an_error_is_one_line_in_the_terminal_without_traceback(page, quick, caplog):
    with pytest.raises(gr.Error) as raised:
        heard(page, *values(**quick | {"prompt": "a <b>cat</b> on stripes"}))
    assert "&lt;b&gt;" in raised.value.message  # the page shows messages as HTML
    assert not raised.value.print_exception
    (record,) = caplog.records
    assert record.getMessage().startswith("page: The caption")
    assert "\n" not in record.getMessage()
    assert record.exc_info is None


def test_a_cancelled_run_says_so_and_the_next_one_runs(page, runner, quick):
    def cancels(share, desc):
        if desc.startswith("reduced hires pass"):
            page.cancel(VISITOR)

    page.begin(VISITOR)
    status, *rest = page.compare(VISITOR, cancels, "pocket", *values(**quick))
    assert "Cancelled." in status
    assert rest == [gr.skip()] * 6
    assert hook_count(runner._model("pocket").target) == 0
    page.begin(VISITOR)
    (status, *_), _ = heard(page, *values(**quick))
    assert "times the speed" in status


def test_one_visitor_does_not_cancel_another(page, quick):
    other = SimpleNamespace(session_hash="somebody else")

    def other_cancels(share, desc):
        page.begin(other)
        page.cancel(other)

    status, *_ = page.compare(VISITOR, other_cancels, "pocket", *values(**quick))
    assert "times the speed" in status


def test_a_second_click_leaves_the_first_run_cancellable(page, quick):
    def asks_again_and_cancels(share, desc):
        page.begin(VISITOR)
        page.cancel(VISITOR)

    page.begin(VISITOR)
    status, *_ = page.compare(VISITOR, asks_again_and_cancels, "pocket", *values(**quick))
    assert "Cancelled." in status


# through the server ---------------------------------------------------------------------------------------------------


def test_the_server_makes_a_comparison(url, quick, tmp_path):
    client = Client(url, download_files=tmp_path, verbose=False)
    status, baseline, reduced, heat, _, plan, everything = client.predict(
        "pocket", *values(**quick), api_name="/compare"
    )
    assert "times the speed" in status
    assert "2 of 2 steps" in plan
    assert Image.open(baseline).size == (128, 128)
    assert Image.open(reduced).info["parameters"].endswith("ToDo factor 1: 2")
    assert everything["request"]["width"] == 64


def test_two_visitors_are_queued(url, quick, at_once):
    jobs = [
        Client(url, verbose=False).submit("pocket", *values(**quick | {"seed": seed}), api_name="/compare")
        for seed in (1, 2)
    ]
    seeds = [job.result(timeout=300)[-1]["request"]["seed"] for job in jobs]
    assert seeds == [1, 2]
    assert at_once == [1, 1]


def test_the_server_rejects_with_the_reason(url, quick):
    client = Client(url, verbose=False)
    with pytest.raises(AppError, match="a multiple of 8"):
        client.predict("pocket", *values(**quick | {"width": 68}), api_name="/compare")
    with pytest.raises(AppError, match="never learned: cat"):
        client.predict("pocket", *values(**quick | {"prompt": "a cat"}), api_name="/compare")


def test_a_visitor_who_leaves_ends_the_run(page, url, quick, monkeypatch):
    client, true_compare = Client(url, verbose=False), model_runner.compare

    def left_alone(*args, **options):
        page.leave(SimpleNamespace(session_hash=client.session_hash))
        return true_compare(*args, **options)

    monkeypatch.setattr(model_runner, "compare", left_alone)
    assert "Cancelled." in client.predict("pocket", *values(**quick), api_name="/compare")[0]
    assert client.session_hash not in page._stops  # nothing is kept of those who have gone


def test_the_page_is_served_at_the_given_port(runner, monkeypatch):
    launched = {}
    monkeypatch.setattr(gr.Blocks, "launch", lambda self, **options: launched.update(options))
    page_module.serve(runner, 7999)
    assert launched["server_port"] == 7999
    assert launched["show_error"]
