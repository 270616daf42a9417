"""Times the passes of a generation for Compare by the WebUI's own events; nothing is put on the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .. import compat

TIMER = "todo_pass_timer"  # attribute of a processing object, set by the script that wants the times


class StepTimer:
    """``seconds`` of each pass's steps, summed over the batches, with the work of this extension.

    Live previews, the sampler's own arithmetic and the loading of a refiner do not count. On a GPU this waits for the
    device after each step. ``reduced`` names the passes in which anything was reduced. ``interrupted`` is True after an
    interrupt or a skip.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.reduced: set[str] = set()
        self.interrupted = False
        self._name = ""
        self._began: float | None = None
        self._device: Any = None
        self._hook: Any = None

    def begin_pass(self, name: str, denoiser: Any) -> None:
        """This denoiser is about to sample the pass ``name``."""
        self.end_pass()
        self._name, self._began = name, None
        self.seconds.setdefault(name, 0.0)
        self._hook = denoiser.register_forward_hook(self._end_step, always_call=True)

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
        if self._began is not None and output is not None:
            self.seconds[self._name] += _now(self._device) - self._began


def _now(device: Any) -> float:
    """Seconds, read after a GPU has finished all its queued work."""
    synchronize: Callable[[], None] | None = getattr(getattr(torch, device.type, None), "synchronize", None)
    if synchronize and device.type != "cpu":
        synchronize()
    return time.perf_counter()
