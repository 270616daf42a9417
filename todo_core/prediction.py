"""Prediction of what a transformer adds to its input, from what it added in the last two steps in which it ran.

With input x and output y, the residual is r = y - x. Let a and b be the last two computed steps, at times t_a and t_b.
The prediction continues the line through both residuals, and corrects it by how far the input is off its own line:

    r = r_b + s (r_b - r_a) + g (x - x_b - s (x_b - x_a)),    s = (t - t_b) / (t_b - t_a)

The gain g, one number for each channel of each row, is the least-squares slope from x_b - x_a to r_b - r_a, within -1
and 1.
Kin: DeepCache (arXiv 2312.00858) keeps features of deep layers, TaylorSeer (arXiv 2503.06923) continues their line.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_TINY = 1e-30  # so that 0 / 0 is 0


@dataclass
class Run:
    """One computed run of a transformer at a time, a 0-dimensional tensor; ``x`` and ``residual`` are (b, c, h, w)."""

    time: Tensor
    x: Tensor
    residual: Tensor


class History:
    """The last two computed runs of one transformer."""

    def __init__(self) -> None:
        self._last: Run | None = None
        self._rate = torch.zeros(())  # 1 / (t_b - t_a); 0 where both are at one time
        self._slope: Tensor | None = None  # (r_b - r_a) - g (x_b - x_a)
        self._gain = torch.zeros(())  # g, (b, c, 1, 1)

    def add(self, time: Tensor, x: Tensor, y: Tensor) -> None:
        """A computed run: input and output, both (b, c, h, w)."""
        run, before, self._slope = Run(time, x, y - x), self._last, None
        if before and _are_alike(before.x, x):
            x_change, r_change = x - before.x, run.residual - before.residual
            self._gain = _gain(x_change, r_change)
            self._slope = r_change.addcmul_(x_change, self._gain, value=-1)
            passed = time - before.time
            self._rate = passed.reciprocal().masked_fill_(passed == 0, 0)
        self._last = run

    def can_predict(self, x: Tensor) -> bool:
        """Whether two runs with inputs like ``x`` are known."""
        return self._slope is not None and self._last is not None and _are_alike(self._last.x, x)

    def predict(self, time: Tensor, x: Tensor) -> Tensor:
        """The output (b, c, h, w) at this time for the input ``x``. Nothing here waits for a GPU."""
        last = self._last
        if last is None or self._slope is None:
            raise ValueError("two computed runs must come before a prediction")
        passed = ((time - last.time) * self._rate).to(x.dtype)
        line = torch.addcmul(last.residual, self._slope, passed)
        return torch.addcmul(x + line, x - last.x, self._gain)


def _gain(x_change: Tensor, r_change: Tensor) -> Tensor:
    """The slope of each channel, (b, c, 1, 1): 16-bit numbers could not hold the sums."""
    x, r = x_change.flatten(2).float(), r_change.flatten(2).float()
    slope = ((x * r).sum(2) / x.square().sum(2).clamp_min(_TINY)).clamp(-1, 1)
    return slope[:, :, None, None].to(x_change.dtype)


def _are_alike(x: Tensor, other: Tensor) -> bool:
    return (x.shape, x.dtype, x.device) == (other.shape, other.dtype, other.device)
