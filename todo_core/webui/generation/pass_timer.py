"""Times the passes of a generation that another script of this extension runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .. import compat

_TIMER = "todo_pass_timer"  # attribute of a processing object


class PassTimer:
    """Seconds of the denoiser calls, for each pass, summed over the batches.

    A step is timed from the WebUI's callback before the UNet call to the UNet's last output. This includes the work of
    this extension. It excludes live previews, the sampler's own arithmetic and the loading of a refiner.

    ``reduced`` names the passes in which anything was reduced. ``interrupted`` is True after an interrupt or a skip.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.reduced: set[str] = set()
        self.interrupted = False
        self._pass = ""
        self._step_began = self._last_output = 0.0
        self._hook: Any = None
        self._device: Any = None

    def begin_pass(self, name: str, denoiser: Any) -> None:
        """This denoiser is about to sample the pass ``name``; the denoiser lives no longer than the pass."""
        self._pass = name
        self.seconds.setdefault(name, 0.0)
        self.check_interrupt()
        denoiser.register_forward_hook(self._end_step, always_call=True)

    def begin_step(self, params: Any) -> None:
        """The denoiser is about to call the UNet."""
        self._hook = params.denoiser.inner_model.register_forward_hook(self._on_output)
        self._device = params.x.device
        self._step_began = self._last_output = _now(self._device)

    def check_interrupt(self) -> None:
        """Remember an interrupt or a skip, which the WebUI forgets before the next batch."""
        self.interrupted = self.interrupted or compat.is_interrupted()

    def _on_output(self, *_: Any) -> None:
        self._last_output = _now(self._device)

    def _end_step(self, *_: Any) -> None:
        # no hook runs for the WebUI's InterruptedException, which is no Exception: see also Job.end_sampling
        self.check_interrupt()
        if self._hook:
            self._hook.remove()
            self._hook = None
            self.seconds[self._pass] += self._last_output - self._step_began


def time_passes(p: Any) -> PassTimer:
    """Time the generation of ``p``, which has not begun."""
    timer = PassTimer()
    setattr(p, _TIMER, timer)
    return timer


def timer_of(p: Any) -> PassTimer | None:
    """The timer of a generation, if it has one."""
    return getattr(p, _TIMER, None)


def _now(device: Any) -> float:
    """Seconds, read after a GPU has finished all its queued work."""
    synchronize: Callable[[], None] | None = getattr(getattr(torch, device.type, None), "synchronize", None)
    if synchronize and device.type != "cpu":
        synchronize()
    return time.perf_counter()
