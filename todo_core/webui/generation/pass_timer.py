"""What a script that runs generations of its own can learn of each: how long every pass took, and what was reduced."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .. import compat

_WATCH = "todo_watch"  # attribute of a processing object


class Watch:
    """The seconds of each pass's denoiser calls, summed over the batches; the passes that were reduced.

    A step counts from the moment when the host says that it begins, so with what this extension does before it, until
    the model has answered for the last time: the live preview, the samplers' own sums and a refiner's loading are no
    part of it. ``cut`` says that the user interrupted or skipped it.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.reduced: set[str] = set()
        self.cut = False
        self._pass = ""
        self._begun = self._answered = 0.0
        self._hook: Any = None
        self._device: Any = None

    def begin_pass(self, name: str, denoiser: Any) -> None:
        """A pass is about to be sampled by this denoiser, which lives no longer than the pass."""
        self._pass = name
        self.seconds.setdefault(name, 0.0)
        self._see_cut()
        denoiser.register_forward_hook(self._end_step, always_call=True)

    def begin_step(self, params: Any) -> None:
        """The denoiser is about to call the UNet."""
        self._hook = params.denoiser.inner_model.register_forward_hook(self._answer)
        self._device = params.x.device
        self._begun = self._answered = _now(self._device)

    def _answer(self, *_: Any) -> None:
        self._answered = _now(self._device)

    def _end_step(self, *_: Any) -> None:
        self._see_cut()
        if self._hook:
            self._hook.remove()
            self._hook = None
            self.seconds[self._pass] += self._answered - self._begun

    def _see_cut(self) -> None:
        self.cut = self.cut or compat.is_cut()


def watch(p: Any) -> Watch:
    """Watch the generation of ``p``, which has not begun."""
    seen = Watch()
    setattr(p, _WATCH, seen)
    return seen


def watch_of(p: Any) -> Watch | None:
    """The watch over a generation, if any."""
    return getattr(p, _WATCH, None)


def _now(device: Any) -> float:
    """The clock, after all that a GPU has been asked to do."""
    wait: Callable[[], None] | None = getattr(getattr(torch, device.type, None), "synchronize", None)
    if wait and device.type != "cpu":
        wait()
    return time.perf_counter()
