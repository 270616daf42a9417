"""A headless Chromium for the tests of pages."""

import os
import shutil
from contextlib import contextmanager

import pytest

INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "msedge")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
MISSING = "needs a browser, none is installed. Give --webui-browser PATH, or run: playwright install chromium"


@contextmanager
def launched(chosen):
    """The browser at the path `chosen`, an installed one, or playwright's. Without any, CI fails and others skip."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as started:
        own = started.chromium.executable_path
        path = chosen or next(filter(None, map(shutil.which, (*INSTALLED, own))), None)
        if not path:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)
        browser = started.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
