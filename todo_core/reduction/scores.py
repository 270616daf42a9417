"""Cosine similarities of tokens, as products of unit vectors."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from .grouping import wide

# For each source its highest score, and the index of the destination that has it.
Nearest: TypeAlias = tuple[Tensor, Tensor]

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
