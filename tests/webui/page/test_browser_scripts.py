"""In a real browser, on the real page: presets, the estimate, the X/Y/Z plot and Compare, in both themes and narrow."""

import json

import pytest

from . import browser as web
from .test_browser import shots  # noqa: F401  a fixture

VIEWS = {"light": ("light", 1400), "dark": ("dark", 1400), "phone": ("dark", 390)}
PRESETS = ("ToDo fast", "ToMe paper", "ToDo only")


@pytest.fixture(params=VIEWS)
def view(request):
    return request.param


@pytest.fixture
def page(webui, chromium, view):
    theme, width = VIEWS[view]
    page = web.opened(chromium, f"{webui.url}/?__theme={theme}")
    page.set_viewport_size({"width": width, "height": 1200})
    web.fill_in(page, prompt="a red circle on hills", steps=2, width=128, height=128, seed=1)
    web.open_hires(page)
    web.fill_in(page, hires_steps=2)
    yield page
    web.close(page)


def wait_until_done(page):
    page.wait_for_selector("#txt2img_gallery img")
    page.wait_for_selector("#html_info_txt2img p")
    page.wait_for_selector("#txt2img_interrupt", state="hidden")


def sideways(page, selector):
    """How many pixels of an element lie right of the window."""
    return page.evaluate(
        "s => document.querySelector(s).getBoundingClientRect().right - document.documentElement.clientWidth", selector
    )


def space_after_title(page):
    """Pixels between the panel's title and the line in its header, beside it or below it."""
    return page.evaluate(
        """() => {
            const box = (selector) => document.querySelector(selector).getBoundingClientRect();
            const [line, title] = [box("#todo_txt2img_line"), box("#todo_txt2img > .label-wrap > span")];
            return [line.left - title.right, line.top - title.bottom];
        }"""
    )


def test_presets_and_the_line(page, view, shots):  # noqa: F811
    panel = web.Panel(page)
    panel.unfold()
    page.wait_for_selector("#todo_txt2img_line:has-text('Nothing to reduce at 256 x 256')")
    web.fill_in(page, width=512, height=384)
    page.wait_for_selector("#todo_txt2img_line:has-text('1024 x 768:')")
    for name in PRESETS:
        panel._pick(panel.control("preset"), name)
        page.wait_for_timeout(500)
    page.wait_for_function("() => document.querySelector('#todo_txt2img_end input[type=number]').value === '1'")
    panel.accordion.screenshot(path=shots / f"presets-{view}.png")
    assert sideways(page, "#todo_txt2img") <= 0
    beside, below = space_after_title(page)
    assert below >= -2 if view == "phone" else beside >= 8


def test_the_line_follows_the_sampler_and_the_steps(page):
    panel = web.Panel(page)
    panel.unfold()
    panel.set(interval="2", predict="whole")
    web.fill_in(page, width=512, height=512, steps=20, hires_steps=0)
    for sampler, predicted in (
        ("DPM++ 2M", "12 of 20 steps, 8 steps predicted"),
        ("Euler a", "20 steps, 9 steps partly predicted"),
    ):
        web.choose_sampler(page, sampler)
        page.wait_for_selector(f"#todo_txt2img_line:has-text('{predicted}')")
    web.choose_sampler(page, "DPM++ 2M")
    web.fill_in(page, hires_steps=8)
    page.wait_for_selector("#todo_txt2img_line:has-text('6 of 8 steps, 2 steps predicted')")


def test_the_plot_of_three_presets(page, view, shots):  # noqa: F811
    web.choose_script(page, "X/Y/Z plot")
    kind = page.locator("#script_txt2img_xyz_plot_x_type input, [id$=x_type] input").first
    kind.click()
    page.locator(f"[id$=x_type] {web.option('[ToDo] Preset')}").first.click()
    values = page.locator("[id$=x_values_dropdown] input, .gradio-dropdown:has-text('X values') input").first
    values.wait_for(state="visible")
    for name in PRESETS:
        values.click()
        page.locator(f"{web.option(name)}:visible").first.click()
    values.press("Escape")
    page.click("#txt2img_generate")
    wait_until_done(page)
    page.locator("#txt2img_results").screenshot(path=shots / f"plot-{view}.png")
    assert page.locator("#txt2img_gallery img").count() >= 1


def test_compare(page, view, shots):  # noqa: F811
    web.choose_script(page, "ToDo compare")
    page.wait_for_selector("#todo_compare_txt2img_presets", state="visible")
    page.screenshot(path=shots / f"compare-controls-{view}.png", full_page=True)
    page.click("#txt2img_generate")
    wait_until_done(page)
    page.wait_for_selector("#html_log_txt2img_todo table.todo-comparison:not(.pending *)")
    page.screenshot(path=shots / f"compare-{view}.png", full_page=True)
    rows = page.locator("table.todo-comparison tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["baseline", "ToDo balanced", "ToDo fast", "ToMe paper"]
    assert sideways(page, "#html_log_txt2img_todo") <= 0
    answer = page.locator("#generation_info_txt2img textarea").input_value()
    assert len(json.loads(answer)["infotexts"]) == 5
