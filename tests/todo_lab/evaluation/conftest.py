"""Fixtures of the evaluation tests."""

from __future__ import annotations

import pytest

from todo_core import Settings
from todo_lab.evaluation import variants
from todo_lab.evaluation.running import jobs as jobs_of
from todo_lab.evaluation.running.jobs import Job
from todo_lab.evaluation.variants import Variant
from todo_lab.sampling.request import Request

PROMPTS = ["a red circle over stripes", "a big blue star over rolling hills", "two pink hearts and a ring on the night"]


@pytest.fixture
def chosen() -> list[Variant]:
    """The baseline, two series of rising amount, and one of another implementation."""
    ours = [
        *(variants.from_settings(Settings(factor_1=factor)) for factor in (2, 4)),
        *(variants.from_settings(Settings(method="similarity", target="all", ratio_1=r)) for r in (0.25, 0.5)),
    ]
    return variants.unique_variants([*ours, variants.from_peer("tomesd", {"ratio": 0.5})])


@pytest.fixture
def work(chosen) -> list[Job]:
    """Three prompts, one seed, one size."""
    base = Request(prompt="", steps=2, hires_steps=4)
    scenes = jobs_of.make_scenes(PROMPTS, seeds=[5], sizes=[(64, 64)], scales=[2.0], base=base)
    return jobs_of.make_jobs(scenes, chosen)
