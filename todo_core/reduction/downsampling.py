"""ToDo: a coarser token grid, by keeping one token of each cell or by averaging it.

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
) -> Kept | Resampled:
    """Reduce a grid of ``size`` (h, w) to ``target`` (h', w'), 1 <= h' <= h and 1 <= w' <= w.

    ``turn`` moves the position that the nearest modes keep: 0 is the plain mode's own position, and
    ``offset_turns(size, target)`` turns in a row visit every token. None keeps the plain position.
    """
    if not (1 <= target[0] <= size[0] and 1 <= target[1] <= size[1]):
        raise ValueError(f"target {target} must lie between (1, 1) and the size {size}")
    if resample not in RESAMPLES:
        raise ValueError(f"resample {resample!r} is none of {', '.join(RESAMPLES)}")
    if resample not in NEAREST:
        return Resampled(size, target, resample)
    return Kept(size, target, *_positions(size, target, resample == "nearest-exact", turn))


@dataclass(frozen=True)
class Resampled:
    """Interpolation, pooling or maximum, of the whole grid at once."""

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
    grid = x.transpose(1, 2).unflatten(2, size)
    largest = resample == "max"
    grid = F.adaptive_max_pool2d(grid, target) if largest else F.interpolate(grid, size=target, mode=resample)
    return grid.flatten(2).transpose(1, 2)


@dataclass(frozen=True)
class Kept:
    """One token kept of each cell: those in ``rows`` x ``columns``."""

    size: Size
    target: Size
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def merge(self, x: Tensor) -> Tensor:
        """(b, h*w, c) -> (b, h'*w', c). Evenly spaced positions need no index tensor: a strided view is copied."""
        grid = x.unflatten(1, self.size)
        rows, columns = _as_slice(self.rows), _as_slice(self.columns)
        if rows and columns:
            return grid[:, rows, columns].flatten(1, 2)
        return x.index_select(1, _index(self.rows, self.columns, self.size[1], x.device))

    def unmerge(self, y: Tensor) -> Tensor:
        """(b, h'*w', c) -> (b, h*w, c): each token gets the result of the token kept in its cell."""
        rows, columns = _cells(self.rows, self.size[0]), _cells(self.columns, self.size[1])
        return y.index_select(1, _index(rows, columns, self.target[1], y.device))


def offset_turns(size: Size, target: Size) -> int:
    """How many turns it takes until every token has been kept once."""
    return math.ceil(size[0] / target[0]) * math.ceil(size[1] / target[1])


@lru_cache(maxsize=4096)
def _positions(size: Size, target: Size, exact: bool, turn: int | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The kept rows and columns. With cells of n x m places, turn k stands at place ``k * stride`` from the start."""
    if turn is None:
        return tuple(_line(s, t, int(exact), 2) for s, t in zip(size, target, strict=True))  # type: ignore[return-value]
    n, m = (math.ceil(s / t) for s, t in zip(size, target, strict=True))
    start = (n // 2) * m + m // 2 if exact else 0
    row, column = divmod((start + turn * _stride(n * m)) % (n * m), m)
    # nearest-exact stands at the middle of a place where their number is odd: its own position is half-way
    rows, columns = (2 * row + (exact and n % 2), 2 * n), (2 * column + (exact and m % 2), 2 * m)
    return _line(size[0], target[0], *rows), _line(size[1], target[1], *columns)


def _line(side: int, kept: int, place: int, places: int) -> tuple[int, ...]:
    """floor((i + place / places) * side / kept): cells of side / kept tokens, and a place inside each."""
    return tuple((i * places + place) * side // (kept * places) for i in range(kept))


def _stride(places: int) -> int:
    """About half-way round the cell, so that turns in a row lie far apart, and coprime, so that all are visited."""
    stride = places // 2 + 1
    while math.gcd(stride, places) > 1:
        stride += 1
    return stride


def _as_slice(line: tuple[int, ...]) -> slice | None:
    steps = {b - a for a, b in zip(line, line[1:], strict=False)}
    return slice(line[0], line[-1] + 1, steps.pop() if steps else 1) if len(steps) <= 1 else None


@lru_cache(maxsize=1024)
def _cells(kept: tuple[int, ...], side: int) -> tuple[int, ...]:
    """For each of ``side`` tokens, the cell whose result it gets; a kept token its own."""
    cells = [i * len(kept) // side for i in range(side)]
    for cell, position in enumerate(kept):
        cells[position] = cell
    return tuple(cells)


@lru_cache(maxsize=64)
def _index(rows: tuple[int, ...], columns: tuple[int, ...], width: int, device: torch.device) -> Tensor:
    """Flat positions of rows x columns in a grid of ``width``; cached, so that no call copies to the device twice."""
    with torch.inference_mode(False):  # the cache outlives a caller's inference mode
        flat = torch.tensor(rows)[:, None] * width + torch.tensor(columns)
        return flat.flatten().to(device)
