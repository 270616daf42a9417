"""The same search as `scores.highest_scores`, faster: bfloat16 products first, float32 where they leave a doubt.

The derivation below shows that no best destination is lost to the rounding.
"""

# Notation
#   x      a source, y a destination: vectors of n float32 numbers, of length 1 (or 0, for tokens of zeros)
#   s(y)   x . y, as float32 computes it; the search wants the destinations with the highest s(y)
#   m      the mean of all destinations, and c = y - m
#   X, C   x and c rounded to bfloat16
#   r(y)   X . C, summed in float32 and then rounded to bfloat16: what the fast product returns
#
# 1. Why the mean is subtracted. x . c = x . y - x . m, and x . m is the same for all destinations, so they keep their
#    order. Destinations of one image resemble each other, so c is shorter than y, and so is the error of rounding it.
#
# 2. The error of the rounded factors. By Cauchy and Schwarz
#        |x . c - X . C| = |(x - X) . c + X . (c - C)| <= |x - X| |c| + |X| |c - C|
#    The code takes the largest |c| and the largest |c - C| of all destinations.
#
# 3. The error of the sums. A float32 sum of n products a . b is off by at most n eps/2 |a| |b|, with eps = 2^-23.
#    |y| <= 1 and |C| <= 2.01, so s(y) is off by at most 0.5 n eps |x|, and the sum X . C by 1.01 n eps |x|.
#    Rounding c itself to float32 adds eps |x|. The code allows 2 (n + 8) eps |x|. What is left of that covers the
#    rounding of these bounds when they are computed.
#    With `error` for the bounds of 2 and 3 together, every destination has
#        |X . C - (s(y) - x . m)| <= error
#
# 4. Two errors meet. Let b be a destination with the highest s, and h one with the highest r. As s(b) >= s(h),
#        X . C_b >= s(b) - x . m - error >= s(h) - x . m - error >= X . C_h - 2 error
#
# 5. The products are rounded too. bfloat16 has 8 significant bits, so rounding a number to r > 0 moves it by at most
#    2^-8 r. Hence X . C_h >= r(h) (1 - 2^-8). Rounding never swaps two numbers, so
#        r(b) >= bfloat16(r(h) (1 - 2^-8) - 2 error), the threshold
#    Every destination whose r reaches the threshold is a candidate, and every best destination is among them.
#
# 6. Why integers can be compared. The c of all destinations add up to zero, and so do the x . c. So the highest is not
#    negative, and in practice the threshold is positive. Positive bfloat16 numbers sort like their bits read as int16:
#    the exponent stands before the mantissa. Negative numbers have the sign bit set, and so are negative as int16:
#    they never reach a positive threshold. torch compares int16 much faster than bfloat16.
#    A source whose threshold is not clearly positive gets no candidates, and is searched in float32.
#
# 7. Why the last bit is the same. The candidates are scored again in float32. The last bit of a score depends on the
#    order of the sum, and so do ties. The BLAS sums in one order in all products of at least 16 x 16 scores, and in
#    others in smaller ones. So the pairs are scored in products of 16 sources and 16 destinations, of which only the
#    diagonal is used. No BLAS promises this; without it, near ties could be decided in another way, and only they.

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from .scores import BLOCK, Nearest, highest_scores

# A source with more candidates than this is searched in float32, among all destinations.
_MAX_CANDIDATES = 16  # pragma: no mutate
# Rows and columns of the smallest product that is summed in the same order as the large ones (7).
_TILE = 16
# A lower threshold is not trusted to be positive (6), nor its products to have kept their 8 bits (5).
_MIN_THRESHOLD = 1e-4


