"""For each source token, the destination most like it. All pairs are compared, a part of them at a time.

On a CPU with bfloat16 instructions, `rounded_search` narrows the search first and finds the same destinations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .rounded_search import RoundedSearch, rounding_pays
from .scores import BLOCK, Nearest, gather_tokens, highest_scores, unit

# At most this many scores exist at a time, so that no N x N matrix is ever held.
_MAX_SCORES = 1 << 22  # pragma: no mutate
# On a CPU, at most this many sources are scored at a time: their scores then stay in its cache.
_MAX_SOURCES = 512  # pragma: no mutate


def nearest_of_all(
    metric: Tensor, sources: Tensor, destinations: Tensor, *, dtype: torch.dtype | None = None
) -> Nearest:
    """For each source, its highest cosine similarity with a destination, and which destination that is: (b, s) each.

    ``sources`` (b, s) and ``destinations`` (b, d) are positions in ``metric`` (b, n, c). The second result counts the
    destinations, 0 to d - 1. Of equally similar destinations it names the first. ``dtype`` is that of the products.
    """
    metric = metric.detach()
    if metric.device.type == "cpu" and metric.dtype == torch.float32 and sources.shape[1]:
        images = [_nearest_in_image(*image) for image in zip(metric, sources, destinations, strict=True)]
        values, which = (torch.stack(parts) for parts in zip(*images, strict=True))
        return values, which
    tokens = unit(metric, dtype)
    candidates = gather_tokens(tokens, destinations).transpose(1, 2)
    parts = gather_tokens(tokens, sources).split(_sources_at_a_time(metric, destinations.shape[1]), dim=1)
    nearest = [(part @ candidates).max(dim=-1) for part in parts]
    if len(nearest) == 1:
        return nearest[0].values, nearest[0].indices
    return torch.cat([best.values for best in nearest], 1), torch.cat([best.indices for best in nearest], 1)


def _sources_at_a_time(metric: Tensor, destinations: int) -> int:
    """On a GPU few large products are faster: their scores get twice the memory of the tokens (b, n, c).

    Attention and feed-forward of the same tokens need more, so the peak of a UNet call stays as it is.
    """
    on_gpu = max(_MAX_SCORES, 2 * metric[0].numel())  # pragma: no mutate
    scores = _MAX_SCORES if metric.device.type == "cpu" else on_gpu  # pragma: no mutate
    return max(1, scores // max(1, destinations))  # pragma: no mutate


def _nearest_in_image(tokens: Tensor, sources: Tensor, destinations: Tensor) -> Nearest:
    """The same for one image: tokens (n, c), positions (s) and (d)."""
    count = destinations.shape[0]
    # Copies of the last destination fill the last block. A copy is never the first of its equals.
    padded = torch.cat([destinations, destinations[-1:].expand(-count % BLOCK)])
    candidates = unit(tokens.index_select(0, padded))
    rounded = RoundedSearch(candidates) if rounding_pays(candidates) else None
    nearest = []
    most = max(1, min(_MAX_SOURCES, _MAX_SCORES // count))  # pragma: no mutate
    for part in sources.tensor_split(-(-len(sources) // most)):  # pragma: no mutate
        vectors = unit(tokens.index_select(0, part))
        best = rounded.search(vectors) if rounded else None
        if best is None:
            rounded = None  # rounding that decides too little in one part is unlikely to decide more in the next
            best = highest_scores(vectors, candidates)
        nearest.append(best)
    values, which = (torch.cat(parts) for parts in zip(*nearest, strict=True))
    return values, which.clamp(max=count - 1)  # scores of NaN equal no destination
