"""Reductions: pure functions on token sequences, (b, h*w, c) in, (b, n, c) out. They import torch alone.

Each returns a ``Reduction``: ``merge`` makes fewer tokens, and ``unmerge`` copies results back to the whole grid.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from .clustering import cluster
from .downsampling import downsample, stride
from .matching import cell_count, match, random_draws, removable

__all__ = ["Reduction", "cell_count", "cluster", "downsample", "match", "random_draws", "removable", "stride"]


class Reduction(Protocol):
    """What every method returns for a grid of N tokens, which it reduces to n <= N."""

    def merge(self, x: Tensor) -> Tensor:
        """(b, N, c) -> (b, n, c), same dtype."""

    def unmerge(self, y: Tensor) -> Tensor:
        """(b, n, c) -> (b, N, c), same dtype."""
