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

from .tables import kept_tables

Size = tuple[int, int]
NEAREST = ("nearest", "nearest-exact")
RESAMPLES = (*NEAREST, "bilinear", "bicubic", "area", "max")


@lru_cache(maxsize=1024)
def stride(size: Size, factor: int, turn: int, *, exact: bool = True) -> StridedTokens:
    """Keep every ``factor``-th row and column of a grid of ``size`` (h, w), from a position that ``turn`` chooses.

    A cell has factor x factor positions, numbered row by row; fewer if the grid is smaller. Turn 0 keeps the position
    of the mode "nearest-exact" (``exact``) or "nearest". The next turns walk over the cell, so ``turns_per_cycle``
    turns in a row keep every token exactly once. Raises ValueError if ``factor`` is below 1.

    >>> tokens = torch.arange(16)[None, :, None]  # a grid of 4 x 4
    >>> [stride((4, 4), 2, turn).merge(tokens).flatten().tolist() for turn in range(4)]
    [[5, 7, 13, 15], [4, 6, 12, 14], [1, 3, 9, 11], [0, 2, 8, 10]]
    """
    if factor < 1:
        raise ValueError(f"factor {factor} must be 1 or more")
    rows, columns = (min(factor, side) for side in size)
    first = (rows // 2) * columns + columns // 2 if exact else 0
    position = (first + turn * _walk(rows * columns)) % (rows * columns)
    return StridedTokens(size, factor, *divmod(position, columns))


def turns_per_cycle(size: Size, factor: int) -> int:
    """How many turns in a row keep every token exactly once: the number of positions in a cell."""
    return min(factor, size[0]) * min(factor, size[1])


def _walk(positions: int) -> int:
    """How many positions a turn moves on: about half of them, so that successive turns keep tokens far apart.

    This number and ``positions`` have no common divisor, so a cycle visits every position. Example: 9 positions are
    visited in the order 0, 5, 1, 6, 2, 7, 3, 8, 4.
    """
    step = positions // 2 + 1
    while math.gcd(step, positions) > 1:
        step += 1
    return step


@dataclass(frozen=True)
class StridedTokens:
    """The tokens at rows ``row``, ``row + factor`` ... and columns ``column``, ``column + factor`` ..., as slices."""

    size: Size
    factor: int
    row: int
    column: int

    def merge(self, x: Tensor) -> Tensor:
        """(b, h*w, c) -> (b, h'*w', c)."""
        return x.unflatten(1, self.size)[:, self.row :: self.factor, self.column :: self.factor].flatten(1, 2)

    def unmerge(self, y: Tensor) -> Tensor:
        """(b, h'*w', c) -> (b, h*w, c): each token gets the result of the token kept in its cell.

        A cell at the lower or right edge may keep none. Its tokens get the result of the cell before.
        """
        (h, w), f = self.size, self.factor
        kept = y.unflatten(1, (len(range(self.row, h, f)), -1))
        kept = _extended(_extended(kept, 1, -(-h // f)), 2, -(-w // f))
        cells = kept[:, :, None, :, None].expand(-1, -1, f, -1, f, -1)
        return cells.flatten(3, 4).flatten(1, 2)[:, :h, :w].flatten(1, 2)


def _extended(grid: Tensor, dim: int, lines: int) -> Tensor:
    """``grid`` with its last line along ``dim`` repeated, if one is missing to ``lines``."""
    return torch.cat([grid, grid.narrow(dim, -1, 1)], dim) if grid.shape[dim] < lines else grid


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
    rows, columns = (_kept_along(s, t, resample == "nearest-exact") for s, t in zip(size, target, strict=True))
    return KeptTokens(size, target, rows, columns)


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


@lru_cache(maxsize=256)
def _kept_along(side: int, kept: int, exact: bool) -> tuple[int, ...]:
    """The token that each cell keeps along a side, as torch's nearest modes do.

    Cells are side / kept tokens long, which need not be a whole number. Cell i keeps the token at its beginning,
    floor(i * side / kept), or with ``exact`` at its middle, floor((i + 1/2) * side / kept).
    """
    return tuple((2 * i + exact) * side // (2 * kept) for i in range(kept))


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


@kept_tables
def _flat_positions(rows: tuple[int, ...], columns: tuple[int, ...], width: int, device: torch.device) -> Tensor:
    """Positions of rows x columns in a flat grid of ``width``."""
    return torch.tensor([row * width + column for row in rows for column in columns], device=device)
