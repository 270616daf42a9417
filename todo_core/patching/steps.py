"""The step of a pass that a UNet call belongs to, and the seeds of its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..hosts import Host


@dataclass
class Step:
    """One step of a pass. ``seeds`` has one seed for each row of the step's UNet calls, in their order.

    ``guidance`` is the scale of classifier-free guidance; None where nobody has told it.
    """

    number: int = 0
    total: int | None = None
    seeds: tuple[int, ...] = (0,)
    guidance: float | None = None
    rows_done: int = 0

    def next_seeds(self, count: int) -> tuple[int, ...]:
        """The seeds of the next ``count`` rows: a batch that is split comes in several UNet calls."""
        first, self.rows_done = self.rows_done, self.rows_done + count
        return seeds_inside(self.seeds, count, first)


class StepCounter:
    """Counts the steps of a pass by timestep, for a session without ``begin_step``.

    With a scheduler, a pass goes from the timestep of its first call to the end of the scheduler's list: img2img
    begins in the middle of the list. A new list, or a place that stands earlier in it, begins a new pass. A scheduler
    that counts its steps tells the place: its list may have one timestep twice, and a GPU need not be waited for.
    Without one, each lower timestep is a new step, and a higher one begins a new pass. After a second higher one in a
    row, as in DDIM inversion, each counts as a step.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._schedule: Tensor | None = None  # of the last call that it has listed
        self._listed: Tensor | None = None
        self._timesteps: list[list[float]] = []  # the schedule's, and the same rounded to bfloat16
        self._numbers: list[int] = []  # the step of each of them
        self._first_number = self._index = 0  # of the pass, and in the scheduler's list of the last call
        self._first = self._last = -math.inf  # timesteps of the pass and of the last call
        self._number = self._cut_short = 0
        self._rose = False
        self.passes = 0  # that have begun

    @property
    def takes_turns(self) -> bool:
        """Whether several generations seem to run at a time: passes are cut short, and begin ever lower."""
        return self._cut_short >= 2

    def step_of(self, time: Callable[[], float], *, waits: bool = False) -> tuple[int, int | None]:
        """The step of a call, counted from 0, and the number of steps in the pass; None where that is unknown.

        ``time`` reads its timestep; ``waits``: it would wait for a GPU.
        """
        schedule = self._host.sampler.timesteps()
        if schedule is not self._listed:  # read once a pass
            self._listed, self._timesteps, self._numbers = schedule, [], []
            if schedule is not None:
                self._timesteps = [schedule.tolist(), schedule.bfloat16().tolist()]
                self._numbers = _numbers(self._timesteps[0], merges=self._host.sampler.repeats_timesteps())
        index = self._index_of(time, waits=waits)
        if index is None:
            return self._count(time()), None
        timestep = self._timesteps[0][index]
        if schedule is not self._schedule or index < self._index:
            self._first_number = self._numbers[index]
            self._begin_pass(timestep)
        self._schedule, self._index, self._last = schedule, index, timestep
        return self._numbers[index] - self._first_number, self._numbers[-1] + 1 - self._first_number

    def _index_of(self, time: Callable[[], float], *, waits: bool) -> int | None:
        """The place of a call in the scheduler's list; None where it is not there."""
        told: Any = self._host.sampler.step_index()
        if told in range(len(self._numbers)) and (waits or any(times[told] == time() for times in self._timesteps)):
            return told
        return next((times.index(time()) for times in self._timesteps if time() in times), None)

    def _count(self, timestep: float) -> int:
        rises = timestep > self._last
        if rises and not self._rose:
            self._number = 0
            self._begin_pass(timestep)
        elif timestep == self._last and self._number == 0:  # the last pass may have been stopped in its first step
            self.passes += 1
        elif timestep != self._last:
            self._number += 1
        if timestep != self._last:
            self._rose = rises and self._last > -math.inf
        self._last = timestep
        return self._number

    def _begin_pass(self, timestep: float) -> None:
        is_cut_short = timestep < self._first and self._last > timestep / 2
        self._cut_short = self._cut_short + 1 if is_cut_short else 0
        self._first = timestep
        self.passes += 1


def _numbers(timesteps: Sequence[float], *, merges: bool) -> list[int]:
    """The step of each listed timestep; with ``merges``, one that is listed twice is one step with two calls."""
    each = {time: number for number, time in enumerate(dict.fromkeys(timesteps))}
    return [each[time] for time in timesteps] if merges else list(range(len(timesteps)))


def seeds_inside(seeds: Sequence[int], count: int, first: int = 0) -> tuple[int, ...]:
    """``count`` of the seeds from ``first`` on; after the last one comes the first one again."""
    return tuple(seeds[(first + i) % len(seeds)] for i in range(count))


def timesteps_of(argument: Any) -> list[float]:
    """The timesteps that a UNet is called with: a number, or a tensor with one for all rows or for each row."""
    return [float(t) for t in argument.flatten().tolist()] if isinstance(argument, Tensor) else [float(argument)]


def seeds_of_rows(seeds: tuple[int, ...], rows: int) -> list[int]:
    """One seed a row, also where attention sees several rows of an image (frames, banks of reference images)."""
    each = max(1, rows // len(seeds))
    return [seeds[min(i // each, len(seeds) - 1)] for i in range(rows)]
