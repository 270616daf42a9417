"""Prediction of what a module makes of its input, from what it made in the last two steps in which it ran.

Its input is x. What it makes is r: of a transformer, what it adds to x; of a whole UNet, its output. Let a and b be the
last two computed steps, at times t_a and t_b. The prediction continues the line through both r, and corrects it by how
far the input is off its own line:

    r = r_b + s (r_b - r_a) + W (x - x_b - s (x_b - x_a)),    s = (t - t_b) / (t_b - t_a)

Its error grows with (t - t_a) (t - t_b). W is a matrix over the channels, one for each row: the ridge solution that
maps x_b - x_a to r_b - r_a, both as means over two tokens side by side: half of the tokens give about the same W, in a
third to a half of the time.
Kin: DeepCache (arXiv 2312.00858) keeps features of deep layers, TaylorSeer (arXiv 2503.06923) continues their line,
Spectrum (arXiv 2603.01623) continues that of the UNet's output.

A line multiplies the fresh noise of samplers that add some. For these the denoised image of the last computed call is
held, and turned back into an output for the new latent. Kin: FSampler and Spectrum for ComfyUI, ZEUS.

The next computed step makes up what was missed (`PredictionPlan.made_up`): from the error that its own prediction would
have had follow those of the steps before, E_i, and with M(j, i), how far an error in step i has moved the latent as
step j begins, the output of step k gets - (sum of M(k + 1, i) E_i) / M(k + 1, k) besides.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from ...course import Scale

RIDGE = 0.3  # of the mean square of a channel; of 0.03, 0.1, 0.3 and 1 the best at intervals 2 and 3 together
_TINY = 1e-30  # so that inputs that do not change give W = 0


@dataclass(frozen=True)
class Moment:
    """When a call is: its timestep, a 0-dimensional tensor, and what it means, where the sampler has told."""

    time: Tensor
    scale: Scale | None = None


@dataclass
class Run:
    """One computed run at a time, a 0-dimensional tensor; ``x`` and ``target``, the r above, are (b, c, h, w)."""

    time: Tensor
    x: Tensor
    target: Tensor


class Line:
    """The line through the last two computed runs of one module."""

    computed_first = 3  # steps: the third has the first error
    made_up = 1.0  # of what predictions have missed, in the next computed step

    @staticmethod
    def growth(after: int, spacing: int) -> float:
        """How the error grows with the steps ``after`` the last run, which came ``spacing`` after the one before."""
        return after * (after + spacing)

    def __init__(self) -> None:
        self._last: Run | None = None
        self._rate = torch.zeros(())  # 1 / (t_b - t_a); 0 where both are at one time
        self._changes: tuple[Tensor, Tensor] | None = None  # x_b - x_a and r_b - r_a, until W is known
        self._slope: Tensor | None = None  # (r_b - r_a) - W (x_b - x_a)
        self._weights = torch.zeros(())  # W, (b, c, c)

    def add(self, now: Moment, x: Tensor, target: Tensor) -> None:
        """A computed run: the input, and what is to be predicted from it, both (b, c, h, w)."""
        run, before, self._changes, self._slope = Run(now.time, x, target), self._last, None, None
        if before and _are_alike(before.x, x):
            self._changes = x - before.x, target - before.target
            passed = run.time - before.time
            self._rate = passed.reciprocal().masked_fill_(passed == 0, 0)
        self._last = run

    def can_predict(self, x: Tensor) -> bool:
        """Whether two runs with inputs like ``x`` are known."""
        knows_two = self._slope is not None or self._changes is not None
        return knows_two and self._last is not None and _are_alike(self._last.x, x)

    def predict(self, now: Moment, x: Tensor) -> Tensor:
        """What the module would make of ``x``, (b, c, h, w). Nothing here waits for a GPU."""
        self.fit([self])
        last = self._last
        if last is None or self._slope is None:
            raise ValueError("two computed runs must come before a prediction")
        passed = ((now.time - last.time) * self._rate).to(x.dtype)
        return torch.addcmul(last.target, self._slope, passed) + _mapped(self._weights, x - last.x)

    @staticmethod
    def fit(histories: Iterable[Line | Hold]) -> None:
        """Find W of all that have a new run: those of one shape at once, in which a GPU is several times faster."""
        groups: defaultdict[tuple[Any, ...], list[Line]] = defaultdict(list)
        for history in histories:
            if isinstance(history, Line) and history._changes:
                x, _ = history._changes
                groups[x.shape, x.dtype, x.device].append(history)
        for group in groups.values():
            changes = [history._changes for history in group if history._changes]
            weights = _ridge([x for x, _ in changes], [r for _, r in changes])
            for history, (x, r), own in zip(group, changes, weights, strict=True):
                history._weights, history._changes = own, None
                history._slope = r - _mapped(own, x)


class Hold:
    """The denoised image of the last computed call of a UNet. Its error grows about as a walk at random."""

    computed_first = 2
    made_up = 0.6

    @staticmethod
    def growth(after: int, spacing: int) -> float:
        """How the error grows with the steps ``after`` the last computed one."""
        return math.sqrt(after)

    def __init__(self) -> None:
        self._image: Tensor | None = None

    def add(self, now: Moment, x: Tensor, target: Tensor) -> None:
        """A computed call: the UNet's input and output, both (b, c, h, w)."""
        self._image = now.scale.denoised(x, target) if now.scale else None

    def can_predict(self, x: Tensor) -> bool:
        """Whether an image like ``x`` is known."""
        return self._image is not None and (self._image.shape, self._image.device) == (x.shape, x.device)

    def predict(self, now: Moment, x: Tensor) -> Tensor:
        """What the UNet would make of ``x``, (b, c, h, w)."""
        if self._image is None or now.scale is None:
            raise ValueError("a computed call must come before a prediction")
        return now.scale.output(x, self._image)


