"""The model's calls in a pass: their noise, and how far an error in each step moves the image (`samplers` asks it)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from torch import Tensor

from .reason import Reason

# of an error, beside that of Euler's method, up to which whole steps are predicted, and layers
MOST_GROWTH, MOST_GROWTH_OF_LAYERS = 3.0, 4.0
# and up to which it is made up, for what is made up would be multiplied, too. In a pass of few steps whose late ones
# weigh as much as others, nothing else evens out what the solver has multiplied: there nothing is predicted beyond it
MOST_GROWTH_MADE_UP, FEW_STEPS = 1.65, 15
MOST_NOISE = 30.0  # sigma / alpha: schedules with zero terminal signal begin with more
HELD_NOISE = 0.75  # at which an error of a held image moves the final one twice as far
LONG_FALL = 4.0  # of the noise in a step, as in the last but one of ComfyUI's normal: 0.23, 0.029, 0
_SAME = 0.02  # of the noise of a call, up to which it is the one that was told
ROUNDING = 1e-3  # of a noise


@dataclass(frozen=True)
class Scale:
    """What a time of the sampler means: ``noise`` is sigma / alpha.

    The denoised image is ``kept`` times the UNet's input less ``error`` times its output. ``latent`` is what the
    sampler's latent is multiplied by to have the image's scale: 1 / alpha, or 1 where it adds noise to the whole image.
    """

    noise: float
    error: float
    latent: float = 1.0
    kept: float = math.nan  # where it is not known

    @classmethod
    def of(cls, noise: float, *, predicts_v: bool, latent: float = 1.0) -> Scale:
        """The scale of a UNet whose input is alpha image + sigma noise, with alpha^2 + sigma^2 = 1.

        >>> Scale.of(0.75, predicts_v=True)
        Scale(noise=0.75, error=0.6, latent=1.0, kept=0.8)
        """
        length = math.hypot(1, noise)  # 1 / alpha
        sigma = noise / length if noise < math.inf else 1.0
        return cls(noise, sigma, latent, 1 / length) if predicts_v else cls(noise, noise, latent, length)

    def denoised(self, x: Tensor, output: Tensor) -> Tensor:
        """The denoised image by the UNet's input and output."""
        return self.kept * x.float() - self.error * output.float()

    def output(self, x: Tensor, denoised: Tensor) -> Tensor:
        """The UNet's output with which this input would have this denoised image."""
        return ((self.kept * x.float() - denoised) / self.error).to(x.dtype)


