"""The shipped model's runner, and a comparison by it; the tests of the page, in page/, have them too."""

from dataclasses import replace

import pytest


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
