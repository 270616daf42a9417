"""The page in a real browser: a run, a refusal, a cancellation, and what is in sight on a phone."""

import threading

import pytest

from todo_lab.demo import model_runner
from todo_lab.demo.page import CSS, Page, theme

pytestmark = pytest.mark.long
WIDE, PHONE = {"width": 1300, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 180_000  # milliseconds


@pytest.fixture(scope="module")
def url(runner, opening):
    blocks = Page(runner, opening).blocks
    _, url, _ = blocks.launch(prevent_thread_lock=True, quiet=True, theme=theme(), css_paths=CSS)
    yield url
    blocks.close()


@pytest.fixture
def page(request, browser, url):
    page = browser.new_page()
    page.set_viewport_size(getattr(request, "param", PHONE))
    page.set_default_timeout(PATIENCE)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    page.wait_for_selector("#pictures img")
    yield page
    page.close()
    assert errors == []


@pytest.fixture
def held(monkeypatch):
    """Runs wait at their first step until this event is set."""
    release, true_compare = threading.Event(), model_runner.compare_all

    def waiting(model, request, variants, *, on_step):
        def step(*told):
            on_step(*told)
            assert release.wait(60)
            on_step(*told)

        return true_compare(model, request, variants, on_step=step)

    monkeypatch.setattr(model_runner, "compare_all", waiting)
    yield release
    release.set()


def shorten(page, values):
    """Set the picture so that a run is short."""
    page.click("#picture .label-wrap")
    for name in ("width", "height"):
        page.fill(f"#{name} input", str(values[name]))
    for label in ("Steps", "Hires steps", "Hires scale"):
        field = page.get_by_label(f"number input for {label}", exact=True)
        field.fill(str(values[label.lower().replace(" ", "_")]))
        field.press("Tab")


IN_SIGHT = """(selector) => {
    const { top, left, width } = document.querySelector(selector).getBoundingClientRect();
    return -1 < top && top < innerHeight && left >= 0 && width > 0;
}"""


@pytest.mark.parametrize("page", [WIDE, PHONE], ids=["wide", "phone"], indirect=True)
def test_three_pictures_stand_side_by_side_and_a_run_shows_its_progress_and_then_its_result(page, quick, held):
    boxes = [picture.bounding_box() for picture in page.locator("#pictures img").all()]
    assert len({box["y"] for box in boxes}) == 1
    assert all(box["x"] + box["width"] <= page.viewport_size["width"] for box in boxes)
    assert page.locator("#pictures dt").all_inner_texts()[:2] == ["baseline", "custom"]
    shorten(page, quick)
    page.fill("#prompt textarea", "a blue ball on stripes")
    page.evaluate("scrollTo(0, 0)")
    page.click("#compare")
    page.wait_for_selector("#status :text('step 1 of')")
    assert page.evaluate(IN_SIGHT, "#status")
    assert page.evaluate(IN_SIGHT, "#cancel")
    assert page.locator("#results.todo-last #pictures img").first.is_visible(), "the last result is told apart"
    held.set()
    page.wait_for_selector("#results .todo-request:has-text('a blue ball')")
    assert page.locator("#results.todo-last").count() == 0
    page.wait_for_function(IN_SIGHT, arg="#results")  # the page scrolls a moment after the result is there
    assert page.locator("#cancel").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