@dataclass(frozen=True)
class Course:
    """The model's calls in a pass, as its sampler has told them.

    ``times`` are what the sampler tells the model at each call, sigmas or timesteps, and ``scales`` what they mean. The
    weight of a step is how far an error of 1 in its calls' outputs moves the image, at most in one step: solvers of
    higher order take a part of it back in the next ones. What later steps make of a moved image grows with the noise
    (`amplified`).
    """

    times: tuple[float, ...]
    scales: tuple[Scale, ...]
    weights: tuple[float, ...]
    holds: bool = False  # whole steps hold the denoised image: noise is added, or a step has two calls
    growth: float = 1.0  # how many times as far as by Euler's method: the most in a step, or half of the whole way
    # how far an error of 1 in each step, of the output or of an image that is held, has moved the latent as each step
    # begins; none where nothing is made up
    moves: tuple[tuple[float, ...], ...] = ()
    steps: tuple[int, ...] = ()  # of each call, as the program counts them

    @classmethod
    def of_noise(cls, noise: Sequence[float], *, holds: bool = False, predicts_v: bool = True) -> Course:
        """The course of Euler's method between these levels of noise, sigma / alpha.

        >>> Course.of_noise([1, 0.5, 0]).weights
        (0.7071067811865475, 0.5590169943749475)
        """
        scales = [Scale.of(each, predicts_v=predicts_v) for each in noise[:-1]]
        pairs = zip(scales, noise[1:], strict=True)
        weights = [amplified(each.error * (1 - after / each.noise), each.noise, holds) for each, after in pairs]
        return cls((*noise[:-1],), (*scales,), (*weights,), holds, steps=(*range(len(scales)),))

    @property
    def computed_last(self) -> int:
        """How many steps at the end are computed: the last one, and one before it that takes away most of the noise."""
        last = self.scales[-1].noise
        before = next((each.noise for each in reversed(self.scales) if each.noise > last * (1 + ROUNDING)), last)
        return 1 + (before > LONG_FALL * last)

    def fall(self, step: int) -> float:
        """By how much the logarithm of the noise falls from the step before to this one; 0 where it does not.

        >>> round(Course.of_noise([1, 0.5, 0]).fall(1), 2)
        0.69
        """
        calls, steps = len(self.scales), len(self.weights)
        before, here = (self.scales[max(0, each) * calls // steps].noise for each in (step - 1, step))
        return math.log(max(1.0, before / here))

    def why_not(self, *, whole: bool, by_hand: bool = False) -> Reason | None:
        """Why whole steps, or else layers, cannot be predicted; ``by_hand``: in the steps that an interval sets."""
        most = MOST_GROWTH if whole else MOST_GROWTH_OF_LAYERS
        if len(self.weights) < FEW_STEPS and not by_hand:  # one long last step multiplies what came before
            most = MOST_GROWTH_MADE_UP if 3 * self.weights[-2:][0] > max(self.weights) else MOST_GROWTH
        if self.growth > most:
            return Reason.GROWS
        is_unclear = whole and self.holds and not all(math.isfinite(scale.kept) for scale in self.scales)
        return Reason.UNKNOWN if is_unclear else None

    def made_up(self, step: int, errors: Mapping[int, float]) -> float:
        """What the output of a step must have besides, so that the ``errors`` of earlier outputs, by step, are made up.

        The latent with which the next step begins is then as it would be without them.
        """
        moved = self.moves[step + 1] if step + 1 < len(self.moves) else ()
        if not moved or not moved[step]:
            return 0.0
        return -sum(moved[each] * error for each, error in errors.items()) / moved[step]

    def agrees(self, call: int, time: float) -> bool:
        """Whether call number ``call``, from 0, has this time, or the noise that it means: Forge Neo tells us that."""
        told = (self.times[call], self.scales[call].noise) if call < len(self.times) else ()
        return any(abs(time - each) <= _SAME * abs(each) + 1e-6 for each in told)


def amplified(moved: float, noise: float, holds: bool) -> float:
    """What a step's error moves in the end: at high noise later steps make another image of it.

    Measured: from noise 0.7 on up to four times as far in prompts with many small objects; below it, evenly. The error
    of an image that is held grows more steeply.
    """
    noise = min(noise, MOST_NOISE)
    return moved * (1 + ((noise / HELD_NOISE) ** 4 if holds else noise**2))


def scale_of(sampling: Any) -> Callable[[float], Scale]:
    """What a sigma means to a model of ComfyUI or the Forge family: its own conversions tell, also of flow matching."""
    one, zero = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1)

    @cache
    def scale(sigma: float) -> Scale:
        time = torch.tensor([sigma])
        latent = 1 / float(sampling.noise_scaling(time, zero.clone(), one.clone()))
        noise = latent * float(sampling.noise_scaling(time, one.clone(), zero.clone()))
        error = -float(sampling.calculate_denoised(time, one, zero))
        kept = float(sampling.calculate_denoised(time, zero, one)) / float(sampling.calculate_input(time, one))
        return Scale(noise, error, latent, kept)

    return scale


def noise_gone(sigma: float) -> float:
    """The share of Stable Diffusion's 1,000 timesteps that have no less noise than this, sigma / alpha."""
    return 1 - bisect_left(_trained_sigmas(), sigma) / 1000


@cache
def _trained_sigmas() -> list[float]:
    """The noise of each timestep: a linear schedule of the square roots of beta."""
    low, high = math.sqrt(0.00085), math.sqrt(0.012)
    kept = (1 - (low + (high - low) * step / 999) ** 2 for step in range(1000))
    return [math.sqrt(1 / bar - 1) for bar in accumulate(kept, mul)]
