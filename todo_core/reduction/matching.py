"""ToMe: bipartite soft matching. The tokens most like a destination are averaged into it.

Source: Bolya and Hoffman, "Token Merging for Fast Stable Diffusion", arXiv 2303.17604.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .nearest_destination import nearest_of_all
from .tables import kept_tables
from .tokens import gather_tokens, in_channels, wide

Size = tuple[int, int]


def match(metric: Tensor, size: Size, ratio: float, cell: Size = (2, 2), draws: Tensor | None = None) -> Matching:
    """Group the tokens of a grid of ``size`` (h, w), so that ``int(h*w * ratio)`` of them disappear.

    Each cell of ``cell`` (sy, sx) tokens has one destination; cells at the edges may be smaller. ``draws`` (b, cells)
    in [0, 1) choose the destinations; None chooses the upper left token of each cell. All other tokens are sources.
    Sources and destinations are compared by the cosine similarity of ``metric`` (b, h*w, c).

    >>> tokens = torch.tensor([[[0.0, 1.0], [0.0, 3.0], [5.0, 0.0], [0.0, 2.0]]])  # a grid of 2 x 2
    >>> pairs = match(tokens, (2, 2), ratio=0.5)
    >>> pairs.unmerge(pairs.merge(tokens)).tolist()  # those of one direction have become their mean
    [[[0.0, 2.0], [0.0, 2.0], [5.0, 0.0], [0.0, 2.0]]]
    """
    b, n, _ = metric.shape
    sources, destinations = (part.expand(b, -1) for part in _split(size, cell, draws, metric.device))
    with _without_autocast(metric.device) as dtype:
        best, nearest = nearest_of_all(metric, sources, destinations, dtype=dtype)
    order = best.argsort(dim=1, descending=True, stable=True)
    removed = removable(size, ratio, cell)
    merged, kept = order[:, :removed], order[:, removed:]
    return Matching(
        torch.cat([sources.gather(1, kept), destinations], 1),
        kept.shape[1],
        sources.gather(1, merged),
        nearest.gather(1, merged),
    )


@contextmanager
def _without_autocast(device: torch.device) -> Iterator[torch.dtype | None]:
    """Gives the dtype that autocast multiplies in on a GPU, or None for the tensors' own.

    Autocast would cast the same tokens again for each part of a search. A CPU's search in float32 is faster.
    """
    if device.type not in ("cpu", "cuda"):
        yield None
        return
    dtype = None
    if device.type == "cuda" and torch.is_autocast_enabled():
        dtype = torch.get_autocast_gpu_dtype()
    with torch.autocast(device.type, enabled=False):
        yield dtype


@dataclass(frozen=True)
class Matching:
    """Groups: first each source that stays alone, then each destination with the sources that merge into it.

    ``stay`` (b, groups) has the positions of the sources ``alone``, and then of the destinations. ``merged`` (b, r) has
    the positions of the other sources, and ``into`` (b, r) the destination of each, from 0.
    """

    stay: Tensor
    alone: int
    merged: Tensor
    into: Tensor

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return self.stay.shape[1]

    @cached_property
    def index(self) -> Tensor:
        """The group (b, N), 0 to ``groups`` - 1, of each token."""
        b, groups = self.stay.shape
        index = self.stay.new_empty(b, groups + self.merged.shape[1])
        index.scatter_(1, self.stay, torch.arange(groups, device=index.device).expand(b, -1))
        return index.scatter_(1, self.merged, self.into + self.alone)

    def merge(self, x: Tensor) -> Tensor:
        """The mean of each group: (b, N, c) -> (b, groups, c). Half precision is summed in float32."""
        means = gather_tokens(x, self.stay)
        if self.merged.shape[1]:  # a token that stays alone is copied, not summed
            destinations, merged = means[:, self.alone :], gather_tokens(x, self.merged).to(wide(x.dtype))
            sums = destinations.to(merged.dtype, copy=True)  # gradients need what is written over
            destinations.copy_(sums.scatter_reduce(1, in_channels(self.into, x), merged, "mean"))
        return means

    def unmerge(self, y: Tensor) -> Tensor:
        """Each token gets the result of its group: (b, groups, c) -> (b, N, c)."""
        return gather_tokens(y, self.index)


def removable(size: Size, ratio: float, cell: Size = (2, 2)) -> int:
    """How many tokens of a grid disappear: ``int(h*w * ratio)``, but never a destination.

    >>> removable((4, 4), 0.5), removable((4, 4), 0.9)  # each of the 4 cells keeps one
    (8, 12)
    """
    tokens = size[0] * size[1]
    return min(int(tokens * ratio), tokens - cell_count(size, cell))


def random_draws(seeds: Sequence[int], step: int, rank: int, size: Size, cell: Size = (2, 2)) -> Tensor:
    """Uniform draws in [0, 1) for `match`, on the CPU: (len(seeds), cells).

    A row depends on its seed, the step and the block's rank alone, so equal seeds have equal rows.

    >>> first, other, again = random_draws([7, 8, 7], step=0, rank=0, size=(4, 4))
    >>> first.equal(again), first.equal(other)
    (True, False)
    """
    rows = {seed: _draw(seed, step, rank, cell_count(size, cell)) for seed in set(seeds)}
    return torch.stack([rows[seed] for seed in seeds])


def _draw(seed: int, step: int, rank: int, count: int) -> Tensor:
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=7).digest()
    generator = torch.Generator("cpu").manual_seed(int.from_bytes(digest, "little"))
    return torch.rand(count, generator=generator, device="cpu", dtype=torch.float32)  # whatever the default is


def cell_count(size: Size, cell: Size) -> int:
    """Number of cells (sy, sx) that cover a grid (h, w), those cut off at its edges included."""
    return -(-size[0] // cell[0]) * -(-size[1] // cell[1])


def _split(size: Size, cell: Size, draws: Tensor | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions in the flat grid of the sources (1 or b, s), in order, and of the destinations (1 or b, cells).

    A draw in [0, 1) chooses the token number floor(draw * tokens of the cell), counted row by row. Example: in a cell
    of 2 x 3 tokens, 0.7 chooses number 4, in row 1, column 1.
    """
    tokens, counts, fixed = _tables(size, cell, device)
    if draws is None:
        return fixed, tokens[:, 0][None]
    number = (draws.to(device) * counts).long()
    destinations = tokens.expand(len(draws), -1, -1).gather(2, number.unsqueeze(-1))[..., 0]
    return _all_but(destinations, size[0] * size[1]), destinations


