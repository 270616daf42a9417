"""What a sampler does with the model's outputs. Its own function is asked, so no sampler is known by its name.

It runs on a few numbers, with a stand-in for the model that predicts no noise, but for a unit error in one call of each
number. What it calls, and how far each error moves the latent, is its answer. The latent starts at 0: whatever is there
without errors is noise that the sampler has added.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor

from .course import MOST_GROWTH_MADE_UP, ROUNDING, Course, Scale, amplified

log = logging.getLogger("todo_core")
Answer = TypeVar("Answer")

MOST_CALLS = 1_200  # of a sampler that is asked: schedulers of diffusers may list 1,100


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
    steps_of: Callable[[Sequence[float], Sequence[int]], Sequence[int]] = lambda _, own: own,
    *,
    draws: bool = True,
) -> Course | None:
    """Ask a sampler: ``run(model, x)`` is its function, and returns the last latent. None where it does not answer.

    ``stand_in(errs)`` makes the model. ``scales_of`` tells what the calls' times mean, ``steps_of`` the step of each as
    the program counts it, from the times and the steps of the sampler itself. Where the sampler ``draws`` no noise,
    torch's generators are left alone: an image may be made meanwhile.
    """

    def result(rows: int, *, errs: bool) -> tuple[StandIn, Tensor]:
        model = stand_in(errs)
        with _own_noise(device) if draws else torch.no_grad():
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
        own = _numbers(begins)
        steps, scales = steps_of(asked.times, own), scales_of(asked.times)
        return _course(asked.times, scales, response, steps, sorted(begins), adds_noise=adds_noise)

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


def _parts(begins: Iterable[int]) -> list[tuple[int, int]]:
    """The first call of each step of the sampler, and of the next; ``begins`` has the number of all calls, too."""
    return [*pairwise(sorted({0, *begins}))]


def _numbers(begins: Iterable[int]) -> list[int]:
    """The step of the sampler of each call."""
    return [number for number, (first, end) in enumerate(_parts(begins)) for _ in range(first, end)]


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
    noise, parts = [each.noise for each in scales], _parts(begins)
    if min(noise) <= 0 or any(after > before * (1 + ROUNDING) for before, after in pairwise(noise)):
        return None
    of_latent = torch.tensor([*(each.latent for each in scales), 1.0], dtype=torch.float64)[list(begins)]
    moved = torch.where(response == 0, 0.0, response * of_latent[:, None])  # a latent of noise alone has no scale
    moves = torch.cat([moved[:1], moved.diff(dim=0)]).abs()
    calls_twice = any(end - first > 1 for first, end in parts[1:])  # PLMS and UniPC do so in their first step alone
    holds = adds_noise or calls_twice
    growth, most = _growth(moves, scales), moves.amax(0)
    weights = [0.0] * (steps[-1] + 1)
    for first, end in parts:  # a try of a step moves nothing by itself: its calls share it
        for step in steps[first:end]:
            weights[step] += amplified(float(most[first:end].mean()), noise[first], holds)
    if not all(0 < weight < math.inf for weight in weights[:-1]) or not weights[-1] < math.inf:
        return None  # the last step may move nothing: some lists end where the trained noise does
    # the program's steps are the sampler's
    is_made_up = [*steps] == _numbers(begins) and (holds or growth <= MOST_GROWTH_MADE_UP)
    units = torch.tensor([each.error if holds else 1.0 for each in scales], dtype=torch.float64)
    of_steps = torch.stack([(moved / units)[:, first:end].sum(1) for first, end in parts], 1)
    told = tuple(map(tuple, of_steps.tolist())) if is_made_up else ()
    return Course((*times,), (*scales,), (*weights,), holds, 1.0 if calls_twice else growth, told, (*steps,))


def _growth(moves: Tensor, scales: Sequence[Scale]) -> float:
    """How many times as far as by Euler's method an error in a call moves the latent; ``moves`` are (begins, calls)."""
    ends = [*(each.noise for each in scales[1:]), 0.0]
    euler = [abs(each.error) * (1 - after / each.noise) for each, after in zip(scales, ends, strict=True)]
    heavy = max(euler) / 10  # in a light step no error grows to much
    way = torch.maximum(moves.amax(0), moves.sum(0) / 2)  # LMS and UniPC take back about as much as they move
    return max(float(each) / alone for each, alone in zip(way, euler, strict=True) if alone > heavy)
