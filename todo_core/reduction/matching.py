"""ToMe: bipartite soft matching. Tokens that look most like a destination are averaged into it.

Source: Bolya and Hoffman, "Token Merging for Fast Stable Diffusion", arXiv 2303.17604.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .grouping import Grouping
from .nearest_destination import nearest_of_all, take, unit

Size = tuple[int, int]

# Within a reach this many numbers of destinations are gathered at a time.
_PAIRS = 1 << 22


def match(
    metric: Tensor, size: Size, ratio: float, cell: Size = (2, 2), draws: Tensor | None = None, *, reach: int = 0
) -> Grouping:
    """Group the tokens of a grid of ``size`` (h, w) so that ``int(h*w * ratio)`` of them disappear.

    ``metric`` (b, h*w, c) is what is compared, by cosine similarity. ``cell`` is (sy, sx): one token in each is a
    destination, in the part cells at the edges too. ``draws`` (b, cells) in [0, 1) say which, None the upper left.
    With a ``reach`` a token looks only at the destinations of cells at most so many away, down and across: its cost
    grows with the tokens instead of their square.
    """
    b, n, _ = metric.shape
    destinations = _destinations(size, cell, draws, metric.device).expand(b, -1)
    sources = _others(destinations, n)
    if reach:
        found = _best_near(unit(metric), size, cell, destinations, reach)
        best, nearest = (of_all.gather(1, sources) for of_all in found)
    else:
        best, nearest = nearest_of_all(metric, sources, destinations)
    removed = removable(size, ratio, cell)
    order = best.argsort(dim=1, descending=True, stable=True)
    gone, stay = order[:, :removed], order[:, removed:]

    staying, groups = stay.shape[1], n - removed
    index = torch.empty(b, n, dtype=torch.int64, device=metric.device)
    index.scatter_(1, sources.gather(1, stay), torch.arange(staying, device=metric.device).expand(b, -1))
    index.scatter_(1, destinations, torch.arange(staying, groups, device=metric.device).expand(b, -1))
    index.scatter_(1, sources.gather(1, gone), nearest.gather(1, gone) + staying)
    return Grouping(index, groups)


def removable(size: Size, ratio: float, cell: Size = (2, 2)) -> int:
    """How many tokens of a grid disappear: ``int(h*w * ratio)``, but never a destination."""
    tokens = size[0] * size[1]
    return min(int(tokens * ratio), tokens - cells_of(size, cell))


def cells_of(size: Size, cell: Size) -> int:
    """Number of cells (sy, sx) that cover a grid (h, w), the part cells at its edges included."""
    return -(-size[0] // cell[0]) * -(-size[1] // cell[1])


def random_draws(seeds: Sequence[int], step: int, place: int, size: Size, cell: Size = (2, 2)) -> Tensor:
    """Uniform draws (len(seeds), cells) on the CPU: one stream for each seed, step and place of a block.

    Equal seeds get equal draws, whatever stands beside them.
    """
    rows = {seed: _draw(seed, step, place, cells_of(size, cell)) for seed in set(seeds)}
    return torch.stack([rows[seed] for seed in seeds])


def _draw(seed: int, step: int, place: int, count: int) -> Tensor:
    digest = hashlib.blake2b(f"{seed} {step} {place}".encode(), digest_size=7).digest()
    return torch.rand(count, generator=torch.Generator().manual_seed(int.from_bytes(digest, "little")))


def _destinations(size: Size, cell: Size, draws: Tensor | None, device: torch.device) -> Tensor:
    """Flat positions (1 or b, cells) of the destinations."""
    (top, tall), (left, wide) = (_edges(side, step, device) for side, step in zip(size, cell, strict=True))
    corner, area = top[:, None] * size[1] + left, tall[:, None] * wide
    if draws is None:
        return corner.flatten()[None]
    place = (draws.to(device).unflatten(1, area.shape) * area).long().minimum(area - 1)
    across = wide.expand_as(area)
    return (corner + place // across * size[1] + place % across).flatten(1)


def _edges(side: int, step: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where the cells along a side begin, and how long each is."""
    starts = torch.arange(0, side, step, device=device)
    return starts, (side - starts).clamp(max=step)


def _others(chosen: Tensor, n: int) -> Tensor:
    """The positions 0 to n - 1 that ``chosen`` (b, k) leaves, in order: (b, n - k)."""
    taken = torch.zeros(chosen.shape[0], n, dtype=torch.int8, device=chosen.device).scatter_(1, chosen, 1)
    return taken.argsort(dim=1, stable=True)[:, : n - chosen.shape[1]]


def _best_near(tokens: Tensor, size: Size, cell: Size, destinations: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """As `nearest_of_all` of each token of the grid, among the destinations of the cells around its own: (b, h*w)."""
    near, outside = _neighbours(size, cell, reach, tokens.device)
    groups, there = _by_cell(tokens, size, cell), take(tokens, destinations)
    rows = max(1, _PAIRS // (near.shape[1] * tokens.shape[-1]))
    found = []
    for part, cells, beyond in zip(groups.split(rows, dim=1), near.split(rows), outside.split(rows), strict=True):
        scores = part @ there[:, cells].transpose(2, 3)
        best = scores.masked_fill(beyond[:, None], -torch.inf).max(dim=-1)
        which = cells[:, None].expand(*best.indices.shape[1:], -1).expand(*best.indices.shape, -1)
        found.append((best.values, which.gather(-1, best.indices[..., None])[..., 0]))
    best, which = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    return _by_token(best, size, cell), _by_token(which, size, cell)


def _neighbours(size: Size, cell: Size, reach: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of each cell, those at most ``reach`` away, (cells, k), and which of them lie outside the grid."""
    down, across = (torch.arange(-(-side // step), device=device) for side, step in zip(size, cell, strict=True))
    steps = torch.arange(-reach, reach + 1, device=device)
    rows, columns = down[:, None] + steps, across[:, None] + steps
    beyond = [(sides < 0) | (sides >= len(line)) for sides, line in ((rows, down), (columns, across))]
    inside = rows.clamp(0, len(down) - 1) * len(across), columns.clamp(0, len(across) - 1)
    near = inside[0][:, None, :, None] + inside[1][None, :, None, :]
    outside = beyond[0][:, None, :, None] | beyond[1][None, :, None, :]
    return near.flatten(2).flatten(0, 1), outside.flatten(2).flatten(0, 1)


def _by_cell(x: Tensor, size: Size, cell: Size) -> Tensor:
    """(b, h*w, c) -> (b, cells, tokens of a cell, c), zeros where a part cell has none."""
    over = [-side % step for side, step in zip(size, cell, strict=True)]
    grid = F.pad(x.unflatten(1, size), (0, 0, 0, over[1], 0, over[0]))
    split = grid.unflatten(2, (-1, cell[1])).unflatten(1, (-1, cell[0]))
    return split.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def _by_token(x: Tensor, size: Size, cell: Size) -> Tensor:
    """(b, cells, tokens of a cell) -> (b, h*w); what lies beyond the grid is left out."""
    across = -(-size[1] // cell[1])
    grid = x.unflatten(2, cell).unflatten(1, (-1, across)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
    return grid[:, : size[0], : size[1]].flatten(1)
