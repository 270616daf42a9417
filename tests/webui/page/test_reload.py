"""Reload UI runs every script anew: the callbacks must be there once, and work."""

import pytest

from ..helpers import assert_reduced
from . import browser as web


def callbacks(webui):
    return [file for file in webui.get("/todo-probe/callbacks") if file.endswith("scripts/todo.py")]


def restart(page):
    from playwright.sync_api import TimeoutError

    try:
        with page.expect_navigation(timeout=60_000):
            page.click("#settings_restart_gradio")
    except TimeoutError:
        pytest.fail("the WebUI's server did not end for Reload UI, or did not come back; start the WebUI anew")


def test_reload_ui_leaves_one_set_of_callbacks_that_works(chromium, webui):
    assert len(callbacks(webui)) == 1
    page = web.opened(chromium, webui.url)
    web.settle(page)
    web.open_tab(page, "Settings")
    restart(page)
    web.wait_until_ready(page)
    assert not web.Panel(page).enabled
    web.close(page)

    assert len(callbacks(webui)) == 1
    assert assert_reduced(webui).comments.count("ToDo reduced the hires pass") == 1
