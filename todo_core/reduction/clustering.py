"""Groups of tokens that are equally close to the mean token of their image.

The ToMe paper does not contain this method; a published summary of it does. It is measured as a method of its own.
One-dimensional k-means is Lloyd's algorithm on sorted values, where every group is an interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .tokens import gather_tokens, in_channels, wide

_UNIT = 2.0**32  # of a cosine, as a whole number
_ROUNDS = 8  # of k-means; after this many the groups hardly change


def cluster(metric: Tensor, groups: int) -> Grouping:
    """Group the tokens ``metric`` (b, n, c) by their cosine similarity to the mean token of their image.

    1 <= ``groups`` <= n. The search starts from groups of equal size, without randomness. No group is empty.

    >>> tokens = torch.tensor([[[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.0, 3.0]]])
    >>> cluster(tokens, 2).index
    tensor([[0, 0, 1, 1]])
    """
    b, n, _ = metric.shape
    tokens = metric.to(wide(metric.dtype))
    closeness = F.cosine_similarity(tokens, tokens.mean(1, keepdim=True), dim=-1)
    values, order = closeness.sort(dim=1, stable=True)
    sorted_group = _kmeans(values, groups)
    return Grouping(torch.empty_like(order).scatter_(1, order, sorted_group.expand(b, n)), groups)


@dataclass(frozen=True)
class Grouping:
    """``index`` (b, N), int64: the group, 0 to ``groups`` - 1, of each token. No group is empty."""

    index: Tensor
    groups: int

    def merge(self, x: Tensor) -> Tensor:
        """The mean of each group: (b, N, c) -> (b, groups, c). Half precision is summed in float32."""
        tokens = x.to(wide(x.dtype))
        means = tokens.new_zeros(x.shape[0], self.groups, x.shape[-1])
        means.scatter_reduce_(1, in_channels(self.index, x), tokens, reduce="mean", include_self=False)
        return means.to(x.dtype)

    def unmerge(self, y: Tensor) -> Tensor:
        """Each token gets the result of its group: (b, groups, c) -> (b, N, c)."""
        return gather_tokens(y, self.index)


def _kmeans(values: Tensor, groups: int) -> Tensor:
    """k-means of sorted ``values`` (b, n): the group of each value (b, n), in order from 0 to ``groups`` - 1."""
    b, n = values.shape
    group = (torch.arange(n, device=values.device) * groups // n).expand(b, n)
    exact = (values * _UNIT).to(torch.int64)  # a GPU adds in any order, and only whole numbers have one sum
    for _ in range(_ROUNDS):
        none = exact.new_zeros(b, groups)
        sums, sizes = none.scatter_add(1, group, exact), none.scatter_add(1, group, torch.ones_like(exact))
        centres = (sums / sizes / _UNIT).to(values.dtype)
        middles = (centres[:, 1:] + centres[:, :-1]) / 2
        # each value joins the nearest centre
        starts = torch.searchsorted(values.contiguous(), middles.contiguous())
        is_start = torch.zeros_like(exact).scatter_(1, _spread_out(starts, n), 1)
        group = is_start.cumsum(dim=1)
    return group


def _spread_out(starts: Tensor, n: int) -> Tensor:
    """Move the starts (b, k - 1) of the groups 1 to k - 1 apart, so that each of the k groups has at least one of n."""
    k = starts.shape[1] + 1
    rank = torch.arange(1, k, device=starts.device)
    apart = (starts - rank).clamp(min=0).cummax(dim=1).values + rank
    return apart.minimum(n - k + rank)
