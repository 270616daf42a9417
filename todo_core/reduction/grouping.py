"""Groups of tokens: the tokens of a group are averaged, and its result is copied back to all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums: float32 for half precision, which would overflow or lose small terms of many tokens."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def widened(x: Tensor) -> Tensor:
    """The tokens in the dtype of their sums."""
    return x.to(wide(x.dtype))


@dataclass(frozen=True)
class Grouping:
    """``index`` (b, N), int64: the group, 0 to ``groups`` - 1, of each token. No group is empty."""

    index: Tensor
    groups: int

    def merge(self, x: Tensor) -> Tensor:
        """The mean of each group: (b, N, c) -> (b, groups, c). Half precision is summed in float32."""
        b, _, c = x.shape
        tokens = widened(x)
        means = tokens.new_zeros(b, self.groups, c)
        means.scatter_reduce_(1, self._index_of_channels(c), tokens, reduce="mean", include_self=False)
        return means.to(x.dtype)

    def unmerge(self, y: Tensor) -> Tensor:
        """Each token gets the result of its group: (b, groups, c) -> (b, N, c)."""
        return y.gather(1, self._index_of_channels(y.shape[-1]))

    def _index_of_channels(self, channels: int) -> Tensor:
        return self.index.unsqueeze(-1).expand(-1, -1, channels)
