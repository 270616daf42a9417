"""The demo's gradio is newer than the WebUI's, so these tests run in the demo's environment (tests/run.py)."""

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
def opening(runner):
    """A comparison of 64 to 128 px: the baseline with ToDo 2, and with plain steps."""
    from todo_core import Settings
    from todo_lab.sampling.request import Request

    request = Request(prompt="a red ball on stripes", width=64, height=64, steps=1, hires_steps=2)
    return runner.compare(request, Settings(factor_1=2))


@pytest.fixture(scope="session")
def comparison(opening):
    """The baseline with ToDo 2."""
    return opening[0]


@pytest.fixture
def timed(comparison):
    """The comparison as if its steps had taken these seconds."""

    def with_steps(baseline, reduced):
        steps = [1] * len(baseline)  # the one in which tokens were reduced
        return replace(
            comparison,
            baseline=replace(comparison.baseline, step_seconds=baseline, steps=steps),
            reduced=replace(comparison.reduced, step_seconds=reduced, steps=steps),
        )

    return with_steps


@pytest.fixture
def quick():
    """Changes of the page's values that make a run short."""
    return {"width": 64, "height": 64, "steps": 1, "hires_scale": 2, "hires_steps": 2, "factor_1": "2"}
