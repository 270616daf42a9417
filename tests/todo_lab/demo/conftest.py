"""The demo's own gradio is newer than the WebUI's, so these tests run in the demo's environment (tests/run.py)."""

from __future__ import annotations

from importlib.metadata import version

import pytest

if int(version("gradio").split(".")[0]) < 6:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def desk():
    """The shipped pocket model, loaded once."""
    from todo_lab.demo.models import Desk

    return Desk()


@pytest.fixture
def quick():
    """Changes of the page's values that make a run short."""
    return {"width": 64, "height": 64, "steps": 1, "hires_steps": 2, "factor_1": "2"}


@pytest.fixture
def at_once(monkeypatch):
    """At each comparison's begin, how many run then."""
    from todo_lab.demo import models

    running, most, true_compare = [], [], models.compare

    def watched(*args, **options):
        running.append(1)
        most.append(len(running))
        try:
            return true_compare(*args, **options)
        finally:
            running.pop()

    monkeypatch.setattr(desk, "compare", watched)
    return most
