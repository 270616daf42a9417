"""ToDo: a coarser token grid, by keeping one token of each cell or by averaging the cell.

Source: Smith et al., "ToDo: Token Downsampling for Efficient Generation of High-Resolution Images",
arXiv 2402.13573. The rotating position is this project's own (docs/method.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

Size = tuple[int, int]
NEAREST = ("nearest", "nearest-exact")
RESAMPLES = (*NEAREST, "bilinear", "bicubic", "area", "max")


def downsample(
    size: Size, target: Size, resample: str = "nearest-exact", *, turn: int | None = None
) -> KeptTokens | ResampledGrid:
    """Reduce a grid of ``size`` (h, w) to ``target`` (h', w'), 1 <= h' <= h and 1 <= w' <= w.

    ``turn`` rotates the position that the nearest modes keep in each cell. Turn 0 and None keep the mode's own
    position; ``turns_per_cycle(size, target)`` turns in a row keep every token at least once.
    """
    if not (1 <= target[0] <= size[0] and 1 <= target[1] <= size[1]):
        raise ValueError(f"target {target} must lie between (1, 1) and the size {size}")
    if resample not in RESAMPLES:
        raise ValueError(f"resample {resample!r} is none of {', '.join(RESAMPLES)}")
    if resample not in NEAREST:
        return ResampledGrid(size, target, resample)
    return KeptTokens(size, target, *_kept_lines(size, target, resample == "nearest-exact", turn))


def turns_per_cycle(size: Size, target: Size) -> int:
    """How many turns in a row keep every token at least once: the positions of the largest cell."""
    return math.ceil(size[0] / target[0]) * math.ceil(size[1] / target[1])


@dataclass(frozen=True)
class ResampledGrid:
    """Interpolation, mean or maximum over the grid."""

    size: Size
    target: Size
    resample: str

    def merge(self, x: Tensor) -> Tensor:
        """(b, h*w, c) -> (b, h'*w', c)."""
        return _resampled(x, self.size, self.target, self.resample)

    def unmerge(self, y: Tensor) -> Tensor:
        """(b, h'*w', c) -> (b, h*w, c). A maximum cannot be undone: each token of the cell gets it."""
        return _resampled(y, self.target, self.size, "nearest" if self.resample == "max" else self.resample)


def _resampled(x: Tensor, size: Size, target: Size, resample: str) -> Tensor:
    if resample == "max":
        return _largest(x.unflatten(1, size), target).flatten(1, 2)
    grid = F.interpolate(x.transpose(1, 2).unflatten(2, size), size=target, mode=resample)
    return grid.flatten(2).transpose(1, 2)


def _largest(grid: Tensor, target: Size) -> Tensor:
    """The largest values of each window of a grid (b, h, w, c); torch's own pooling would also store where they are.

    Windows are those of adaptive pooling: from floor(i * side / kept) to ceil((i + 1) * side / kept).
    """
    for dim, kept in ((1, target[0]), (2, target[1])):
        if grid.shape[dim] % kept:
            grid = grid.index_select(dim, _windows(grid.shape[dim], kept, grid.device))
    return grid.unflatten(2, (target[1], -1)).unflatten(1, (target[0], -1)).amax((2, 4))


@lru_cache(maxsize=64)
def _windows(side: int, kept: int, device: torch.device) -> Tensor:
    """The positions in each window, as many for each: shorter windows repeat their last position."""
    ends = [-(-(i + 1) * side // kept) for i in range(kept)]
    starts = [i * side // kept for i in range(kept)]
    length = max(end - start for start, end in zip(starts, ends, strict=True))
    with torch.inference_mode(False):  # the cache outlives a caller's inference mode
        positions = [min(s + k, end - 1) for s, end in zip(starts, ends, strict=True) for k in range(length)]
        return torch.tensor(positions).to(device)


@dataclass(frozen=True)
class KeptTokens:
    """One token kept of each cell: those where ``rows`` and ``columns`` of the grid cross."""

    size: Size
    target: Size
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def merge(self, x: Tensor) -> Tensor:
        """(b, h*w, c) -> (b, h'*w', c). Evenly spaced lines need no index tensor: a strided view is copied."""
        grid = x.unflatten(1, self.size)
        rows, columns = _as_slice(self.rows), _as_slice(self.columns)
        if rows and columns:
            return grid[:, rows, columns].flatten(1, 2)
        return x.index_select(1, _flat_positions(self.rows, self.columns, self.size[1], x.device))

    def unmerge(self, y: Tensor) -> Tensor:
        """(b, h'*w', c) -> (b, h*w, c): each token gets the result of the token kept in its cell."""
        rows, columns = _cell_of_each(self.rows, self.size[0]), _cell_of_each(self.columns, self.size[1])
        return y.index_select(1, _flat_positions(rows, columns, self.target[1], y.device))


# Which tokens the nearest modes keep.
#
# Along a side of `side` tokens, `kept` cells are side / kept tokens long, which need not be a whole number. Cell i
# keeps the token floor((i + f) * side / kept). The fraction 0 <= f < 1 is a position inside the cell: torch's "nearest"
# has f = 0, and "nearest-exact" has f = 1/2.
#
# The rotating position divides each cell into n x m equal parts, n = ceil(h / h') down and m = ceil(w / w') across.
# A part is at most one token high and wide, so a cycle through all parts keeps every token. Parts are numbered row by
# row, and turn t keeps part (start + t * stride) mod (n * m).
#
# In part number p of n, f = p / n. So "nearest" starts in part 0, and "nearest-exact" in part n // 2. If n is odd, the
# middle of the cell is the middle of that part, not its beginning; "nearest-exact" then uses f = (p + 1/2) / n.
# The code writes f as the fraction of two integers, 2p / 2n or (2p + 1) / 2n, so that nothing is rounded but the floor.


@lru_cache(maxsize=4096)
def _kept_lines(size: Size, target: Size, exact: bool, turn: int | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The rows and the columns that are kept."""
    if turn is None:
        rows, columns = (_kept_along(s, t, int(exact), 2) for s, t in zip(size, target, strict=True))
        return rows, columns
    n, m = (math.ceil(s / t) for s, t in zip(size, target, strict=True))
    start = (n // 2) * m + m // 2 if exact else 0
    row, column = divmod((start + turn * _stride(n * m)) % (n * m), m)
    rows = _kept_along(size[0], target[0], 2 * row + (exact and n % 2), 2 * n)
    return rows, _kept_along(size[1], target[1], 2 * column + (exact and m % 2), 2 * m)


def _kept_along(side: int, kept: int, numerator: int, denominator: int) -> tuple[int, ...]:
    """floor((i + f) * side / kept) for each cell i along a side, with f = numerator / denominator."""
    return tuple((i * denominator + numerator) * side // (kept * denominator) for i in range(kept))


def _stride(parts: int) -> int:
    """How many parts a turn moves on: about half of them, so that successive turns keep tokens far apart.

    Stride and number of parts have no common divisor, so a cycle visits every part. Example: 9 parts have stride 5
    and are visited in the order 0, 5, 1, 6, 2, 7, 3, 8, 4.
    """
    stride = parts // 2 + 1
    while math.gcd(stride, parts) > 1:
        stride += 1
    return stride


def _as_slice(line: tuple[int, ...]) -> slice | None:
    """The same numbers as a slice, if they are evenly spaced."""
    steps = {b - a for a, b in zip(line, line[1:], strict=False)}
    return slice(line[0], line[-1] + 1, steps.pop() if steps else 1) if len(steps) <= 1 else None


@lru_cache(maxsize=1024)
def _cell_of_each(kept: tuple[int, ...], side: int) -> tuple[int, ...]:
    """For each of ``side`` tokens, the cell whose result it gets; a kept token gets its own."""
    cells = [i * len(kept) // side for i in range(side)]
    for cell, position in enumerate(kept):
        cells[position] = cell
    return tuple(cells)


@lru_cache(maxsize=64)
def _flat_positions(rows: tuple[int, ...], columns: tuple[int, ...], width: int, device: torch.device) -> Tensor:
    """Positions of rows x columns in a flat grid of ``width``; cached, so that a device gets each of them once."""
    with torch.inference_mode(False):  # the cache outlives a caller's inference mode
        flat = torch.tensor(rows)[:, None] * width + torch.tensor(columns)
        return flat.flatten().to(device)
