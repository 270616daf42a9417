"""Fixtures of the evaluation tests."""

import pytest

from tests.todo_lab.evaluation.doubles import small_jobs
from todo_core import Settings
from todo_lab.evaluation import variants

PROMPTS = ["a red circle over stripes", "a big blue star over rolling hills", "two pink hearts and a ring on the night"]


@pytest.fixture(scope="session")
def chosen():
    """The baseline, two series of rising amount, and one of another implementation."""
    ours = [
        *(variants.from_settings(Settings(factor_1=factor)) for factor in (2, 4)),
        *(variants.from_settings(Settings(method="similarity", target="all", ratio_1=r)) for r in (0.25, 0.5)),
    ]
    return variants.unique_variants([*ours, variants.from_peer("tomesd", {"ratio": 0.5})])


@pytest.fixture(scope="session")
def work(chosen):
    """Three prompts, one seed, one size."""
    return small_jobs(chosen, PROMPTS)
