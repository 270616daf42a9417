"""The comparison with DeepCache, on a stand-in for its package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from todo_lab.pocket.model.pocket_model import Pocket
from todo_lab.sampling.request import Request

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "deepcache.py"


class Helper:
    """Repeats the mid block's output of the last full call."""

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe

    def set_params(self, cache_interval: int, cache_branch_id: int) -> None:
        self.every = cache_interval

    def reset_states(self) -> None:
        self.function_dict: dict[str, Any] = {}
        self.kept, self.cur_timestep = None, 0

    def wrap_modules(self) -> None:
        block = self.pipe.unet.mid_block
        self.function_dict["unet_forward"], forward = self.pipe.unet.forward, block.forward

        def cached(*args: Any, **kwargs: Any) -> Any:
            if self.cur_timestep % self.every == 0:
                self.kept = forward(*args, **kwargs)
            return self.kept

        block.forward = cached

    def unwrap_modules(self) -> None:
        pass


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    package = ModuleType("DeepCache")
    vars(package)["DeepCacheSDHelper"] = Helper
    monkeypatch.setitem(sys.modules, "DeepCache", package)
    spec = importlib.util.spec_from_file_location("deepcache_script", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_variant_takes_its_turn_and_leaves_no_trace(script: Any) -> None:
    pocket = Pocket()
    model = script.Model(pocket, script.converted(pocket))  # it compares the two UNets
    chosen = script.variants([2])
    assert list(chosen) == ["ToDo auto", "ToDo 4", "DeepCache 2", "DeepCache 2 + ToDo auto", "DeepCache 2 + ToDo 4"]
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    request = Request(prompt="a red circle", seed=1, width=128, height=128, steps=2, hires_steps=3)
    script.measure(model, request, chosen, rows)
    assert all(row["mse"] > 0 and row["speed"] > 0 for (row,) in rows.values())
    assert len({row["mse"] for (row,) in rows.values()}) == 5
    assert not any("forward" in vars(module) for module in model.target.modules())
    assert len(list(script.table(2.0, rows))) == 5
    assert isinstance(model.predict(torch.zeros(1, 4, 8, 8), torch.tensor([1]), torch.zeros(1, 77, 128)), torch.Tensor)
