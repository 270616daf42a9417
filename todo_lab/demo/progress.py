"""What a run does now and how long the rest takes: for a terminal and the page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TextIO

from todo_core.settings import Settings

from ..sampling.comparison import FIRST, HIRES, PLAIN, REDUCED_FIRST, WARM_UP, reduces_first_pass
from ..sampling.request import Request

OnProgress = Callable[[float, str], None]
Stage = tuple[str, float]
LINE_EVERY = 10.0  # seconds between two lines of the same stage


class Cancelled(Exception):
    """The user stopped the run."""


def stages_of(request: Request, settings: Settings) -> dict[str, Stage]:
    """The stages of a comparison, by the names of `OnStep`, each with its work in UNet calls of the hires size."""
    width, height = request.hires_size
    first = request.steps * (request.width * request.height) / (width * height)
    return {
        WARM_UP: ("Warm-up, one step of each pass", 2),
        FIRST: ("First pass", first),
        REDUCED_FIRST: ("Reduced first pass", first * reduces_first_pass(settings)),
        HIRES: ("Hires pass, baseline and reduced in turn", request.hires_steps * 2),
        PLAIN: ("Plain steps of the same time", request.hires_steps),  # at most
    }


class StepProgress:
    """An `OnStep` that tells the stage, the step and the time left. It raises Cancelled once `stop` is set.

    The time left is the work left at the pace of the hires pass's own steps; before those, at that of the warm-up.
    Small first passes have another pace, which counts if no other is known.
    """

    def __init__(
        self,
        stages: Mapping[str, Stage],
        progress: OnProgress,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stages, self._progress, self._stop, self._clock = stages, progress, stop, clock
        self._last = "", -1  # stage and step
        self._began = 0.0, 0.0  # the time and the work done when the last stage began
        self._pace: float | None = None  # seconds per unit of work

    def __call__(self, name: str, step: int, steps: int) -> None:
        """Report that a step begins. Passes that take turns report each step; only the first is told."""
        self.check()
        if (name, step) == self._last:
            return
        works = {stage: work for stage, (_, work) in self._stages.items()}
        done = sum(islice(works.values(), list(works).index(name))) + works[name] * step / steps
        stage, (started, before), now = self._last[0], self._began, self._clock()
        if stage and done > before and (stage in (WARM_UP, HIRES) or self._pace is None):
            self._pace = (now - started) / (done - before)
        if stage != name:
            self._began = now, done
        self._last = name, step
        total = sum(works.values())
        left = "" if self._pace is None else f", about {duration(self._pace * (total - done))} left"
        self._progress(done / total, f"{self._stages[name][0]}: step {step + 1} of {steps}{left}")

    def check(self) -> None:
        """Raise Cancelled if the run was cancelled."""
        if self._stop.is_set():
            raise Cancelled("Cancelled.")


def duration(seconds: float) -> str:
    """Seconds or minutes, rounded for people."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class ProgressText:
    """Writes progress: a line for each stage and every 10 seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._stage, self._written = "", 0.0

    def __call__(self, fraction: float, text: str) -> None:
        """An `OnProgress`."""
        stage, now = text.partition(":")[0], self._clock()
        if stage != self._stage or now - self._written >= LINE_EVERY:
            self._stage, self._written = stage, now
            self._stream.write(f"{text}\n")
            self._stream.flush()
