"""What a training run is told: its folder, length, data, network and device."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Options:
    """A run. `start` is a weights file to go on from; `minutes` is its time if less than the steps take."""

    out: Path
    steps: int
    scenes: int
    seed: int = 0
    start: Path | None = None
    layout: str = "sd1"
    batch: int = 32
    rate: float | None = None
    minutes: float | None = None
    device: str = field(default_factory=lambda: "cuda" if torch.cuda.is_available() else "cpu")

    def loop(self, rate: float) -> dict[str, Any]:
        """What the training loop is told; `rate` is the stage's own, unless another one was asked for."""
        given = {"folder": self.out, "steps": self.steps, "seed": self.seed, "minutes": self.minutes}
        return given | {"rate": self.rate or rate}
