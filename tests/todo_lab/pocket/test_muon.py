"""The optimizer, beside the singular value decomposition and torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from todo_lab.pocket.training.muon import Muon, orthogonal


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 5, 20), (2, 20, 5), (1, 1, 7)])
def test_the_directions_are_those_of_the_nearest_orthogonal_matrix(shape):
    torch.manual_seed(0)
    matrices = torch.randn(shape)
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    found = orthogonal(matrices)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.3
    assert values.max() < 1.3
    cosine = (found * (u @ v)).sum((1, 2)) / found.norm(dim=(1, 2)) / (u @ v).norm(dim=(1, 2))
    assert cosine.min() > 0.95


def test_steps_are_torchs():
    torch.manual_seed(0)
    start = torch.randn(12, 30)
    ours, theirs = nn.Parameter(start.clone().view(12, 6, 5)), nn.Parameter(start.clone())
    optimizers = [
        Muon([ours], 0.01),
        torch.optim.Muon([theirs], lr=0.01, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
    ]
    for _ in range(4):
        gradient = torch.randn(12, 30)
        ours.grad, theirs.grad = gradient.view(12, 6, 5), gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    moved = (theirs - start).norm()
    assert moved > 0.1
    assert (ours.view(12, 30) - theirs).norm() < 0.02 * moved  # torch's computes in bfloat16