class RoundedSearch:
    """The destinations (d, c) of one image, float32 of length 1, ready to be searched. d is a multiple of ``BLOCK``."""

    def __init__(self, destinations: Tensor):
        centred = destinations - destinations.mean(0)
        self._destinations, self._rounded = destinations, centred.bfloat16()
        self._longest = centred.norm(dim=1).amax()
        self._largest_error = (centred - self._rounded.float()).norm(dim=1).amax()

    def search(self, sources: Tensor) -> Nearest | None:
        """What `highest_scores` finds for ``sources`` (s, c), or None where rounding leaves most of them in doubt."""
        row, which = self._candidates(sources)
        count = row.bincount(minlength=len(sources))
        doubtful = (count == 0) | (count > _MAX_CANDIDATES)
        doubtful[:_TILE] |= doubtful.any()  # a product of fewer rows would be summed in another order (7)
        again = doubtful.nonzero()[:, 0]
        if 2 * len(again) > len(sources):
            return None
        if len(again):
            row, which = (pairs[~doubtful[row]] for pairs in (row, which))
        values, best = self._first_best(sources, row, which)
        if len(again):
            values[again], best[again] = highest_scores(sources[again], self._destinations)
        return values, best

    def _candidates(self, sources: Tensor) -> tuple[Tensor, Tensor]:
        """All pairs (source, destination), in order, whose rounded score reaches the source's threshold."""
        rounded = sources.bfloat16()
        bits = (rounded @ self._rounded.T).view(torch.int16).unflatten(1, (-1, BLOCK))
        highest = bits.amax(2)
        threshold = self._threshold(sources, rounded, highest.amax(1).view(torch.bfloat16).float())
        row, block = (highest >= threshold[:, None]).nonzero(as_tuple=True)
        pair, column = (bits[row, block] >= threshold[row, None]).nonzero(as_tuple=True)
        return row[pair], block[pair] * BLOCK + column

    def _threshold(self, sources: Tensor, rounded: Tensor, highest: Tensor) -> Tensor:
        """The bits (s) of each source's threshold (5), from its ``highest`` rounded score (s)."""
        back = rounded.float()
        summing = sources.norm(dim=1) * (sources.shape[1] + 8) * torch.finfo(torch.float32).eps
        error = (sources - back).norm(dim=1) * self._longest + back.norm(dim=1) * self._largest_error + 2 * summing
        threshold = highest * (1 - 2**-8) - 2 * error
        return threshold.where(threshold > _MIN_THRESHOLD, torch.inf).bfloat16().view(torch.int16)

    def _first_best(self, sources: Tensor, row: Tensor, which: Tensor) -> Nearest:
        """For each source, the highest float32 score of its pairs, and the first destination that has it."""
        scores = _pair_scores(sources, self._destinations, row, which)
        values = scores.new_zeros(len(sources)).scatter_reduce_(0, row, scores, "amax", include_self=False)
        best = which.where(scores == values[row], len(self._destinations))
        return values, best.new_zeros(len(sources)).scatter_reduce_(0, row, best, "amin", include_self=False)


def rounding_pays(destinations: Tensor) -> bool:
    """Whether the search is faster with rounding. For few destinations (d, c), or short ones, it is not."""
    return destinations.shape[0] >= 1024 and destinations.shape[1] >= 128 and _bfloat16_is_fast()  # pragma: no mutate


@functools.cache
def _bfloat16_is_fast() -> bool:
    """Whether this CPU has bfloat16 instructions; without them such products are slower than float32."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return torch.backends.mkldnn.is_available() and bool(capabilities.get("avx512_bf16"))


def _pair_scores(sources: Tensor, destinations: Tensor, row: Tensor, which: Tensor) -> Tensor:
    """The float32 score of each pair (p), the same to the last bit as in the product of all (7)."""
    left, right = _tiles(sources, row), _tiles(destinations, which)
    return (left @ right.transpose(1, 2)).diagonal(dim1=1, dim2=2).flatten()[: len(row)]


def _tiles(vectors: Tensor, index: Tensor) -> Tensor:
    """The vectors at ``index`` (p), sixteen by sixteen: (p / 16, 16, c). Vector 0 fills the last tile."""
    return vectors.index_select(0, F.pad(index, (0, -len(index) % _TILE))).unflatten(0, (-1, _TILE))
