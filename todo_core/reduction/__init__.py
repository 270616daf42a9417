"""Reductions: pure functions on token sequences, (b, h*w, c) in, (b, n, c) out. They import torch alone.

Each returns a ``Reduction``: ``merge`` makes the fewer tokens, ``unmerge`` spreads results over the whole grid again.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from .clustering import cluster
from .downsampling import downsample, offset_turns
from .matching import match, random_draws, removable

__all__ = ["Reduction", "cluster", "downsample", "match", "offset_turns", "random_draws", "removable"]


class Reduction(Protocol):
    """What every method makes of a grid of N tokens and n <= N reduced ones."""

    def merge(self, x: Tensor) -> Tensor:
        """(b, N, c) -> (b, n, c), same dtype."""

    def unmerge(self, y: Tensor) -> Tensor:
        """(b, n, c) -> (b, N, c), same dtype."""
