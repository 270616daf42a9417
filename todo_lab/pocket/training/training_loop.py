"""A training loop that can be stopped at any step and continues from its last save, and its optimizers.

Muon (Jordan et al. 2024) computes in float32: torch's own computes in bfloat16, which is slow on most CPUs.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from ..model.config import BASE_SIZE

log = logging.getLogger(__name__)

SAVE_EVERY = 60.0  # seconds
SHOWN_EVERY = 20  # steps
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration
NEWTON_SCHULZ_STEPS = 5
MOMENTUM, DECAY = 0.95, 0.01
MATCHED = 0.2  # root mean square of an update of AdamW, so that both take the same learning rate (Liu et al. 2025)


@dataclass(frozen=True)
class Options:
    """A run. `start` is a weights file to go on from; `minutes` is its time if less than the steps take.

    `side` is that of the base pictures in pixels.
    """

    out: Path
    steps: int
    scenes: int = 0
    seed: int = 0
    start: Path | None = None
    layout: str = "sd1"
    side: int = BASE_SIZE
    batch: int = 32
    minutes: float | None = None
    device: str = field(default_factory=lambda: "cuda" if torch.cuda.is_available() else "cpu")


class Loop:
    """AdamW with warm-up, cosine decay and a running average of the weights, over the steps of `options`.

    `loss_of(step, rng)` returns the loss of one batch. `rng` depends on seed and step only, so a resumed run sees the
    same batches. The state is saved to `NAME.pt` in the run's folder.

    With `minutes` the training ends after that time, all calls together, and the learning rate falls with time. With
    `muon` the matrices and filters learn by Muon.
    """

    def __init__(self, name: str, network: nn.Module, options: Options, *, rate: float, muon: bool = False):
        self.name, self.network, self.options, self.rate = name, network, options, rate
        self.limit = math.inf if options.minutes is None else 60 * options.minutes
        self.optimizers = muon_and_adamw(network, self.rate) if muon else [adamw(network.parameters(), self.rate)]
        self.average = {key: value.detach().clone() for key, value in network.state_dict().items()}
        self.step, self.seconds = 0, 0.0
        self._resume()

    def run(self, loss_of: Callable[[int, np.random.Generator], Tensor]) -> None:
        """Train from the saved step to the last one, then load the averaged weights into the network."""
        started = saved = time.monotonic()
        before, recent = self.seconds, []
        try:
            with tqdm(total=self.options.steps, initial=self.step, desc=self.name, unit="step") as bar:
                while self.progress() < 1:
                    recent.append(self._advance(loss_of))
                    bar.update()
                    now = time.monotonic()
                    self.seconds = before + now - started
                    if self.step % SHOWN_EVERY == 0:
                        bar.set_postfix(loss=f"{np.mean(recent):.4f}")
                        recent = []
                    if now - saved > SAVE_EVERY:
                        self._save()
                        saved = now
        finally:  # also when the user stops the run
            self._save()
        self.network.load_state_dict(self.average)

    def progress(self) -> float:
        """How much of the training is done, 0 to 1."""
        return min(1.0, max(self.step / self.options.steps, self.seconds / self.limit))

    def _advance(self, loss_of: Callable[[int, np.random.Generator], Tensor]) -> float:
        torch.manual_seed(self.options.seed * 1_000_003 + self.step)
        for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
            group["lr"] = self.rate * self._rate_factor()
        loss = loss_of(self.step, np.random.default_rng([self.options.seed, self.step]))
        self.network.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        self._average()
        return loss.item()

    def _rate_factor(self) -> float:
        """Factor of the learning rate: 200 steps of warm-up, and half a cosine down to 2 %."""
        return min(1.0, (self.step + 1) / 200) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * self.progress())))

    @torch.no_grad()
    def _average(self) -> None:
        keep = min(0.999, (1 + self.step) / (10 + self.step))
        current = self.network.state_dict()
        floating = [key for key, value in current.items() if value.is_floating_point()]
        torch._foreach_lerp_([self.average[key] for key in floating], [current[key] for key in floating], 1 - keep)
        for key in current.keys() - floating:
            self.average[key].copy_(current[key])

    def _save(self) -> None:
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        weights = {"network": self.network.state_dict(), "average": self.average}
        unfinished = self.options.out / f"{self.name}.part"
        torch.save({"step": self.step, "seconds": self.seconds, **weights, "optimizers": optimizers}, unfinished)
        unfinished.replace(unfinished.with_suffix(".pt"))

    def _resume(self) -> None:
        path = self.options.out / f"{self.name}.pt"
        if not path.exists():
            return
        state = torch.load(path, weights_only=True, map_location=next(self.network.parameters()).device)
        self.step, self.seconds, self.average = state["step"], state["seconds"], state["average"]
        self.network.load_state_dict(state["network"])
        for optimizer, stored in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(stored)
        log.info("%s continues from step %d of %d", self.name, self.step, self.options.steps)


def averaged(folder: Path, name: str) -> dict[str, Tensor]:
    """The averaged weights of the last save."""
    return torch.load(folder / f"{name}.pt", weights_only=True, map_location="cpu")["average"]


def half_on_gpu(device: torch.device | str) -> torch.autocast:
    """bfloat16 on a GPU alone: a CPU without instructions for it is up to 40 times slower."""
    kind = torch.device(device).type
    return torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda")


def adamw(weights: Iterable[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """AdamW as all networks use it."""
    return torch.optim.AdamW(weights, lr=rate, betas=(0.9, 0.99), weight_decay=DECAY)


def muon_and_adamw(network: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices and filters, AdamW for the embeddings and for all vectors."""
    embeddings = {module.weight for module in network.modules() if isinstance(module, nn.Embedding)}
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    matrices = [weight for weight in weights if weight.ndim > 1 and weight not in embeddings]
    others = [weight for weight in weights if weight.ndim == 1 or weight in embeddings]
    return [Muon(matrices, rate), adamw(others, rate)]


class Muon(torch.optim.Optimizer):
    """Momentum whose direction is made orthogonal, for weights of two and more dimensions (rows first).

    A weight (rows, ...) counts as a matrix (rows, product of the others). `lr` is that of AdamW.
    """

    def __init__(self, weights: Iterable[nn.Parameter], lr: float):
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Apply one update from the gradients. Those of one shape go together: a GPU would wait for Python."""
        for group in self.param_groups:
            alike = defaultdict(list)
            for weight in group["params"]:
                alike[weight.flatten(1).shape].append(weight)
            for shape, weights in alike.items():
                updates = orthogonal(torch.stack([self._direction(weight) for weight in weights]))
                rate = group["lr"] * MATCHED * math.sqrt(max(shape))
                for weight, update in zip(weights, updates, strict=True):
                    weight.mul_(1 - group["lr"] * DECAY).sub_(update.view_as(weight), alpha=rate)

    def _direction(self, weight: nn.Parameter) -> Tensor:
        """The running mean of the gradients with Nesterov's look ahead, as a matrix."""
        if "mean" not in self.state[weight]:
            self.state[weight]["mean"] = torch.zeros_like(weight)
        gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
        mean = self.state[weight]["mean"].lerp_(gradient, 1 - MOMENTUM)
        return gradient.lerp(mean, MOMENTUM).flatten(1)


def orthogonal(matrix: Tensor) -> Tensor:
    """Roughly the nearest orthogonal matrix of (..., rows, columns): the singular values come out near 1."""
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = matrix.mT if tall else matrix
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x
