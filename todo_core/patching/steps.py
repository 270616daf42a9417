"""Where sampling stands: the step of a pass and the seeds of its rows."""

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
    taken: int = 0

    def take(self, count: int) -> tuple[int, ...]:
        """The seeds of the next ``count`` rows: a split batch comes in several UNet calls."""
        first, self.taken = self.taken, self.taken + count
        return tuple(self.seeds[(first + i) % len(self.seeds)] for i in range(count))


class Clock:
    """Tells steps by timestep alone, for a session whose host says nothing.

    A pipeline's own schedule knows best: a run goes from the timestep at which it was begun to the schedule's end.
    Without one, a new timestep is a new step, and one that rises begins anew.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._schedule: Tensor | None = None
        self._begun = self._index = 0
        self._last = -math.inf
        self._number = 0

    def read(self, timestep: float) -> tuple[int, int | None]:
        """(step, steps of the pass), the latter None where nobody knows it."""
        schedule = self._host.schedule()
        steps = [] if schedule is None else list(dict.fromkeys(schedule.tolist()))  # second-order ones name some twice
        if timestep not in steps:
            return self._count(timestep), None
        index = steps.index(timestep)
        if schedule is not self._schedule or index < self._index:
            self._begun = index
        self._schedule, self._index = schedule, index
        return index - self._begun, len(steps) - self._begun

    def _count(self, timestep: float) -> int:
        self._number = 0 if timestep > self._last else self._number + (timestep < self._last)
        self._last = timestep
        return self._number


def as_number(timestep: Any) -> float:
    """A timestep as a UNet gets it: a number, or a tensor with one for each row."""
    return float(timestep.flatten()[0]) if isinstance(timestep, Tensor) else float(timestep)


def stretched(seeds: tuple[int, ...], rows: int) -> list[int]:
    """One seed a row, also where attention sees several rows of an image (frames, banks of reference images)."""
    each = max(1, rows // len(seeds))
    return [seeds[min(i // each, len(seeds) - 1)] for i in range(rows)]
