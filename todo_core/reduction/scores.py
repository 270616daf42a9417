"""Cosine similarities of tokens, as products of unit vectors."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from .grouping import wide

# For each source its highest score, and the index of the destination that has it.
Nearest: TypeAlias = tuple[Tensor, Tensor]

# torch finds the highest value of a row much faster than its index.
# So the search finds the best block of this many scores first, and looks for the index in that block alone.
BLOCK = 64
# Shorter tokens keep a length below 1. Only tokens of zeros are so short in practice.
_SHORTEST = 1e-12


def unit(tokens: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The tokens at length 1, in ``dtype`` or their own; tokens of zeros stay as they are. Not differentiable.

    Half precision is squared and divided in float32, but no copy of the tokens in float32 is stored on a GPU.
    """
    tokens = tokens.detach()
    length = torch.linalg.vector_norm(tokens, dim=-1, keepdim=True, dtype=wide(tokens.dtype)).clamp_min(_SHORTEST)
    return torch.div(tokens, length, out=torch.empty_like(tokens, dtype=dtype or tokens.dtype))


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
