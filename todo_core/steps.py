"""Where sampling stands: the step of a pass and the seeds of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .hosts import Host


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

    A pipeline's own schedule knows best; without one, a new timestep is a new step, and one that rises begins anew.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._last: float | None = None
        self._number = 0

    def read(self, timestep: float) -> tuple[int, int | None]:
        """(step, steps of the pass), the latter None where nobody knows it."""
        known = self._host.progress(timestep)
        if known:
            return known
        if self._last is None or timestep > self._last:
            self._number = 0
        elif timestep < self._last:
            self._number += 1
        self._last = timestep
        return self._number, None


def as_number(timestep: Any) -> float:
    """A timestep as a UNet gets it: a number, or a tensor with one for each row."""
    return float(timestep.flatten()[0]) if isinstance(timestep, Tensor) else float(timestep)


def stretched(seeds: tuple[int, ...], rows: int) -> list[int]:
    """One seed a row, also where attention sees several rows of an image (frames, banks of reference images)."""
    each = max(1, rows // len(seeds))
    return [seeds[min(i // each, len(seeds) - 1)] for i in range(rows)]