def _mapped(weights: Tensor, x: Tensor) -> Tensor:
    """W x at each token: (b, d, c) and (b, c, h, w) to (b, d, h, w)."""
    return torch.bmm(weights, x.flatten(2)).unflatten(2, x.shape[2:]).to(x.dtype)


def _ridge(x_changes: Sequence[Tensor], r_changes: Sequence[Tensor]) -> list[Tensor]:
    """W of each row, (b, c, c), for each module. In float32, whatever the model runs in: its sums are large.

    With fewer pairs than channels, the smaller system over the pairs has the same solution.
    """
    rows, dtype = x_changes[0].shape[0], x_changes[0].dtype
    with torch.autocast(x_changes[0].device.type, enabled=False):
        x, r = (torch.cat([_halved(change) for change in changes]) for changes in (x_changes, r_changes))
        channels, pairs = x.shape[1:]
        ridge = RIDGE * x.square().sum((1, 2), keepdim=True) / channels
        if pairs < channels:
            weights = r @ _solve(x.mT @ x, ridge, x.mT)
        else:
            x, r = x @ x.mT, x @ r.mT  # from here on, x and r themselves have no room: they are large
            weights = _solve(x, ridge, r).mT
    return list(weights.to(dtype).split(rows))


def fit_numbers(channels: int, pairs: int) -> int:
    """How many numbers in float32 `_ridge` holds at a time, at most, for each row of each module."""
    if pairs < channels:
        return max(4 * channels * pairs + 2 * pairs**2, 3 * channels * pairs + channels**2)
    return max(3 * channels * pairs, 2 * channels * (pairs + channels), 5 * channels**2)


def _halved(change: Tensor) -> Tensor:
    """Means over two tokens side by side, (b, c, h, w) to (b, c, pairs)."""
    return avg_pool2d(change.float(), (1, 2), ceil_mode=True).flatten(2)


def _solve(gram: Tensor, ridge: Tensor, right: Tensor) -> Tensor:
    """The solution of (gram + ridge) z = right for each row. No error is looked for: a GPU would wait.

    By two triangular solves: on a GPU, `torch.cholesky_solve` of several rows waits, and takes three times as long.
    """
    gram.diagonal(dim1=1, dim2=2).add_(ridge.squeeze(2).clamp_min(_TINY))
    factor, _ = torch.linalg.cholesky_ex(gram)
    half = torch.linalg.solve_triangular(factor, right, upper=False)
    return torch.linalg.solve_triangular(factor.mT, half, upper=True)


def _are_alike(x: Tensor, other: Tensor) -> bool:
    return (x.shape, x.dtype, x.device) == (other.shape, other.dtype, other.device)
