"""Times the passes of a generation for Compare by the WebUI's own events; nothing is put on the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch

from .. import compat

_TIMER = "todo_pass_timer"  # attribute of a processing object


@dataclass(eq=False)
class TimedPass:
    """One pass of one batch."""

    name: str
    seconds: float = 0.0
    steps: int = 0
    is_complete: bool = False
    reduced: bool = False  # whether ToDo reduced anything in it


class PassTimer:
    """The seconds of each pass's steps, with the work of this extension.

    Live previews, the sampler's own arithmetic and the loading of a refiner do not count. On a GPU this waits for the
    device after each step. ``interrupted`` is True after an interrupt or a skip.
    """

    def __init__(self) -> None:
        self.passes: list[TimedPass] = []
        self.interrupted = False
        self._began: float | None = None
        self._device: Any = None
        self._hook: Any = None

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of each pass, summed over the batches."""
        return {name: sum(timed.seconds for timed in timed_passes) for name, timed_passes in self._by_name().items()}

    @property
    def reduced(self) -> set[str]:
        """The passes in which anything was reduced."""
        return {timed.name for timed in self.passes if timed.reduced}

    @property
    def unreduced_steps(self) -> dict[str, float]:
        """Seconds of a step, for each pass that is complete and in which nothing was reduced."""
        whole = {n: t for n, t in self._by_name().items() if all(x.is_complete and not x.reduced for x in t)}
        return {name: mean(timed.seconds / timed.steps for timed in passes) for name, passes in whole.items()}

    def begin_pass(self, name: str, denoiser: Any) -> None:
        """This denoiser is about to sample the pass ``name``."""
        self.end_pass()
        self.passes.append(TimedPass(name))
        self._began = None
        self._hook = denoiser.register_forward_hook(self._end_step, always_call=True)

    def note_reduced(self) -> None:
        """ToDo has reduced something in the current pass."""
        self.passes[-1].reduced = True

    def end_pass(self) -> None:
        """The sampler has returned, perhaps because of an interrupt. Can be repeated."""
        self._check_interrupt()
        if self._hook:
            self._hook.remove()

    def begin_step(self, params: Any) -> None:
        """The denoiser is about to call the UNet."""
        self._device = params.x.device
        self._began = _now(self._device)

    def _check_interrupt(self) -> None:
        """Remember an interrupt or a skip, which the WebUI forgets before the next batch."""
        self.interrupted = self.interrupted or compat.is_interrupted()

    def _end_step(self, denoiser: Any, args: Any, output: Any) -> None:
        self._check_interrupt()  # no hook runs for the WebUI's InterruptedException: see also end_pass
        timed = self.passes[-1]
        if self._began is None or output is None:
            return
        timed.steps += 1
        timed.seconds += _now(self._device) - self._began
        timed.is_complete = timed.steps >= (denoiser.total_steps or 0) and not self.interrupted

    def _by_name(self) -> dict[str, list[TimedPass]]:
        return {name: [t for t in self.passes if t.name == name] for name in dict.fromkeys(t.name for t in self.passes)}


def time_passes(p: Any) -> PassTimer:
    """Time the steps of the generation of ``p``, which has not begun."""
    timer = PassTimer()
    setattr(p, _TIMER, timer)
    return timer


def timer_of(p: Any) -> PassTimer | None:
    """The timer that another script of this extension has given to a generation."""
    return getattr(p, _TIMER, None)


def _now(device: Any) -> float:
    """Seconds, read after a GPU has finished all its queued work."""
    synchronize: Callable[[], None] | None = getattr(getattr(torch, device.type, None), "synchronize", None)
    if synchronize and device.type != "cpu":
        synchronize()
    return time.perf_counter()
