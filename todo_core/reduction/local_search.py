"""For each source token, the destination most like it among those near it: the search of a `reach`."""

# A grid of 6 x 8 tokens with cells of 2 x 2 has 3 x 4 cells. Each has one destination.
#
#     0  1  2  3         With reach 1, all four tokens of cell 5 look at the destinations
#     4  5  6  7         of nine cells: 0 1 2, 4 5 6 and 8 9 10.
#     8  9 10 11         The tokens of cell 4 look at 0 1, 4 5 and 8 9; the other three are outside the grid.
#
# Neighbouring cells look at almost the same destinations. So a tile of cells is one matrix product: its tokens by the
# destinations of its window, which are those that any of its tokens look at. Scores out of a token's reach become -inf.
# The whole search is a batch of such products. Windows at the edges move inside the grid, so that all have one shape.

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .scores import Nearest, gather_tokens, unit
from .tables import kept_tables

Size = tuple[int, int]

# At most this many numbers of the destinations' vectors, and scores of an image, exist at a time.
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
    candidates = gather_tokens(tokens, destinations)
    tile, windows, far_rows, far_columns = _tiles(size, cell, reach, tokens.device)
    tokens_of = _by_tile(tokens, size, tile)
    numbers = windows.shape[1] * max(tokens_of.shape[2:])  # of a tile  # pragma: no mutate
    count = max(1, _MAX_NUMBERS // numbers)  # of tiles at a time  # pragma: no mutate
    nearest = []
    parts = (tokens_of.split(count, 1), *(table.split(count) for table in (windows, far_rows, far_columns)))
    for part, near, rows, columns in zip(*parts, strict=True):
        far = rows[:, :, None, :, None] | columns[:, None, :, None, :]  # (tiles, ty, tx, rows, columns)
        scores = part @ candidates[:, near].transpose(2, 3)  # (b, tiles, tokens of a tile, cells of its window)
        best = scores.masked_fill_(far.flatten(3).flatten(1, 2), -torch.inf).max(dim=-1)
        which = near[:, None].expand(scores.shape).gather(-1, best.indices[..., None])[..., 0]
        nearest.append((best.values, which))
    of_tokens = (_by_token(torch.cat(found, 1), size, tile) for found in zip(*nearest, strict=True))
    values, which = (of_token.gather(1, sources) for of_token in of_tokens)
    return values, which


@kept_tables
def _tiles(size: Size, cell: Size, reach: int, device: torch.device) -> tuple[Size, Tensor, Tensor, Tensor]:
    """The tokens (ty, tx) of a tile; for each tile, its window of cells, and what is out of reach, as in `_along`."""
    (ty, rows, far_rows), (tx, columns, far_columns) = (
        _along(side, step, reach, device) for side, step in zip(size, cell, strict=True)
    )
    across = -(-size[1] // cell[1])
    windows = rows[:, None, :, None] * across + columns[None, :, None, :]
    far_rows = far_rows.repeat_interleave(len(columns), dim=0)
    return (ty, tx), windows.flatten(2).flatten(0, 1), far_rows, far_columns.repeat(len(rows), 1, 1)


def _along(side: int, step: int, reach: int, device: torch.device) -> tuple[int, Tensor, Tensor]:
    """Along one side: the tokens t of a tile, the cells in each tile's window (tiles, w), and which are out of reach.

    The last, (tiles, t, w), says for each token of a tile which cells of the window are more than ``reach`` away.
    """
    cells = -(-side // step)
    tile = min(max(2, reach), 8, cells)  # in cells: the fastest  # pragma: no mutate
    window = min(tile + 2 * reach, cells)
    first = torch.arange(0, cells, tile, device=device)[:, None]
    seen = (first - reach).clamp(0, cells - window) + torch.arange(window, device=device)
    own = first + torch.arange(tile * step, device=device) // step
    return tile * step, seen, (seen[:, None] - own[:, :, None]).abs() > reach


def _by_tile(x: Tensor, size: Size, tile: Size) -> Tensor:
    """(b, h*w, c) -> (b, tiles, tokens of a tile, c), zeros where a tile at the edge is incomplete."""
    missing = [-side % step for side, step in zip(size, tile, strict=True)]
    grid = F.pad(x.unflatten(1, size), (0, 0, 0, missing[1], 0, missing[0]))
    tiles = grid.unflatten(2, (-1, tile[1])).unflatten(1, (-1, tile[0])).transpose(2, 3)  # (b, down, across, sy, sx, c)
    return tiles.flatten(3, 4).flatten(1, 2)


def _by_token(x: Tensor, size: Size, tile: Size) -> Tensor:
    """(b, tiles, tokens of a tile) -> (b, h*w), without what `_by_tile` has filled in."""
    across = -(-size[1] // tile[1])
    tiles = x.unflatten(2, tile).unflatten(1, (-1, across)).transpose(2, 3)  # (b, down, sy, across, sx)
    return tiles.flatten(3, 4).flatten(1, 2)[:, : size[0], : size[1]].flatten(1)
