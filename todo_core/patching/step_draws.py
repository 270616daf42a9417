"""The random draws of a step, on the device of the tokens: one copy for all blocks and all images of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import reduction
from ..settings import Settings
from .plan import LevelPlan
from .running_calls import UNetCall


@dataclass(frozen=True)
class _Key:
    """What the draws of a step depend on."""

    step: int
    images: tuple[int, ...]  # their seeds, each once
    levels: tuple[LevelPlan, ...]
    device: torch.device


class StepDraws:
    """Makes the draws of a step when its first block asks for them. A copy of the model begins without them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: tuple[_Key, Tensor] | None = None

    def rows(self, seeds: Sequence[int], rank: int, plan: LevelPlan, call: UNetCall, device: torch.device) -> Tensor:
        """The draws (len(seeds), cells) of a block in ``call``."""
        cell = self._settings.sy, self._settings.sx
        drawn = tuple(level for level in call.levels.values() if level.method == "similarity")
        if plan not in drawn:  # a grid that nobody planned
            return reduction.random_draws(seeds, call.step, rank, plan.grid.size, cell)
        key = _Key(call.step, tuple(dict.fromkeys(call.seeds_of_step)), drawn, device)
        made = self._made
        if made is None or made[0] != key:
            made = self._made = key, self._all(key)  # another thread may make its own at the same time
        table, begin, count = made[1], 0, reduction.cell_count(plan.grid.size, cell)
        for level in drawn[: drawn.index(plan)]:
            begin += level.blocks * reduction.cell_count(level.grid.size, cell)
        part = table[:, begin + rank * count : begin + (rank + 1) * count]
        which = [key.images.index(seed) for seed in seeds]
        if which == list(range(len(part))):
            return part
        return part.expand(len(which), -1) if len(part) == 1 else torch.stack([part[i] for i in which])

    def clear(self) -> None:
        """Forget the draws."""
        self._made = None

    def _all(self, key: _Key) -> Tensor:
        """The draws (images, cells of all blocks) of all levels, block by block."""
        cell = self._settings.sy, self._settings.sx
        blocks = [(level, rank) for level in key.levels for rank in range(level.blocks)]
        draws = [reduction.random_draws(key.images, key.step, rank, level.grid.size, cell) for level, rank in blocks]
        return _on_device(torch.cat(draws, dim=1), key.device)

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings, "_made": None}


def _on_device(x: Tensor, device: torch.device) -> Tensor:
    """A copy that nothing waits for: a GPU reads it from pinned memory, which torch keeps until then."""
    if device.type != "cuda":
        return x.to(device)
    return torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=True).copy_(x).to(device, non_blocking=True)
