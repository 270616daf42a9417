"""ToDo: a coarser token grid, by keeping one token of each cell or by averaging the cell.

Source: Smith et al., "ToDo: Token Downsampling for Efficient Generation of High-Resolution Images",
arXiv 2402.13573. The rotating position is this project's own (docs/method.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from .tables import kept_tables

Size = tuple[int, int]
NEAREST = ("nearest", "nearest-exact")
RESAMPLES = (*NEAREST, "bilinear", "bicubic", "area", "max")


@lru_cache(maxsize=1024)
def stride(size: Size, factor: int, turn: int, *, exact: bool = True) -> KeptTokens:
    """Keep every ``factor``-th row and column of a grid of ``size`` (h, w), from a position that ``turn`` chooses.

    A cell has factor x factor positions, numbered row by row; fewer if the grid is smaller. Turn 0 keeps the position
    of the mode "nearest-exact" (``exact``) or "nearest". The next turns walk over the cell, so as many turns as it has
    positions keep every token exactly once. Raises ValueError if ``factor`` is below 1.

    >>> tokens = torch.arange(16)[None, :, None]  # a grid of 4 x 4
    >>> [stride((4, 4), 2, turn).merge(tokens).flatten().tolist() for turn in range(4)]
    [[5, 7, 13, 15], [4, 6, 12, 14], [1, 3, 9, 11], [0, 2, 8, 10]]
    """
    if factor < 1:
        raise ValueError(f"factor {factor} must be 1 or more")
    rows, columns = (min(factor, side) for side in size)
    first = (rows // 2) * columns + columns // 2 if exact else 0
    position = (first + turn * _walk(rows * columns)) % (rows * columns)
    kept = (KeptLines.strided(*each) for each in zip(size, divmod(position, columns), (factor, factor), strict=True))
    return KeptTokens(size, *kept)


def _walk(positions: int) -> int:
    """How many positions a turn moves on: about half of them, so that successive turns keep tokens far apart.

    This number and ``positions`` have no common divisor, so a cycle visits every position. Example: 9 positions are
    visited in the order 0, 5, 1, 6, 2, 7, 3, 8, 4.
    """
    step = positions // 2 + 1
    while math.gcd(step, positions) > 1:
        step += 1
    return step


def downsample(size: Size, target: Size, resample: str = "nearest-exact") -> KeptTokens | ResampledGrid:
    """Reduce a grid of ``size`` (h, w) to ``target`` (h', w'), 1 <= h' <= h and 1 <= w' <= w, as torch's resampling.

    >>> halved = downsample((2, 4), (1, 2), "nearest")
    >>> kept = halved.merge(torch.arange(8)[None, :, None])
    >>> kept.flatten().tolist(), halved.unmerge(kept).flatten().tolist()
    ([0, 2], [0, 0, 2, 2, 0, 0, 2, 2])
    """
    if not (1 <= target[0] <= size[0] and 1 <= target[1] <= size[1]):
        raise ValueError(f"target {target} must lie between (1, 1) and the size {size}")
    if resample not in RESAMPLES:
        raise ValueError(f"resample {resample!r} is none of {', '.join(RESAMPLES)}")
    if resample not in NEAREST:
        return ResampledGrid(size, target, resample)
    kept = (KeptLines.nearest(*each, resample == "nearest-exact") for each in zip(size, target, strict=True))
    return KeptTokens(size, *kept)


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


@kept_tables
def _windows(side: int, kept: int, device: torch.device) -> Tensor:
    """The positions in each window, as many for each: shorter windows repeat their last position."""
    ends = [-(-(i + 1) * side // kept) for i in range(kept)]
    starts = [i * side // kept for i in range(kept)]
    length = max(end - start for start, end in zip(starts, ends, strict=True))
    positions = [min(s + k, end - 1) for s, end in zip(starts, ends, strict=True) for k in range(length)]
    return torch.tensor(positions, device=device)


@dataclass(frozen=True)
class KeptLines:
    """The rows, or columns, of a grid that are kept; and for each of all of them, the number of its own kept one."""

    kept: tuple[int, ...]
    cells: tuple[int, ...]

    @classmethod
    def strided(cls, side: int, first: int, factor: int) -> KeptLines:
        """Every ``factor``-th from ``first`` on. A cell at the end may keep none, and belongs to the one before."""
        kept = tuple(range(first, side, factor))
        return cls(kept, tuple(min(i // factor, len(kept) - 1) for i in range(side)))

    @classmethod
    @lru_cache(maxsize=256)
    def nearest(cls, side: int, count: int, exact: bool) -> KeptLines:
        """As torch's nearest modes do. Cells are side / count long, which need not be a whole number.

        Cell i keeps the line at its beginning, floor(i * side / count), or with ``exact`` at its middle,
        floor((i + 1/2) * side / count). A kept line belongs to its own cell.
        """
        kept = tuple((2 * i + exact) * side // (2 * count) for i in range(count))
        cells = {i: i * count // side for i in range(side)} | {line: cell for cell, line in enumerate(kept)}
        return cls(kept, (*cells.values(),))

    @cached_property
    def as_slice(self) -> slice | None:
        """The kept ones as a slice, if they are evenly spaced."""
        steps = {after - line for line, after in pairwise(self.kept)} or {1}
        return slice(self.kept[0], self.kept[-1] + 1, steps.pop()) if len(steps) == 1 else None


@dataclass(frozen=True)
class KeptTokens:
    """One token kept of each cell: those where the kept rows and columns of the grid cross."""

    size: Size
    rows: KeptLines
    columns: KeptLines

    def merge(self, x: Tensor) -> Tensor:
        """(b, h*w, c) -> (b, h'*w', c). Evenly spaced lines need no index tensor: a strided view is copied."""
        rows, columns = self.rows.as_slice, self.columns.as_slice
        if rows and columns:
            return x.unflatten(1, self.size)[:, rows, columns].flatten(1, 2)
        return x.index_select(1, _flat_positions(self.rows.kept, self.columns.kept, self.size[1], x.device))

    def unmerge(self, y: Tensor) -> Tensor:
        """(b, h'*w', c) -> (b, h*w, c): each token gets the result of the token kept in its cell."""
        width = len(self.columns.kept)
        return y.index_select(1, _flat_positions(self.rows.cells, self.columns.cells, width, y.device))


@kept_tables
def _flat_positions(rows: tuple[int, ...], columns: tuple[int, ...], width: int, device: torch.device) -> Tensor:
    """Positions of rows x columns in a flat grid of ``width``."""
    return torch.tensor([row * width + column for row in rows for column in columns], device=device)
