"""What a sampler does with the model's outputs. Its own function is asked, so no sampler is known by its name.

It runs on a few numbers, with a stand-in for the model that predicts no noise, but for a unit error in one call of each
number. What it calls, and how far each error moves the latent, is its answer. The latent starts at 0: whatever is there
without errors is noise that the sampler has added.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from operator import mul
from typing import Any, TypeVar

import torch
from torch import Tensor

from .reason import Reason

log = logging.getLogger("todo_core")
Answer = TypeVar("Answer")

# of an error, beside that of Euler's method, up to which whole steps are predicted, and layers; and both in a pass of
# few steps whose late ones weigh as much as others: nothing evens out there what the solver has multiplied
MOST_GROWTH, MOST_GROWTH_OF_LAYERS, MOST_GROWTH_AT_THE_END, FEW_STEPS = 3.0, 4.0, 1.95, 15
MOST_GROWTH_MADE_UP = 1.65  # a solver that multiplies errors would multiply what is made up, too
MOST_CALLS = 1_200  # of a sampler that is asked: schedulers of diffusers may list 1,100
MOST_NOISE = 30.0  # sigma / alpha: schedules with zero terminal signal begin with more
HELD_NOISE = 0.75  # at which an error of a held image moves the final one twice as far
LONG_FALL = 4.0  # of the noise in a step, as in the last but one of ComfyUI's normal: 0.23, 0.029, 0
_SAME = 0.02  # of the noise of a call, up to which it is the one that was told
_ROUNDING = 1e-3


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
    # how far an error of 1 in each step has moved the latent, as each step begins; none where nothing is made up
    moves: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of_noise(cls, noise: Sequence[float], *, holds: bool = False, predicts_v: bool = True) -> Course:
        """The course of Euler's method between these levels of noise, sigma / alpha.

        >>> Course.of_noise([1, 0.5, 0]).weights
        (0.7071067811865475, 0.5590169943749475)
        """
        scales = [Scale.of(each, predicts_v=predicts_v) for each in noise[:-1]]
        pairs = zip(scales, noise[1:], strict=True)
        weights = [amplified(each.error * (1 - after / each.noise), each.noise, holds) for each, after in pairs]
        return cls((*noise[:-1],), (*scales,), (*weights,), holds)

    @property
    def computed_last(self) -> int:
        """How many steps at the end are computed: the last one, and one before it that takes away most of the noise."""
        last = self.scales[-1].noise
        before = next((each.noise for each in reversed(self.scales) if each.noise > last * (1 + _ROUNDING)), last)
        return 1 + (before > LONG_FALL * last)

    def fall(self, step: int) -> float:
        """By how much the logarithm of the noise falls from the step before to this one; 0 where it does not.

        >>> round(Course.of_noise([1, 0.5, 0]).fall(1), 2)
        0.69
        """
        calls, steps = len(self.scales), len(self.weights)
        before, here = (self.scales[max(0, each) * calls // steps].noise for each in (step - 1, step))
        return math.log(max(1.0, before / here))

    def why_not(self, *, whole: bool) -> Reason | None:
        """Why whole steps, or else layers, cannot be predicted."""
        most, is_short = MOST_GROWTH if whole else MOST_GROWTH_OF_LAYERS, len(self.weights) < FEW_STEPS
        if is_short:  # one long last step multiplies what came before
            most = MOST_GROWTH_AT_THE_END if 2 * self.weights[-2:][0] > max(self.weights) else MOST_GROWTH
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
        """Whether the model is called with this in call number ``call``, from 0."""
        told = self.times[call] if call < len(self.times) else math.nan
        return abs(time - told) <= _SAME * abs(told) + 1e-6


@dataclass
class StandIn:
    """Stands where the sampler has its model. Whatever else the sampler asks is asked of the real one.

    ``reply`` makes what a sampler gets: from its latent, the error of the UNet's output in it, the time, and the
    arguments by name.
    """

    _real: Any
    reply: Callable[[Tensor, Tensor, float, dict[str, Any]], Tensor]
    errs: bool
    times: list[float] = field(default_factory=list)
    latents: list[Tensor] = field(default_factory=list)  # (n,), at each call
    reports: list[tuple[int, Tensor]] = field(default_factory=list)  # of the sampler: the calls so far, and a latent

    def __call__(self, x: Tensor, time: Any, *args: Any, **kwargs: Any) -> Tensor:
        """A call of the model: notes it, and replies."""
        call, error = len(self.times), torch.zeros_like(x)
        if call >= MOST_CALLS:
            raise RuntimeError("a sampler does not end")
        if self.errs and call + 1 < len(x):
            error[call + 1] = 1
        self.times.append(float(time.flatten()[0] if isinstance(time, Tensor) else time))
        self.latents.append(x.flatten().double())
        return self.reply(x, error, self.times[-1], kwargs)

    def report(self, told: dict[str, Any]) -> None:
        """The callback of the sampler, once a step: after the first call of the step, or once the step has ended."""
        self.reports.append((len(self.times), told["x"].flatten().double()))

    @property
    def begins(self) -> dict[int, Tensor]:
        """The calls before which the sampler's steps begin, each with the latent there.

        Some report one latent again and again: of them each call counts as a step.
        """
        is_first = [torch.equal(latent, self.latents[calls - 1]) for calls, latent in self.reports]
        if not is_first or any(is_first) != all(is_first):
            return dict(enumerate(self.latents))
        return {calls - is_first[0]: latent for calls, latent in self.reports}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def or_none(question: Callable[[], Answer], whom: Any) -> Answer | None:
    """The answer; None where who is asked raises, as those do that want a true latent."""
    try:
        return question()
    except Exception as error:
        log.debug("ToDo cannot ask %s", whom, exc_info=error)
        return None


def ask(
    run: Callable[[StandIn, Tensor], Tensor],
    stand_in: Callable[[bool], StandIn],
    scales_of: Callable[[Sequence[float]], Sequence[Scale]],
    device: torch.device,
    steps_of: Callable[[Sequence[float]], Sequence[int]] | None = None,
) -> Course | None:
    """Ask a sampler: ``run(model, x)`` is its function, and returns the last latent. None where it does not answer.

    ``stand_in(errs)`` makes the model. ``scales_of`` tells what the calls' times mean, ``steps_of`` the step of each;
    without it each call is one.
    """

    def result(rows: int, *, errs: bool) -> tuple[StandIn, Tensor]:
        model = stand_in(errs)
        with _own_noise(device):
            return model, run(model, torch.zeros(rows, 1, 1, 1, device=device)).flatten().double()

    def course() -> Course | None:
        count = len(result(1, errs=False)[0].times)  # then as many rows as it takes: UniPC computes a lot for each
        (asked, moved), (plain, still) = (result(count + 1, errs=errs) for errs in (True, False))
        if not asked.times or asked.times != plain.times or len(asked.times) != count:
            return None
        begins = {**asked.begins, count: moved}
        # the plain run reports as often, but its latents are all alike
        plain_begins = dict(zip(asked.begins, plain.begins.values(), strict=True)) | {count: still}
        still_at, moved_at = (torch.stack([at[begin] for begin in sorted(at)]).cpu() for at in (plain_begins, begins))
        adds_noise, response = bool(still_at.abs().max() > 1e-6), (moved_at - still_at)[:, 1 : 1 + count]
        steps = steps_of(asked.times) if steps_of else range(count)
        return _course(asked.times, scales_of(asked.times), response, steps, sorted(begins), adds_noise=adds_noise)

    return or_none(course, run)


@contextmanager
def _own_noise(device: torch.device) -> Iterator[None]:
    """Makes the noise of this block always the same; afterwards torch goes on where it was."""
    is_cuda = device.type == "cuda"
    with torch.random.fork_rng([device] if is_cuda else []), torch.no_grad():
        torch.default_generator.manual_seed(0)
        if is_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(0)
        yield


def _course(
    times: Sequence[float],
    scales: Sequence[Scale],
    response: Tensor,
    steps: Sequence[int],
    begins: Sequence[int],
    *,
    adds_noise: bool,
) -> Course | None:
    """The course of these calls; None where their noise rises, or an error has no finite effect.

    ``response`` (begins, calls) is what a unit error in each call has moved the latent by, as each step of the sampler
    ``begins``: before this call, and at the end. ``steps`` are those that the program counts.
    """
    of_latent = [*(each.latent for each in scales), 1.0]
    moved = response * torch.tensor([of_latent[begin] for begin in begins], dtype=torch.float64)[:, None]
    moved = torch.where(response == 0, 0.0, moved)  # also where a latent of noise alone has no scale
    moves = torch.cat([moved[:1], moved.diff(dim=0)]).abs()
    most = moves.amax(0)
    noise = [each.noise for each in scales]
    if min(noise) <= 0 or any(after > before * (1 + _ROUNDING) for before, after in pairwise(noise)):
        return None
    parts = [*pairwise(sorted({0, *begins}))]
    calls_twice = any(end - first > 1 for first, end in parts[1:])  # PLMS and UniPC do so in their first step alone
    holds = adds_noise or calls_twice
    euler = [abs(each.error) * (1 - after / each.noise) for each, after in zip(scales, [*noise[1:], 0.0], strict=True)]
    heavy = max(euler) / 10  # in a light step no error grows to much
    way = torch.maximum(most, moves.sum(0) / 2)  # LMS and UniPC take back about as much as they move
    growth = max(float(each) / alone for each, alone in zip(way, euler, strict=True) if alone > heavy)
    weights = [0.0] * (steps[-1] + 1)
    for first, end in parts:  # a try of a step moves nothing by itself: its calls share it
        for step in steps[first:end]:
            weights[step] += amplified(float(most[first:end].mean()), noise[first], holds)
    if not all(0 < weight < math.inf for weight in weights[:-1]) or not weights[-1] < math.inf:
        return None  # the last step may move nothing: some lists end where the trained noise does
    is_single = [*steps] == [*range(len(moved) - 1)]  # each call is a step, of the program and of the sampler
    is_made_up = is_single and (holds or growth <= MOST_GROWTH_MADE_UP)
    told = tuple(map(tuple, moved.tolist())) if is_made_up else ()
    return Course((*times,), (*scales,), (*weights,), holds, 1.0 if calls_twice else growth, told)


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
