"""Muon in float32 (Jordan et al. 2024). torch's own computes in bfloat16, which is slow on most CPUs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration
STEPS = 5
MATCHED = 0.2  # root mean square of an update of AdamW, so that both take the same learning rate (Liu et al. 2025)


class Muon(torch.optim.Optimizer):
    """Momentum whose direction is made orthogonal, for weights of two and more dimensions (rows first).

    A weight (rows, ...) counts as a matrix (rows, product of the others). `lr` and `decay` are those of AdamW.
    """

    def __init__(self, weights: Iterable[nn.Parameter], lr: float, decay: float = 0.01, momentum: float = 0.95):
        super().__init__(weights, {"lr": lr, "decay": decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Apply one update from the gradients."""
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for weight in group["params"]:
                by_shape[weight.flatten(1).shape].append(weight)
            for (rows, columns), weights in by_shape.items():
                directions = torch.stack([self._direction(weight, group["momentum"]) for weight in weights])
                rate = group["lr"] * MATCHED * math.sqrt(max(rows, columns))
                for weight, update in zip(weights, orthogonal(directions), strict=True):
                    weight.mul_(1 - group["lr"] * group["decay"]).sub_(update.view_as(weight), alpha=rate)

    def _direction(self, weight: nn.Parameter, keep: float) -> Tensor:
        """The running mean of the gradients with Nesterov's look ahead, as a matrix."""
        if "mean" not in self.state[weight]:
            self.state[weight]["mean"] = torch.zeros_like(weight)
        gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
        mean = self.state[weight]["mean"].lerp_(gradient, 1 - keep)
        return gradient.lerp(mean, keep).flatten(1)


def orthogonal(matrices: Tensor) -> Tensor:
    """Roughly the nearest orthogonal matrices of (n, rows, columns): the singular values come out near 1."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x
