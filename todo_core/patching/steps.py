"""The step of a pass that a UNet call belongs to, and the seeds of its rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..hosts import Host


@dataclass
class Step:
    """One step of a pass. ``seeds`` has one seed for each row of the step's UNet calls, in their order."""

    number: int = 0
    total: int | None = None
    seeds: tuple[int, ...] = (0,)
    rows_done: int = 0

    def next_seeds(self, count: int) -> tuple[int, ...]:
        """The seeds of the next ``count`` rows: a batch that is split comes in several UNet calls."""
        first, self.rows_done = self.rows_done, self.rows_done + count
        return tuple(self.seeds[(first + i) % len(self.seeds)] for i in range(count))


class StepCounter:
    """Counts the steps of a pass by timestep, for a session without ``begin_step``.

    With a scheduler, a pass goes from the timestep of its first call to the end of the scheduler's list: img2img
    begins in the middle of the list. A new list, or a timestep that stands earlier in it, begins a new pass.
    Without one, each lower timestep is a new step, and a higher one begins a new pass.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._schedule: Tensor | None = None  # of the last call that it has listed
        self._listed: Tensor | None = None
        self._timesteps: list[float] = []
        self._first_index = self._index = 0  # in the scheduler's list, of the pass and of the last call
        self._last_timestep = -math.inf
        self._number = 0

    def step_of(self, timestep: float) -> tuple[int, int | None]:
        """The step of a call, counted from 0, and the number of steps in the pass; None where that is unknown."""
        schedule = self._host.schedule()
        if schedule is not self._listed:  # read once a pass: the program waits for a GPU
            # second-order schedulers list some timesteps twice
            self._listed, self._timesteps = schedule, [] if schedule is None else list(dict.fromkeys(schedule.tolist()))
        timesteps = self._timesteps
        if timestep not in timesteps:
            return self._count(timestep), None
        index = timesteps.index(timestep)
        if schedule is not self._schedule or index < self._index:
            self._first_index = index
        self._schedule, self._index = schedule, index
        return index - self._first_index, len(timesteps) - self._first_index

    def _count(self, timestep: float) -> int:
        is_new_pass, is_new_step = timestep > self._last_timestep, timestep < self._last_timestep
        self._number = 0 if is_new_pass else self._number + is_new_step
        self._last_timestep = timestep
        return self._number


def timestep_of(argument: Any) -> float:
    """The timestep that a UNet is called with: a number, or a tensor with one for each row, all equal."""
    return float(argument.flatten()[0]) if isinstance(argument, Tensor) else float(argument)


def seeds_of_rows(seeds: tuple[int, ...], rows: int) -> list[int]:
    """One seed a row, also where attention sees several rows of an image (frames, banks of reference images)."""
    each = max(1, rows // len(seeds))
    return [seeds[min(i // each, len(seeds) - 1)] for i in range(rows)]
