"""The step of a pass that a UNet call belongs to, and the images of its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..course import Course, Scale
from ..hosts import Host

ROUNDING = 0.01  # of a timestep: KDPM2 a lists the second call of a step so far from the next step's first one


@dataclass(frozen=True)
class Row:
    """A row of a UNet call: the seed and the number of its image, and its weight in the guided output, if known."""

    seed: int = 0
    image: int = 0
    weight: float | None = None


def rows_of(seeds: Sequence[int], weights: Sequence[float | None] = (None,)) -> tuple[Row, ...]:
    """The rows of a call that has all images once for each of these weights, one part after the other."""
    return tuple(Row(seed, image, weight) for weight in weights for image, seed in enumerate(seeds))


@dataclass
class Step:
    """One step of a pass. ``rows`` are those of the step's UNet calls, in their order.

    ``guidance`` is the weight of each prompt in the guided output, where the calls tell of which prompt their rows are.
    """

    number: int = 0
    total: int | None = None
    rows: tuple[Row, ...] = (Row(),)
    guidance: Sequence[float] | None = None
    scale: Scale | None = None  # of the sampler's call, where it has told
    rows_done: int = 0

    def next_rows(self, count: int) -> tuple[Row, ...]:
        """The next ``count`` rows: a batch that is split comes in several UNet calls."""
        first, self.rows_done = self.rows_done, self.rows_done + count
        return rows_inside(self.rows, count, first)

    def rows_of_parts(self, count: int, weights: Sequence[float | None]) -> tuple[Row, ...]:
        """The ``count`` rows of a call with a part of these weights for each, as the call itself tells."""
        images = max(1, count // len(weights))
        seeds = [row.seed for row in rows_inside(self.rows, images)]
        return rows_inside(rows_of(seeds, weights if images * len(weights) == count else (None,)), count)


class StepCounter:
    """Counts the steps of a pass by timestep, for a session without ``begin_step``.

    With a scheduler, a pass goes from the timestep of its first call to the end of the scheduler's list: img2img
    begins in the middle of the list. Another run, or an earlier index in the list, begins a new pass. A scheduler
    that counts its steps tells the index: its list may have one timestep twice, and a GPU need not be waited for.
    Without one, each lower timestep is a new step, and a higher one begins a new pass. After a second higher one in a
    row, as in DDIM inversion, each counts as a step.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._run: Any = None  # of which the schedule was read
        self._of_pass: Any = None  # the run of the last call that the schedule has listed
        self._before: Any = None  # the run of the pass before
        self._timesteps: list[list[float]] = []  # the schedule's, and the same rounded to bfloat16
        self._numbers: list[int] = []  # the step of each of them
        self._first_number = self._first_index = 0  # of the pass, and in the scheduler's list
        self._index = 0  # of the last call
        self._first = self._last = -math.inf  # timesteps of the pass and of the last call
        self._number = self._cut_short = 0
        self._rose = False
        self.passes = 0  # that have begun
        self.course: Course | None = None  # of the pass, if its sampler tells it
        self.is_asked = False  # whether it was

    @property
    def takes_turns(self) -> bool:
        """Whether several generations seem to run at a time: passes are cut short, and begin ever lower."""
        return self._cut_short >= 2

    def step_of(self, time: Callable[[], float], *, waits: bool = False) -> tuple[int, int | None]:
        """The step of a call, counted from 0, and the number of steps in the pass; None where that is unknown.

        ``time`` reads its timestep; ``waits``: it would wait for a GPU.
        """
        self._read_schedule()
        index = self._index_of(time, waits=waits)
        if index is None:
            self.course, self.is_asked = None, False
            return self._count(time()), None
        timestep = self._timesteps[0][index]
        is_other = self._run is not self._of_pass
        if is_other or index < self._index:
            self._first_number = self._numbers[index]
            goes_on = is_other and self._run is self._before
            self._begin_pass(timestep, goes_on=goes_on)
            if not goes_on:
                steps = [number - self._first_number for number in self._numbers[index:]]
                self.course, self._first_index = self._host.sampler.course(index, steps), index
                self.is_asked = True
        if is_other:
            self._before, self._of_pass = self._of_pass, self._run
        self._index, self._last = index, timestep
        return self._numbers[index] - self._first_number, self._numbers[-1] + 1 - self._first_number

    @property
    def scale(self) -> Scale | None:
        """What the time of the last call means, where the sampler tells."""
        return self.course.scales[self._index - self._first_index] if self.course else None

    def _read_schedule(self) -> None:
        """Read the scheduler's list, once a run."""
        sampler = self._host.sampler
        run = sampler.run()
        if run is self._run:
            return
        self._run, schedule = run, sampler.timesteps()
        self._timesteps = [] if schedule is None else [schedule.tolist(), schedule.bfloat16().tolist()]
        self._numbers = _numbers(self._timesteps[0], merges=sampler.repeats_timesteps()) if self._timesteps else []

    def _index_of(self, time: Callable[[], float], *, waits: bool) -> int | None:
        """The index of a call in the scheduler's list; None where it is not there."""
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

    def _begin_pass(self, timestep: float, *, goes_on: bool = False) -> None:
        is_cut_short = goes_on or (timestep < self._first and self._last > timestep / 2)
        self._cut_short = self._cut_short + 1 if is_cut_short else 0
        self._first = timestep
        self.passes += 1


def _numbers(timesteps: Sequence[float], *, merges: bool) -> list[int]:
    """The step of each listed timestep; with ``merges``, one that is listed twice is one step with two calls."""
    if not merges:
        return list(range(len(timesteps)))
    each: dict[float, int] = {}
    nearest = (next((first for first in each if abs(time - first) < ROUNDING), time) for time in timesteps)
    return [each.setdefault(first, len(each)) for first in nearest]


def rows_inside(rows: Sequence[Row], count: int, first: int = 0) -> tuple[Row, ...]:
    """``count`` of the rows from ``first`` on; after the last one comes the first one again."""
    return tuple(rows[(first + i) % len(rows)] for i in range(count))


def timesteps_of(argument: Any) -> list[float]:
    """The timesteps that a UNet is called with: a number, or a tensor with one for all rows or for each row."""
    return [float(t) for t in argument.flatten().tolist()] if isinstance(argument, Tensor) else [float(argument)]


def seeds_of_rows(rows: Sequence[Row], count: int) -> list[int]:
    """One seed for each of ``count`` rows: attention may see several of an image (frames, banks of references)."""
    each = max(1, count // len(rows))
    return [rows[min(i // each, len(rows) - 1)].seed for i in range(count)]
