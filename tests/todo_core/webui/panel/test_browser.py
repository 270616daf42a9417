"""The panel in a real browser, on a bare page of the WebUI's gradio: all that can be seen short of generating."""

import json
import time

import pytest

from tests.models import LatentDiffusion, ldm_unet
from tests.todo_core.webui.page import served
from tests.webui.page import browser as web
from todo_core.reason import Reason
from todo_core.settings import Settings
from todo_core.webui.panel import accordion
from todo_core.webui.panel.estimate_line import PREDICTION

pytestmark = pytest.mark.long


def used(**changes):
    """What is shown with the double's sampler, which may add noise."""
    return set(Settings(**changes).used) - PREDICTION


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def url(folder):
    with served(folder) as url:
        yield url


@pytest.fixture(autouse=True)
def checkpoint(monkeypatch):
    from modules import sd_models

    monkeypatch.setattr(sd_models.model_data, "sd_model", LatentDiffusion(ldm_unet(), image_size=64))


@pytest.fixture(params=[""])
def page(request, browser, url, folder):
    page = web.opened(browser, url + request.param)
    yield page
    web.close(page)
    (folder / "presets.json").unlink(missing_ok=True)
    assert page.errors == []


@pytest.fixture
def panel(page):
    return web.Panel(page)


def save(panel, name, **settings):
    panel.unfold()
    panel.set(**settings)
    panel.control("preset_name").locator("input, textarea").fill(name)
    panel.control("preset_save").click()
    wait_for_value(panel.page, "preset", name)


def wait_for_value(page, name, value, tab="txt2img"):
    page.wait_for_function(f"value => document.querySelector('#todo_{tab}_{name} input').value === value", arg=value)


def wait_for_line(page, text, tab="txt2img"):
    page.wait_for_selector(f"#todo_{tab}_line:has-text({json.dumps(text, ensure_ascii=False)})")


def open_hires(page):
    page.locator("#txt2img_hr .label-wrap").first.click()


def test_the_panel_opens_with_the_rest_folded_and_what_is_set_decides_what_is_shown_and_told(page, panel):
    for tab in ("img2img", "txt2img"):
        web.open_tab(page, tab)
        closed = web.Panel(page, tab)
        assert closed.accordion.is_visible()
        assert not closed.enabled
        assert not closed.control("factor_1").is_visible()
        assert "todo-active" not in closed.accordion.get_attribute("class")
    panel.accordion.locator(".label-wrap").first.click()
    panel.control("factor_1").wait_for(state="visible")
    assert panel.enabled
    assert panel.shown() == {"factor_1", "interval", "start", "end"}
    page.wait_for_selector("#todo_txt2img.todo-active")
    panel.unfold_more()
    panel.wait_until_shown(used)
    panel.set(method="similarity", sx=4)  # waits until exactly the used ones are shown
    title = page.locator("#todo_txt2img_advanced .label-wrap").first
    panel.wait_until(lambda: "Cell width" in title.inner_text())
    assert title.inner_text().startswith("Advanced (Method; Target; Cell width)")
    assert panel.control("sx").is_visible(), "a new title leaves the fold open"
    panel.set(random=False, target="keys/values", method="downsample", factor_1="2.5")
    wait_for_line(page, "Factor, level 1: 2.5 is not possible.")
    assert panel.value("factor_1") == "2.5", "it stays in its field"


def test_an_own_preset_is_saved_for_both_tabs(page, panel):
    save(panel, "mine", factor_1=4, end=0.7)
    for name, factor in (("ToDo paper", "2"), ("mine", "4")):
        panel.pick("preset", name)
        wait_for_value(page, "factor_1", factor)
        web.settle(page)  # an answer from before the choice may show the old preset until the next one
        wait_for_value(page, "preset", name)

    web.open_tab(page, "img2img")
    other = web.Panel(page, "img2img")
    other.unfold()
    wait_for_line(page, "512 x 512:", tab="img2img")
    other.pick("preset", "mine")
    wait_for_value(page, "factor_1", "4", tab="img2img")
    wait_for_line(page, "512 x 512: 16x fewer tokens", tab="img2img")  # needs no second box


def test_a_preset_of_another_browser_tab_is_listed_once_this_one_is_looked_at(page, panel, browser, url):
    panel.unfold()
    panel.wait_until_shown(used)
    other = web.opened(browser, url)
    save(web.Panel(other), "theirs", factor_1=4)
    web.close(other)
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    page.wait_for_timeout(500)
    web.settle(page)
    panel.pick("preset", "theirs")
    wait_for_value(page, "factor_1", "4")