@kept_tables
def _tables(size: Size, cell: Size, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens (cells, sy*sx) of each cell, their number (cells), and the sources (1, s) without draws.

    Cells that are cut off repeat their last token.
    """
    (tops, heights), (lefts, widths) = (_starts(side, step, device) for side, step in zip(size, cell, strict=True))
    corners, counts = (tops[:, None] * size[1] + lefts).flatten(), (heights[:, None] * widths).flatten()
    width = widths.repeat(len(tops))[:, None]
    number = torch.arange(cell[0] * cell[1], device=device).minimum(counts[:, None] - 1)
    tokens = corners[:, None] + number // width * size[1] + number % width
    return tokens, counts, _all_but(tokens[None, :, 0], size[0] * size[1])


def _starts(side: int, step: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where each cell along a side starts, and how many tokens long it is; the last one may be shorter."""
    starts = torch.arange(0, side, step, device=device)
    return starts, (side - starts).clamp(max=step)


def _all_but(positions: Tensor, n: int) -> Tensor:
    """The positions 0 to n - 1 without ``positions`` (b, k), in order: (b, n - k)."""
    chosen = torch.zeros(positions.shape[0], n, dtype=torch.int8, device=positions.device).scatter_(1, positions, 1)
    return chosen.argsort(dim=1, stable=True)[:, : n - positions.shape[1]]
