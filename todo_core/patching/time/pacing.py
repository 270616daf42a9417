"""How many steps may pass until the deep transformers run again: from the error that a prediction would have had.

In each computed step the transformers are predicted as well, which costs little, and the error is known. An ODE solver
chooses the length of its steps in the same way. Let a and b be the last two computed steps, b the last one:

- e is the root of the mean, over the transformers, of (mean square of the error) / (mean square of the output), both
  after guidance: y_uncond + g (y_cond - y_uncond). Of several images it is that of the worst;
- C = e / (b - a)^2, for a line's error grows with the square of the gap;
- w = sigma (1 - exp(-h)), what a step adds to the latent: h is the length of a step in log(alpha / sigma).

In a pass of n steps the next gap is the largest k, up to LONGEST, with

    C w (1 + 4 + ... + (k - 1)^2) <= tolerance k / n

Kin: SADA (arXiv 2507.17135) decides by the stability of the sampler, TeaCache (arXiv 2411.19108) by the input's change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

COMPUTED_FIRST = 3  # steps: the third has the first error
LONGEST = 6
UNKNOWN_GUIDANCE = 7.0  # a usual one; errors of rows that nobody can pair count as often
_FIRST_BETA, _LAST_BETA, _STEPS = 0.00085, 0.012, 1000  # of the noise schedule of SD 1, SD 2 and SDXL
_SECOND_ORDER = 1 + 0.0073 / 2  # log(1 - beta) is about -beta - beta^2 / 2; 0.0073 is the mean beta, weighted by beta


def gap_of(cost: float, tolerance: float, steps: int) -> int:
    """The largest allowed gap in a pass of so many steps; ``cost`` is C w. A cost that is no number allows none."""
    gap, sum_of_squares = 1, 1
    while gap < LONGEST and cost * sum_of_squares <= tolerance * (gap + 1) / steps:
        gap += 1
        sum_of_squares += gap * gap
    return gap


class Pace:
    """The gap after the last computed step of the calls at one place of the steps."""

    def __init__(self) -> None:
        self._errors: list[Tensor] = []  # of this step: (images,) for each transformer
        self._time: Tensor | None = None  # of the last computed step
        self._cost: Tensor | None = None

    def measure(self, error: Tensor, output: Tensor, weights: Sequence[float] | None) -> None:
        """A transformer has run: the error of its prediction and its output, both (b, c, h, w).

        ``weights`` has the weight of each part of the rows in the guided output, such as (7, -6) where the rows of the
        prompt come first; None where that is not known.
        """
        self._errors.append(_squares(error, weights, is_error=True) / _squares(output, weights, is_error=False))

    def computed(self, time: Tensor, since: int) -> None:
        """A computed step is about to end: its timestep (0-dimensional), and how many steps ago the last one was."""
        if self._errors and self._time is not None:
            squares = torch.stack(self._errors).mean(0).amax()
            length = (_log_ratio(time) - _log_ratio(self._time)) / since
            cost = squares.sqrt() / since**2 * step_weight(time, length)
            self._cost = cost.masked_fill(length == 0, math.inf)  # as Heun's second call: its error tells nothing
        self._errors, self._time = [], time

    def cost(self) -> float:
        """C w of the last error; infinite while none is known. Reads one number from the device."""
        return math.inf if self._cost is None else float(self._cost)


def step_weight(time: Tensor, length: Tensor) -> Tensor:
    """sigma (1 - exp(-h)) at a timestep, for a step of this ``length`` h in either direction."""
    return (1 - _alpha_bar(time)).sqrt() * -torch.expm1(-length.abs())


def _squares(y: Tensor, weights: Sequence[float] | None, *, is_error: bool) -> Tensor:
    """Mean square of the guided ``y`` (b, c, h, w) of each image, (images,)."""
    if weights is None or len(y) % len(weights):
        return y.float().square().mean((1, 2, 3)) * (UNKNOWN_GUIDANCE**2 if is_error else 1)
    parts = y.float().chunk(len(weights))
    guided = sum((part * weight for part, weight in zip(parts[1:], weights[1:], strict=True)), parts[0] * weights[0])
    return guided.square().mean((1, 2, 3))


def _log_ratio(time: Tensor) -> Tensor:
    """log(alpha / sigma)."""
    alpha_bar = _alpha_bar(time)
    return (alpha_bar / (1 - alpha_bar)).log() / 2


def _alpha_bar(time: Tensor) -> Tensor:
    """The product of 1 - beta up to a timestep, in closed form; the roots of beta lie on a line."""
    first = math.sqrt(_FIRST_BETA)
    slope = (math.sqrt(_LAST_BETA) - first) / (_STEPS - 1)
    n = time.float().clamp(0, _STEPS - 1) + 1
    betas = n * first**2 + first * slope * n * (n - 1) + slope**2 * n * (n - 1) * (2 * n - 1) / 6
    return (-betas * _SECOND_ORDER).exp()
