"""ToMe: bipartite soft matching. The tokens most like a destination are averaged into it.

Source: Bolya and Hoffman, "Token Merging for Fast Stable Diffusion", arXiv 2303.17604.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from .grouping import Grouping
from .local_search import nearest_in_reach
from .nearest_destination import nearest_of_all

Size = tuple[int, int]


def match(
    metric: Tensor, size: Size, ratio: float, cell: Size = (2, 2), draws: Tensor | None = None, *, reach: int = 0
) -> Grouping:
    """Group the tokens of a grid of ``size`` (h, w), so that ``int(h*w * ratio)`` of them disappear.

    Each cell of ``cell`` (sy, sx) tokens has one destination; cells at the edges may be smaller. ``draws`` (b, cells)
    in [0, 1) choose the destinations; None chooses the upper left token of each cell. All other tokens are sources.
    Sources and destinations are compared by the cosine similarity of ``metric`` (b, h*w, c).
    With a ``reach``, a source looks only at the destinations of the cells at most so many away, down and across. The
    cost then grows with the number of tokens, not with its square.
    """
    b, n, _ = metric.shape
    destinations = _destinations(size, cell, draws, metric.device).expand(b, -1)
    sources = _all_but(destinations, n)
    if reach:
        best, nearest = nearest_in_reach(metric, sources, destinations, size, cell, reach)
    else:
        best, nearest = nearest_of_all(metric, sources, destinations)
    removed = removable(size, ratio, cell)
    order = best.argsort(dim=1, descending=True, stable=True)
    merged, kept = order[:, :removed], order[:, removed:]

    # Groups: first each kept source on its own, then each destination with the sources that merge into it.
    alone, groups = kept.shape[1], n - removed
    index = torch.empty(b, n, dtype=torch.int64, device=metric.device)
    index.scatter_(1, sources.gather(1, kept), torch.arange(alone, device=metric.device).expand(b, -1))
    index.scatter_(1, destinations, torch.arange(alone, groups, device=metric.device).expand(b, -1))
    index.scatter_(1, sources.gather(1, merged), nearest.gather(1, merged) + alone)
    return Grouping(index, groups)


def removable(size: Size, ratio: float, cell: Size = (2, 2)) -> int:
    """How many tokens of a grid disappear: ``int(h*w * ratio)``, but never a destination."""
    tokens = size[0] * size[1]
    return min(int(tokens * ratio), tokens - _cell_count(size, cell))


def random_draws(seeds: Sequence[int], step: int, rank: int, size: Size, cell: Size = (2, 2)) -> Tensor:
    """Uniform draws in [0, 1) for `match`, on the CPU: (len(seeds), cells).

    A row depends on its seed, the step and the block's rank alone, so equal seeds have equal rows.
    """
    rows = {seed: _draw(seed, step, rank, _cell_count(size, cell)) for seed in set(seeds)}
    return torch.stack([rows[seed] for seed in seeds])


def _draw(seed: int, step: int, rank: int, count: int) -> Tensor:
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=7).digest()
    return torch.rand(count, generator=torch.Generator().manual_seed(int.from_bytes(digest, "little")))


def _cell_count(size: Size, cell: Size) -> int:
    """Number of cells (sy, sx) that cover a grid (h, w), those cut off at its edges included."""
    return -(-size[0] // cell[0]) * -(-size[1] // cell[1])


def _destinations(size: Size, cell: Size, draws: Tensor | None, device: torch.device) -> Tensor:
    """Positions in the flat grid (1 or b, cells) of the destinations, cell by cell and row by row.

    A cell of height x width tokens numbers them row by row from its upper left one, and a draw in [0, 1) chooses the
    number floor(draw * height * width). Example: in a cell of 2 x 3 tokens, 0.7 chooses number 4, in row 1, column 1.
    """
    (tops, heights), (lefts, widths) = (_starts(side, step, device) for side, step in zip(size, cell, strict=True))
    corners, areas = tops[:, None] * size[1] + lefts, heights[:, None] * widths  # (cells down, cells across)
    if draws is None:
        return corners.flatten()[None]
    # the product may round up to the area itself
    number = (draws.to(device).unflatten(1, areas.shape) * areas).long().minimum(areas - 1)
    return (corners + number // widths * size[1] + number % widths).flatten(1)


def _starts(side: int, step: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where each cell along a side starts, and how many tokens long it is; the last one may be shorter."""
    starts = torch.arange(0, side, step, device=device)
    return starts, (side - starts).clamp(max=step)


def _all_but(positions: Tensor, n: int) -> Tensor:
    """The positions 0 to n - 1 without ``positions`` (b, k), in order: (b, n - k)."""
    chosen = torch.zeros(positions.shape[0], n, dtype=torch.int8, device=positions.device).scatter_(1, positions, 1)
    return chosen.argsort(dim=1, stable=True)[:, : n - positions.shape[1]]
