"""The demo's gradio is newer than the WebUI's, so these tests run in the demo's environment (tests/run.py)."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

import pytest

if int(version("gradio").split(".")[0]) < 6:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def runner():
    """The shipped pocket model, loaded once."""
    from todo_lab.demo.model_runner import ModelRunner

    return ModelRunner()


@pytest.fixture(scope="session")
def comparison(runner):
    """A comparison of 64 to 128 px."""
    from todo_core import Settings
    from todo_lab.sampling.request import Request

    request = Request(prompt="a red ball on stripes", width=64, height=64, steps=1, hires_steps=2)
    return runner.compare(request, [Settings(factor_1=2)])[0]


@pytest.fixture
def timed(comparison):
    """The comparison as if its steps had taken these seconds."""

    def with_steps(baseline, reduced):
        return replace(
            comparison,
            baseline=replace(comparison.baseline, step_seconds=baseline),
            reduced=replace(comparison.reduced, step_seconds=reduced),
        )

    return with_steps


@pytest.fixture
def quick():
    """Changes of the page's values that make a run short."""
    return {"width": 64, "height": 64, "steps": 1, "hires_scale": 2, "hires_steps": 2, "factor_1": "2"}


@pytest.fixture
def at_once(monkeypatch):
    """The number of running comparisons at the start of each."""
    from todo_lab.demo import model_runner

    running, counts, true_compare = [], [], model_runner.compare_all

    def watched(*args, **options):
        running.append(1)
        counts.append(len(running))
        try:
            return true_compare(*args, **options)
        finally:
            running.pop()

    monkeypatch.setattr(model_runner, "compare_all", watched)
    return counts