def test_the_line_follows_the_page_and_the_checkpoint(page, panel, monkeypatch):
    from modules import sd_models

    model = sd_models.model_data.sd_model
    monkeypatch.setattr(sd_models.model_data, "sd_model", None)
    panel.unfold()
    web.fill_in(page, width=640)  # asks anew, for the page may have its first answer already
    wait_for_line(page, "once the checkpoint is loaded")
    monkeypatch.setattr(sd_models.model_data, "sd_model", model)
    wait_for_line(page, "Hires fix is off. With ✨ 1280 x 1024: 4x fewer tokens")
    open_hires(page)
    page.wait_for_function("() => document.querySelector('#todo_txt2img_line').innerText.startsWith('1280 x 1024: 4x')")
    for fields, size in (({"hr_scale": 1.5}, "960 x 768"), ({"hr_resize_x": 640, "hr_resize_y": 960}, "640 x 960")):
        web.fill_in(page, **fields)
        wait_for_line(page, f"{size}:")


def test_the_line_knows_what_keeps_steps_from_being_predicted(page, panel):
    panel.unfold()
    panel.wait_until_shown(used)
    panel.set(interval=2, predict="whole")
    open_hires(page)
    wait_for_line(page, str(Reason.UNKNOWN))  # as far as the double of the WebUI knows
    controlnet = page.locator("#txt2img_controlnet_ControlNet-0_controlnet_enable_checkbox input")
    controlnet.check()
    wait_for_line(page, "ControlNet is on: layers below level 1 are predicted")
    web.fill_in(page, prompt="a [cow|horse]")
    wait_for_line(page, "the prompt changes in each step: nothing is predicted")
    web.fill_in(page, prompt="a [cow:horse:0.5] (x|y)")
    wait_for_line(page, "ControlNet is on")


def test_a_slow_answer_is_not_overtaken_and_a_page_that_changes_all_the_time_is_answered(page, panel, monkeypatch):
    """The newest question has the last answer, also where an older one takes longer."""
    original, slow = accordion.estimate_line, []

    def line(fields, *args, **kwargs):
        if "384" in fields and not slow:
            slow.append(fields)
            time.sleep(1.5)
        return original(fields, *args, **kwargs)

    monkeypatch.setattr(accordion, "estimate_line", line)
    panel.unfold()
    open_hires(page)
    web.fill_in(page, width=384)
    page.wait_for_timeout(600)
    web.fill_in(page, width=768)
    wait_for_line(page, "1536 x 1024:")
    page.wait_for_timeout(2000)
    assert slow
    assert "1536 x 1024:" in page.inner_text("#todo_txt2img_line")
    page.evaluate("setInterval(() => gradioApp().dispatchEvent(new Event('input')), 20)")
    web.fill_in(page, width=640)
    wait_for_line(page, "1280 x 1024:")


@pytest.mark.parametrize("page", ["?__theme=light", "?__theme=dark"], indirect=True)
def test_nothing_is_cut_off_or_invisible(page, panel):
    panel.unfold()
    panel.wait_until_shown(used)
    open_hires(page)
    wait_for_line(page, "less work")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 1000})
        assert page.evaluate(CUT_OFF) == [], width
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) > 15
        assert min(contrasts.values()) >= 3, sorted(contrasts.items(), key=lambda pair: pair[1])[:3]
    page.add_style_tag(content=SDNEXT)
    assert page.evaluate(OUTSIDE) == []


# its style gives each column 160 pixels, and a row of buttons the width that it has without a break
SDNEXT = """#todo_txt2img { width: 190px; }
    .input-accordion-extra { min-width: min(160px, 100%) !important; }
    fieldset { width: max-content !important; }"""
OUTSIDE = """() => {
    const { right } = document.querySelector('#todo_txt2img').getBoundingClientRect();
    return [...document.querySelectorAll('#todo_txt2img .label-wrap *, #todo_txt2img .todo-columns *')]
        .filter((e) => e.offsetParent && e.getBoundingClientRect().right > right + 1)
        .map((e) => e.outerHTML.slice(0, 90));
}"""
# what is shown and ends to the right of the window
CUT_OFF = """() => [...document.querySelectorAll('#todo_txt2img *')]
    .filter((e) => e.offsetParent && !e.closest('.todo-hidden'))
    .filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map((e) => e.outerHTML.slice(0, 90))"""
# WCAG contrast of each label's text with the background behind it
CONTRASTS = """() => {
    const channels = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
        .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (element) => {
        for (let e = element; e; e = e.parentElement) {
            const colour = channels(getComputedStyle(e).backgroundColor);
            if (colour.length === 3 || colour[3] > 0.5) return colour;
        }
        return [255, 255, 255];
    };
    const found = {};
    for (const label of document.querySelectorAll('#todo_txt2img label > span, #todo_txt2img .label-wrap > span')) {
        if (!label.offsetParent || !label.innerText.trim()) continue;
        const [a, b] = [light(channels(getComputedStyle(label).color)), light(behind(label))].sort((x, y) => y - x);
        found[label.innerText.trim()] = (a + 0.05) / (b + 0.05);
    }
    return found;
}"""
