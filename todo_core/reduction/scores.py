"""Cosine similarities of tokens, as products of unit vectors."""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from .grouping import widened

# For each source its highest score, and the index of the destination that has it.
Nearest: TypeAlias = tuple[Tensor, Tensor]

# torch finds the highest value of a row much faster than its index.
# So the search finds the best block of this many scores first, and looks for the index in that block alone.
BLOCK = 64


def unit(tokens: Tensor) -> Tensor:
    """The tokens at length 1, in their own dtype; tokens of zeros stay as they are."""
    return F.normalize(widened(tokens), dim=-1).to(tokens.dtype)


def gather_tokens(x: Tensor, positions: Tensor) -> Tensor:
    """The tokens of ``x`` (b, n, c) at ``positions`` (b, k): (b, k, c)."""
    return x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def highest_scores(sources: Tensor, destinations: Tensor) -> Nearest:
    """For each source (s, c), the highest product with a destination (d, c), and the first destination that has it.

    d is a multiple of ``BLOCK``.
    """
    blocks = (sources @ destinations.T).unflatten(1, (-1, BLOCK))
    block = blocks.amax(2).argmax(1)
    values, column = blocks[torch.arange(len(sources)), block].max(1)
    return values, block * BLOCK + column
