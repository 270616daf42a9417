"""The panel in a real browser: what is shown, what is generated, and what comes back from an image."""

import base64
from pathlib import Path

import pytest

from ..helpers import reduced, todo_keys
from . import browser as web


@pytest.fixture
def page(webui, chromium):
    page = web.opened(chromium, webui.url)
    yield page
    web.close(page)


@pytest.fixture
def panel(page):
    return web.Panel(page)


@pytest.fixture(scope="session")
def shots(request, tmp_path_factory):
    """The folder for screenshots."""
    chosen = request.config.getoption("--webui-screenshots")
    folder = Path(chosen) if chosen else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("tab", ["txt2img", "img2img"])
def test_the_panel_is_there_and_off_in_both_tabs(page, tab):
    web.open_tab(page, tab)
    panel = web.Panel(page, tab)
    assert panel.accordion.is_visible()
    assert not panel.enabled
    assert page.errors == []


CASES = {
    "downsample": {
        "factor_1": 3,
        "factor_2": 2,
        "resample": "nearest",
        "phase": "fixed",
        "passes": "all",
        "start": 0.1,
        "end": 0.8,
    },
    "similarity": {
        "method": "similarity",
        "target": "all",
        "ratio_1": 0.4,
        "ratio_2": 0.25,
        "sx": 3,
        "sy": 4,
        "seed": 7,
        "mlp": True,
        "end": 0.75,
        "window": "noise",
        "afterwards": "cluster",
    },
}


# in an order in which each control can be seen when it is set
SOMETHING_ELSE = (
    {"method": "similarity", "target": "all", "ratio_1": 0.1, "ratio_2": 0.1, "sx": 5, "sy": 5, "seed": 9},
    {"attn": False, "crossattn": True, "mlp": False, "start": 0.3, "end": 0.9, "window": "steps", "passes": "first"},
    {"target": "keys/values", "random": False, "method": "cluster", "afterwards": "downsample"},
    {"resample": "nearest-exact", "phase": "rotate", "factor_1": 8, "factor_2": 3, "interval": 3},
)


@pytest.mark.parametrize("case", CASES)
def test_an_image_restores_the_whole_panel(webui, page, panel, shots, case):
    web.fill_in(page, prompt="a cat", steps=4, width=128, height=128, seed=1)
    web.open_hires(page)
    web.fill_in(page, hires_steps=4)
    panel.unfold()
    panel.set(**CASES[case])
    wanted = panel.values()

    webui.start()
    shown = web.generate(page)
    page.screenshot(path=shots / f"generated-{case}.png", full_page=True)
    assert any(call["hooks"] for step in webui.events() for call in step["calls"])
    assert len(todo_keys(shown.replace("\n", " "))) >= len(CASES[case])
    assert "ToDo reduced the hires pass" in page.inner_text("#html_log_txt2img")

    png = web.picture(page)
    for settings in SOMETHING_ELSE:
        panel.set(**settings)
    panel.switch(False)
    assert [name for name in CASES[case] if panel.value(name) == wanted[name]] == []

    assert "ToDo method: " in web.read_png_info(page, png)
    page.screenshot(path=shots / f"png-info-{case}.png")
    page.click("#pnginfo_send_buttons #txt2img_tab, #tab_pnginfo #txt2img_tab")
    panel.wait_until(lambda: panel.values() == wanted)
    page.screenshot(path=shots / f"pasted-{case}.png", full_page=True)
    assert panel.values() == wanted
    panel.wait_until_shown(panel.used())


def test_the_line_is_that_of_the_pasted_image(webui, page, panel):
    """A paste sets some twenty controls, each of which asks for the line anew; the last answer must be the last one."""
    png = base64.b64decode(webui.txt2img({"factor_1": 2}).base64_images[0])
    for _ in range(4):
        page.locator("#txt2img_hr-visible-checkbox").set_checked(False)
        panel.switch(True)
        page.wait_for_selector("#todo_txt2img_line:has-text('ires')")
        web.settle(page)
        web.read_png_info(page, png)
        page.click("#pnginfo_send_buttons #txt2img_tab, #tab_pnginfo #txt2img_tab")
        page.wait_for_selector("#todo_txt2img_line:has-text('128 x 128: 4x fewer keys')")
        web.settle(page)
        page.wait_for_timeout(1000)
        assert "128 x 128: 4x fewer keys" in page.inner_text("#todo_txt2img_line")


def test_an_image_without_todo_switches_the_panel_off(webui, page, panel):
    plain = base64.b64decode(webui.baseline().base64_images[0])
    panel.unfold()
    assert "ToDo" not in web.read_png_info(page, plain)
    page.click("#tab_pnginfo #txt2img_tab")
    page.wait_for_function("() => !document.querySelector('#todo_txt2img-visible-checkbox').checked")


def test_the_button_for_the_last_generation_restores_the_panel(webui, page, panel):
    """The WebUI keeps the infotext from before the sampling."""
    panel.unfold()
    webui.txt2img({"factor_1": 3, "end": 0.7})
    page.click("#txt2img_tools #paste")
    panel.wait_until(lambda: panel.enabled and panel.value("end") == "0.7")
    assert (panel.enabled, panel.value("factor_1"), panel.value("end")) == (True, "3", "0.7")
    webui.txt2img()
    page.click("#txt2img_tools #paste")
    panel.wait_until(lambda: not panel.enabled)
    assert not panel.enabled


def test_send_to_img2img_takes_the_panel_along(webui, page, panel):
    web.fill_in(page, prompt="a cat", steps=1, width=128, height=128, seed=1)
    panel.unfold()
    panel.set(method="cluster", ratio_1=0.3, end=0.9)
    web.generate(page)
    wanted = panel.values()
    page.click("#txt2img_send_to_img2img")
    other = web.Panel(page, "img2img")
    other.wait_until(lambda: other.values() == wanted)
    assert other.values() == wanted
    page.wait_for_selector("#todo_img2img_ratio_1", state="visible")


def test_the_upscale_button_reduces(webui, page, panel):
    """It runs the hires pass alone, on an image that was made without one; the API has no such request."""
    web.fill_in(page, prompt="a cat", steps=2, width=128, height=128, seed=1)
    panel.unfold()
    panel.set(factor_1=2)
    assert "ToDo" not in web.generate(page)
    assert "hires fix is off" in page.inner_text("#html_log_txt2img")

    webui.start()
    web.upscale(page, until="#html_info_txt2img p:has-text('ToDo method: downsample, ToDo factor 1: 2')")
    events = webui.events()
    assert all(step["hires"] for step in events)
    assert reduced(events) == {(1024, 256)}


def test_an_invalid_value_is_reported_under_the_image(webui, page, panel):
    web.fill_in(page, prompt="a cat", steps=2, width=128, height=128, seed=1)
    panel.unfold()
    panel.set(method="similarity", seed="much")
    assert "ToDo" not in web.generate(page)
    comments = page.inner_text("#html_log_txt2img")
    assert "ToDo is off for this image. Destination seed: 'much' is not possible." in comments
