"""Tokens (b, n, c) by their positions, and the dtype that their sums need."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums: float32 for half precision, which would overflow or lose small terms of many tokens."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def in_channels(positions: Tensor, x: Tensor) -> Tensor:
    """The positions (b, k) as an index into all channels of ``x`` (b, n, c): (b, k, c)."""
    return positions.unsqueeze(-1).expand(-1, -1, x.shape[-1])


def gather_tokens(x: Tensor, positions: Tensor) -> Tensor:
    """The tokens of ``x`` (b, n, c) at ``positions`` (b, k): (b, k, c)."""
    return x.gather(1, in_channels(positions, x))
