"""For each source token, the destination most like it. All pairs are compared, a part of them at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from .tokens import gather_tokens, wide

# For each source its highest score, and the index of the destination that has it.
Nearest = tuple[Tensor, Tensor]

# Shorter tokens keep a length below 1. Only tokens of zeros are so short in practice.
_SHORTEST = 1e-12
# At most this many scores of an image exist at a time, so that no N x N matrix is ever held.
_MAX_SCORES = 1 << 22  # pragma: no mutate
# On a CPU, at most this many sources are scored at a time: their scores then stay in its cache.
_MAX_SOURCES = 512  # pragma: no mutate
# A CPU finds the highest value of a row much faster than its index.
# So it finds the best block of this many scores first, and looks for the index in that block alone.
_BLOCK = 64  # pragma: no mutate


def nearest_of_all(
    metric: Tensor, sources: Tensor, destinations: Tensor, *, dtype: torch.dtype | None = None
) -> Nearest:
    """For each source, its highest cosine similarity with a destination, and which destination that is: (b, s) each.

    ``sources`` (b, s) and ``destinations`` (b, d) are positions in ``metric`` (b, n, c). The second result counts the
    destinations, 0 to d - 1. Of equally similar destinations it names the first. ``dtype`` is that of the products.
    """
    tokens, count = unit(metric, dtype), destinations.shape[1]
    if metric.device.type == "cpu":
        # copies of the last destination fill the last block
        destinations = torch.cat([destinations, destinations[:, -1:].expand(-1, -count % _BLOCK)], 1)
    candidates = gather_tokens(tokens, destinations).transpose(1, 2)
    parts = gather_tokens(tokens, sources).split(_sources_at_a_time(metric, count), dim=1)
    nearest = [_highest(part @ candidates, count) for part in parts]
    if len(nearest) == 1:
        return nearest[0]
    return torch.cat([values for values, _ in nearest], 1), torch.cat([which for _, which in nearest], 1)


def unit(tokens: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The tokens at length 1, in ``dtype`` or their own; tokens of zeros stay as they are. Not differentiable.

    Half precision is squared and divided in float32, but no copy of the tokens in float32 is stored on a GPU.
    """
    tokens = tokens.detach()
    length = torch.linalg.vector_norm(tokens, dim=-1, keepdim=True, dtype=wide(tokens.dtype)).clamp_min(_SHORTEST)
    return torch.div(tokens, length, out=torch.empty_like(tokens, dtype=dtype or tokens.dtype))


def _highest(scores: Tensor, count: int) -> Nearest:
    """The highest of each row of scores (b, s, d), and where it first is; from ``count`` - 1 on all are the same."""
    if scores.device.type != "cpu":
        best = scores.max(dim=-1)
        return best.values, best.indices
    blocks = scores.unflatten(2, (-1, _BLOCK))
    block = blocks.amax(3).argmax(2, keepdim=True)
    values, column = blocks.gather(2, block[..., None].expand(-1, -1, -1, _BLOCK))[:, :, 0].max(2)
    return values, (block[..., 0] * _BLOCK + column).clamp(max=count - 1)


def _sources_at_a_time(metric: Tensor, destinations: int) -> int:
    """The sources at a time. On a GPU few large products are faster: scores get twice the tokens' memory (b, n, c).

    Attention and feed-forward of the same tokens need more, so the peak of a UNet call stays as it is.
    """
    if metric.device.type == "cpu":
        return max(1, min(_MAX_SOURCES, _MAX_SCORES // destinations))  # pragma: no mutate
    return max(1, max(_MAX_SCORES, 2 * metric[0].numel()) // destinations)  # pragma: no mutate
