"""How many steps may pass until a predicted part runs again: from the error that a prediction would have had.

In each computed step the part is predicted as well, which costs little, and the error is known. An ODE solver chooses
the length of its steps in the same way. Let z, a and b be the last three computed steps, b the last one:

- e is the root of the mean, over the predicted modules, of (mean square of the error) / (mean square of the output),
  both after guidance: y_uncond + g (y_cond - y_uncond). Of several images it is that of the worst;
- G(j, s) is how the error of a prediction grows j steps after the last computed step, which came s steps after the one
  before it: j (j + s) of a line, the root of j of an image that is held (`prediction`);
- C = e / G(b - a, a - z);
- w_i is how far an error of 1 in step i moves the image (`course`).

A pass of n steps has one budget, the tolerance, and may have spent a part of it by each step. With S spent so far, the
next gap is the largest k, up to LONGEST, with

    S + C (G(1, b - a) w_{b+1} + ... + G(k - 1, b - a) w_{b+k-1}) <= tolerance (b + k + 1) / n

An error C G(1, b - a) of 1 or more counts whole, however little its step weighs: that prediction is all wrong.
What a gap has spent is known better once it is over: by the geometric mean of C before and after it.

Kin: SADA (arXiv 2507.17135) decides by the stability of the sampler, TeaCache (arXiv 2411.19108) by the input's change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..steps import Row

LONGEST = 6
MOST_ERROR = 1.0  # of a prediction, relative to the output
Growth = Callable[[int, int], float]  # G
UNKNOWN_GUIDANCE = 7.0  # a usual one; errors of rows that nobody can pair count as often


class Budget:
    """What the predicted steps of a pass may cost together, and have cost so far."""

    def __init__(self) -> None:
        self._spent = 0.0  # S
        self._last, self._cost = -1, 0.0  # the last computed step, and C there
        self._spacing = 1  # of it and the computed step before
        self._open: list[int] = []  # steps that were predicted since
        self.least_tolerance = math.inf  # with which a step would have been predicted

    def predict(self, step: int) -> None:
        """A step was predicted."""
        self._open.append(step)

    def gap(
        self, cost: float, tolerance: float, weights: Sequence[float], computed: Sequence[int], grows: Growth
    ) -> int:
        """The largest gap after the ``computed`` steps; ``cost`` is C after the last one. A cost of NaN allows none."""
        if len(computed) < 2:  # of the pass, or since its calls have begun anew
            return 1
        before, last = computed[-2:]
        if last != self._last:
            between = math.sqrt(self._cost * cost) if self._cost * cost < math.inf else self._cost
            self._spent += sum(between * grows(step - self._last, self._spacing) * weights[step] for step in self._open)
            self._open, self._last, self._spacing, self._cost = [], last, last - before, cost
        gap, steps, error = 1, len(weights), self._spent
        for step in range(last + 1, min(last + LONGEST, steps - 1)):  # the last step is computed
            of_step = cost * grows(step - last, self._spacing)
            error += of_step * weights[step]
            needed = error * steps / (step + 2)
            if gap == 1:
                needed = max(needed, of_step) if of_step >= MOST_ERROR else needed
                self.least_tolerance = min(self.least_tolerance, needed)
            if not needed <= tolerance:
                break
            gap += 1
        return gap


class Guided:
    """The error and the output of one module in a step, after guidance, by image: (c, h, w) each.

    The rows of an image may come in several calls. They are complete when their weights make 1.
    """

    def __init__(self) -> None:
        self._weights: dict[int, float] = {}
        self._sums: dict[int, tuple[Tensor, Tensor]] = {}

    def takes(self, output: Tensor) -> bool:
        """Whether rows like these can be added: of ComfyUI's areas, calls of one step have several sizes."""
        return all(of_output.shape == output.shape[1:] for _, of_output in self._sums.values())

    def add(self, error: Tensor, output: Tensor, rows: Sequence[Row]) -> None:
        """The rows of a call, (b, c, h, w) each, in the order of ``rows``. One without a weight is paired with none."""
        for of_error, of_output, row in zip(error.float(), output.float(), rows, strict=True):
            if row.weight is None:
                self._sums[-1 - len(self._sums)] = of_error, of_output
                continue
            earlier = self._sums.get(row.image)
            pair = of_error * row.weight, of_output * row.weight
            self._sums[row.image] = (pair[0] + earlier[0], pair[1] + earlier[1]) if earlier else pair
            self._weights[row.image] = self._weights.get(row.image, 0.0) + row.weight

    @property
    def is_complete(self) -> bool:
        """Whether no rows of these images are missing that could be paired."""
        return all(map(_is_one, self._weights.values()))

    def errors(self, *, is_all: bool = False) -> Tensor:
        """The mean square of each image's error, relative to its output, (images,).

        ``is_all``: no other rows come, for the step leaves out the negative prompt.
        """
        found = []
        for image, (error, output) in self._sums.items():
            is_paired = is_all or _is_one(self._weights.get(image, 0.0))
            found.append(error.square().mean() / output.square().mean() * (1 if is_paired else UNKNOWN_GUIDANCE**2))
        return torch.stack(found)


def _is_one(weight: float) -> bool:
    return abs(weight - 1) < 1e-3


class Pace:
    """The cost C after the last computed step of the calls at one place of the steps."""

    def __init__(self) -> None:
        self._errors: list[Tensor] = []  # of this step: (images,) for each module
        self._time: Tensor | None = None  # of the last computed step
        self._spacing = 1  # of it and the one before
        self.cost: Tensor | None = None  # C of the last error, a 0-dimensional tensor; None while none is known

    def measure(self, errors: Tensor) -> None:
        """A module has run: the relative square of its prediction's error, of each image, (images,)."""
        self._errors.append(errors)

    def end_step(self, time: Tensor, spacing: int, grows: Growth) -> None:
        """A computed step has ended: its timestep (0-dimensional), and how many steps ago the last one was."""
        if self._errors and self._time is not None:
            cost = torch.stack(self._errors).mean(0).amax().sqrt() / grows(spacing, self._spacing)
            self.cost = cost.masked_fill(time == self._time, math.inf)  # Heun's second call: its error tells nothing
        self._errors, self._time, self._spacing = [], time, spacing
