"""Of each source token, the destination most like it: all pairs are looked at, a part of them at a time.

On a CPU with bfloat16 arithmetic float32 tokens are scored rounded first, and exactly where that leaves a doubt.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from .grouping import widened

Found = tuple[Tensor, Tensor]

# Scores are made for this many pairs at a time, so that no N x N matrix is ever held.
_PAIRS = 1 << 22
# On a CPU for this many sources: small parts stay in its cache.
_ROWS = 512
# A row of scores is searched in blocks of so many: torch finds a highest value far faster than its place.
_BLOCK = 64
# A source with more destinations that rounding leaves possible is scored anew, with all of them.
_POSSIBLE = 16
# The least rows and columns of a matrix product that torch sums in one order, whatever their number.
_SQUARE = 16
# Below this a score's rounding may no longer be in proportion to it.
_TINY = 1e-4


def nearest_of_all(metric: Tensor, sources: Tensor, destinations: Tensor) -> Found:
    """Of each source, its highest cosine similarity with a destination and which: (b, s) each.

    ``sources`` (b, s) and ``destinations`` (b, d) are positions in ``metric`` (b, n, c). Of equals the first is found.
    """
    metric = metric.detach()
    if metric.device.type == "cpu" and metric.dtype == torch.float32 and sources.shape[1]:
        with torch.autocast("cpu", enabled=False):
            images = [_best_of_image(*image) for image in zip(metric, sources, destinations, strict=True)]
        values, which = (torch.stack(parts) for parts in zip(*images, strict=True))
        return values, which
    there = unit(take(metric, destinations)).transpose(1, 2)
    parts = sources.split(max(1, _PAIRS // max(1, destinations.shape[1])), dim=1)
    found = [(unit(take(metric, part)) @ there).max(dim=-1) for part in parts]
    return torch.cat([f.values for f in found], 1), torch.cat([f.indices for f in found], 1)


def unit(tokens: Tensor) -> Tensor:
    """The tokens at length 1, but for those of nothing."""
    return F.normalize(widened(tokens), dim=-1).to(tokens.dtype)


def _best_of_image(tokens: Tensor, sources: Tensor, destinations: Tensor) -> Found:
    """The same for one image: tokens (n, c), positions (s) and (d)."""
    count = destinations.shape[0]
    filled = torch.cat([destinations, destinations[-1:].expand(-count % _BLOCK)])
    there = unit(tokens.index_select(0, filled))
    rounded = _Rounded(there) if _rounding_pays(there) else None
    found = []
    for part in sources.tensor_split(-(-len(sources) // max(1, min(_ROWS, _PAIRS // count)))):
        here = unit(tokens.index_select(0, part))
        if rounded is None or (one := rounded.best(here)) is None:
            rounded, one = None, _exact(here, there)  # what is in doubt here is likely to be further on
        found.append(one)
    values, which = (torch.cat(parts) for parts in zip(*found, strict=True))
    return values, which.clamp(max=count - 1)


def _exact(here: Tensor, there: Tensor) -> Found:
    """Of each of ``here`` (s, c), the highest product with one of ``there`` (d, c), and the first that has it."""
    blocks = (here @ there.T).unflatten(1, (-1, _BLOCK))
    block = blocks.amax(2).argmax(1)
    values, place = blocks[torch.arange(len(here)), block].max(1)
    return values, block * _BLOCK + place


class _Rounded:
    """Destinations (d, c) rounded to bfloat16, which tells the few that may be a source's best from all others."""

    def __init__(self, there: Tensor):
        # Less their mean, their products differ by the same for all, and are smaller: so is the rounding of them.
        centred = there - there.mean(0)
        self.there, self.rounded = there, centred.bfloat16()
        self.length = centred.norm(dim=1).amax()
        self.error = (centred - self.rounded.float()).norm(dim=1).amax()

    def best(self, here: Tensor) -> Found | None:
        """What `_exact` finds, or None where rounding leaves most of it in doubt."""
        row, which = self._possible(here)
        count = row.bincount(minlength=len(here))
        doubtful = (count == 0) | (count > _POSSIBLE)
        doubtful[:_SQUARE] |= doubtful.any()
        again = doubtful.nonzero()[:, 0]
        if 2 * len(again) > len(here):
            return None
        if len(again):
            row, which = (found[~doubtful[row]] for found in (row, which))
        values, place = self._first_best(here, row, which)
        if len(again):
            values[again], place[again] = _exact(here[again], self.there)
        return values, place

    def _possible(self, here: Tensor) -> Found:
        """All (source, destination) in order whose rounded score is near its source's highest; none of a tiny one.

        Of rounded numbers none is negative that matters here, and those that are not are in the order of their bits,
        which torch compares far faster.
        """
        rounded = here.bfloat16()
        bits = (rounded @ self.rounded.T).view(torch.int16).unflatten(1, (-1, _BLOCK))
        highest = bits.amax(2)
        least = self._least(here, rounded, highest.amax(1).view(torch.bfloat16).float())
        row, block = (highest >= least[:, None]).nonzero(as_tuple=True)
        pair, place = (bits[row, block] >= least[row, None]).nonzero(as_tuple=True)
        return row[pair], block[pair] * _BLOCK + place

    def _least(self, here: Tensor, rounded: Tensor, highest: Tensor) -> Tensor:
        """The bits of the least rounded score (s) that the best may have, by Cauchy and Schwarz.

        Both scores are off by what rounding took from their factors and by sums in float32, and both were rounded, by
        2^-9 of themselves at most.
        """
        summing = here.norm(dim=1) * (here.shape[1] + 8) * torch.finfo(torch.float32).eps
        back = rounded.float()
        off = (here - back).norm(dim=1) * self.length + back.norm(dim=1) * self.error + 2 * summing
        least = highest * (1 - 2**-8) - 2 * off
        return least.where(least > _TINY, torch.inf).bfloat16().view(torch.int16)

    def _first_best(self, here: Tensor, row: Tensor, which: Tensor) -> Found:
        """Of the pairs of each row, the highest score in float32 and the first destination that has it."""
        scores = _products(here, self.there, row, which)
        values = scores.new_zeros(len(here)).scatter_reduce_(0, row, scores, "amax", include_self=False)
        firsts = which.where(scores == values[row], len(self.there))
        return values, firsts.new_zeros(len(here)).scatter_reduce_(0, row, firsts, "amin", include_self=False)


def _products(here: Tensor, there: Tensor, row: Tensor, which: Tensor) -> Tensor:
    """The product of each pair (p), to the last bit as `_exact` has it: from squares, of which the diagonal is used."""
    left, right = _squares(here, row), _squares(there, which)
    return (left @ right.transpose(1, 2)).diagonal(dim1=1, dim2=2).flatten()[: len(row)]


def _squares(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, F.pad(index, (0, -len(index) % _SQUARE))).unflatten(0, (-1, _SQUARE))


def _rounding_pays(there: Tensor) -> bool:
    """Whether finding the best of ``there`` (d, c) is faster with rounding: for few or short ones the rest costs it."""
    return there.shape[0] >= 1024 and there.shape[1] >= 128 and _bfloat16_is_fast()


@functools.cache
def _bfloat16_is_fast() -> bool:
    """Whether this CPU has instructions for it; without, products are slower than in float32."""
    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return torch.backends.mkldnn.is_available() and bool(known.get("avx512_bf16"))


def take(x: Tensor, positions: Tensor) -> Tensor:
    """The tokens of x (b, n, c) at positions (b, k)."""
    return x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
