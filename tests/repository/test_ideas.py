"""The ideas beside ToDo of docs/research: each changes the image, and none stays in the model."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.models import hook_count
from todo_lab.pocket.model.pocket_model import Pocket
from todo_lab.sampling.request import Request


@pytest.fixture
def ideas(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("ideas")


@pytest.mark.slow
def test_each_idea_takes_its_turn_and_leaves_no_trace(ideas: Any) -> None:
    model, request = Pocket(), Request(prompt="a red circle", seed=1, width=96, height=96, steps=1, hires_steps=4)
    found = ideas.measure(model, request, list(ideas.IDEAS))
    assert all(mse > 0 and speed > 0 for mse, speed in found.values())
    alike = {"ToDo auto", "ToDo 2"}  # at 2x
    assert len({mse for mse, _ in found.values()}) == len(found) - len(alike) + 1
    assert hook_count(model.target) == 0
    assert not any("forward" in vars(module) for module in model.target.modules())
    lines = ideas.table([found]).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == [f"| {name}" for name in ideas.IDEAS]
