"""The demo's own gradio is newer than the WebUI's, so these tests run in the demo's environment (tests/run.py)."""

from __future__ import annotations

from importlib.metadata import version

import pytest

if int(version("gradio").split(".")[0]) < 6:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def desk():
    """The shipped pocket model, loaded once."""
    from todo_core.demo.desk import Desk

    return Desk()


@pytest.fixture
def quick():
    """Changes of the page's values that make a run short."""
    return {"width": 64, "height": 64, "steps": 1, "hires_steps": 2, "factor_1": "2"}
