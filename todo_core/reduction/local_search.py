"""For each source token, the destination most like it among those near it: the search of a `reach`."""

# A grid of 6 x 8 tokens with cells of 2 x 2 has 3 x 4 cells. Each has one destination.
#
#     0  1  2  3         With reach 1, all four tokens of cell 5 look at the destinations
#     4  5  6  7         of nine cells: 0 1 2, 4 5 6 and 8 9 10.
#     8  9 10 11         The tokens of cell 4 look at 0 1, 4 5 and 8 9; the other three are outside the grid.
#
# All tokens of a cell look at the same destinations. So the scores of a cell are one small matrix product, and the
# whole search is a batch of such products, one a cell. Cells outside the grid are replaced by the nearest ones inside,
# so that all products have one shape, and their scores become -inf.

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from .scores import Nearest, gather_tokens, unit

Size = tuple[int, int]

# At most this many numbers of the destinations' vectors are copied at a time.
_MAX_NUMBERS = 1 << 22  # pragma: no mutate


def nearest_in_reach(
    metric: Tensor,
    sources: Tensor,
    destinations: Tensor,
    size: Size,
    cell: Size,
    reach: int,
    *,
    dtype: torch.dtype | None = None,
) -> Nearest:
    """As `nearest_of_all`, among the destinations of the cells at most ``reach`` away, down and across: (b, s) each.

    ``destinations`` (b, cells) has one position for each cell, row by row.
    """
    tokens = unit(metric, dtype)
    tokens_of, candidates = _by_cell(tokens, size, cell), gather_tokens(tokens, destinations)
    neighbours, outside = _neighbours(size, cell, reach, tokens.device)
    numbers = neighbours.shape[1] * tokens.shape[-1]  # of a cell
    count = max(1, _MAX_NUMBERS // numbers)  # of cells at a time  # pragma: no mutate
    nearest = []
    parts = zip(tokens_of.split(count, dim=1), neighbours.split(count), outside.split(count), strict=True)
    for part, near, beyond in parts:
        scores = part @ candidates[:, near].transpose(2, 3)  # (b, cells, tokens of a cell, neighbours)
        best = scores.masked_fill(beyond[:, None], -torch.inf).max(dim=-1)
        which = near[:, None].expand(scores.shape).gather(-1, best.indices[..., None])[..., 0]
        nearest.append((best.values, which))
    of_tokens = (_by_token(torch.cat(parts, 1), size, cell) for parts in zip(*nearest, strict=True))
    values, which = (of_token.gather(1, sources) for of_token in of_tokens)
    return values, which


@lru_cache(maxsize=16)
def _neighbours(size: Size, cell: Size, reach: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each cell, the k cells at most ``reach`` away, and which of them are outside the grid: (cells, k) each."""
    with torch.inference_mode(False):  # the cache outlives a caller's inference mode
        (rows, no_row), (columns, no_column) = (
            _nearby(-(-side // step), reach, device) for side, step in zip(size, cell, strict=True)
        )
        near = rows[:, None, :, None] * len(columns) + columns[None, :, None, :]
        outside = no_row[:, None, :, None] | no_column[None, :, None, :]
        return near.flatten(2).flatten(0, 1), outside.flatten(2).flatten(0, 1)


def _nearby(count: int, reach: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each of ``count`` cells in a line, those from ``reach`` before to ``reach`` behind; which are no cell."""
    near = torch.arange(count, device=device)[:, None] + torch.arange(-reach, reach + 1, device=device)
    return near.clamp(0, count - 1), (near < 0) | (near >= count)


def _by_cell(x: Tensor, size: Size, cell: Size) -> Tensor:
    """(b, h*w, c) -> (b, cells, tokens of a cell, c), zeros where a cell at the edge is incomplete."""
    missing = [-side % step for side, step in zip(size, cell, strict=True)]
    grid = F.pad(x.unflatten(1, size), (0, 0, 0, missing[1], 0, missing[0]))
    cells = grid.unflatten(2, (-1, cell[1])).unflatten(1, (-1, cell[0])).transpose(2, 3)  # (b, down, across, sy, sx, c)
    return cells.flatten(3, 4).flatten(1, 2)


def _by_token(x: Tensor, size: Size, cell: Size) -> Tensor:
    """(b, cells, tokens of a cell) -> (b, h*w), without what `_by_cell` has filled in."""
    across = -(-size[1] // cell[1])
    cells = x.unflatten(2, cell).unflatten(1, (-1, across)).transpose(2, 3)  # (b, down, sy, across, sx)
    return cells.flatten(3, 4).flatten(1, 2)[:, : size[0], : size[1]].flatten(1)
