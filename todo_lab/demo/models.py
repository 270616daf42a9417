"""Where comparisons are asked for: the models by name, one run at a time, progress and a way to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from todo_core.errors import SettingsError
from todo_core.settings import Settings

from ..pocket.model.pocket_model import Pocket
from ..sampling import checkpoints
from ..sampling.comparison import Pair, acts_first, compare
from ..sampling.passes import LatentModel, OnStep, Pass, first_pass, hires_pass, picture
from ..sampling.request import Request

log = logging.getLogger(__name__)

POCKET = "pocket"
HOME = ("width", "height", "guidance")  # what is another for each model
LARGEST = 2048  # pixels a side of the hires pass: beyond it a step can take minutes, and only between steps can it stop

FIRST, REDUCED_FIRST = "first pass", "reduced first pass"

OnProgress = Callable[[float, str], None]
T = TypeVar("T")


class Cancelled(Exception):
    """The run was stopped by who asked for it."""


class OutOfMemory(Exception):
    """The run needs more memory than there is."""


@dataclass(frozen=True)
class Made:
    """One picture, uint8 (h, w, 3), and the two passes that made it."""

    request: Request
    settings: Settings
    first: Pass
    hires: Pass
    image: np.ndarray

    @property
    def passes(self) -> tuple[Pass, Pass]:
        """Both, in their order."""
        return self.first, self.hires


def generate(model: LatentModel, request: Request, settings: Settings, on_step: OnStep) -> Made:
    """A first pass and a hires pass, each with the settings that are for it."""
    first = first_pass(model, request, settings, on_step=on_step)
    hires = hires_pass(model, request, first, settings, on_step=on_step)
    return Made(request, settings, first, hires, picture(model, hires))


class Desk:
    """`paths` are the user's own models; ModelError names the first that cannot be one.

    Only the last used of them is kept in memory. On a GPU they are held in float16.
    """

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self._paths: dict[str, Path] = {}
        for path in paths:
            checkpoints.look(path)
            self._paths[_free(path.name, self._paths)] = path
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._lock = threading.Lock()
        self._pocket: Pocket | None = None
        self._own: tuple[str, LatentModel] | None = None

    @property
    def names(self) -> list[str]:
        """Of the models that can be asked for."""
        return [POCKET, *self._paths]

    def at_home(self, name: str) -> dict[str, Any]:
        """What a request for this model begins with: the size of its first pass and its guidance."""
        own = (512, 512, 7.5)
        return {field: getattr(Request, field) if name == POCKET else own[n] for n, field in enumerate(HOME)}

    def compare(
        self,
        name: str,
        request: Request,
        settings: Settings,
        *,
        progress: OnProgress = lambda share, what: None,
        stop: threading.Event | None = None,
    ) -> Pair:
        """Run one comparison when no other runs.

        `progress` gets a share 0..1 and the name of what is done; a `stop` that is set ends the run before its next
        step with Cancelled. Raises SettingsError, CaptionError, ModelError and OutOfMemory for what cannot be.
        """
        stages = [FIRST, *([REDUCED_FIRST] if acts_first(settings) else []), "whole hires pass", "reduced hires pass"]
        steps = Steps(request, stages, progress, stop or threading.Event())
        return self._run(name, request, steps, lambda model: compare(model, request, settings, on_step=steps))

    def generate(
        self, name: str, request: Request, settings: Settings, *, progress: OnProgress = lambda share, what: None
    ) -> Made:
        """Make one picture with the settings; otherwise as `compare`."""
        steps = Steps(request, [FIRST, "hires pass"], progress, threading.Event())
        return self._run(name, request, steps, lambda model: generate(model, request, settings, steps))

    def _run(self, name: str, request: Request, steps: Steps, job: Callable[[LatentModel], T]) -> T:
        if name not in self.names:
            raise SettingsError("model", name, ", ".join(map(repr, self.names)))
        _check_size(request)
        with self._lock:
            steps.begin(f"loading {name}")
            model = self._model(name)
            try:
                return job(model)
            except (MemoryError, RuntimeError) as error:
                if not _wants_memory(error):
                    raise
                width, height = request.hires_size
                raise OutOfMemory(f"There is not enough memory for a hires pass of {width} x {height}.") from error

    def _model(self, name: str) -> LatentModel:
        if name == POCKET:
            self._pocket = self._pocket or Pocket(device=self._device)
            return self._pocket
        if self._own is None or self._own[0] != name:
            self._own = None  # let go of the last one before the next comes in
            half = torch.float16 if self._device == "cuda" else torch.float32
            self._own = name, checkpoints.load(self._paths[name], device=self._device, dtype=half)
        return self._own[1]


class Steps:
    """Counts the steps of a comparison's passes, each weighed by its pixels; called before every one of them."""

    def __init__(self, request: Request, stages: list[str], progress: OnProgress, stop: threading.Event) -> None:
        self._progress, self._stop = progress, stop
        first = request.steps * request.width * request.height
        hires = request.hires_steps * request.hires_size[0] * request.hires_size[1]
        self._stages = [(stage, first if stage in (FIRST, REDUCED_FIRST) else hires) for stage in stages]
        self._total = sum(weight for _, weight in self._stages)
        self._stage = -1

    def begin(self, what: str) -> None:
        """Something goes before the steps. Raises Cancelled as they do."""
        self.check()
        self._progress(0.0, what)

    def __call__(self, name: str, step: int, steps: int) -> None:
        """A step begins. Raises Cancelled instead if the run was cancelled."""
        self.check()
        self._stage += step == 0  # every pass begins with its step 0, and has it once
        what, weight = self._stages[self._stage]
        done = sum(w for _, w in self._stages[: self._stage]) + weight * step / steps
        self._progress(done / self._total, f"{what}, step {step + 1} of {steps}")

    def check(self) -> None:
        """Raise Cancelled if the run was cancelled."""
        if self._stop.is_set():
            raise Cancelled("Cancelled.")


def _wants_memory(error: Exception) -> bool:
    """Torch's allocator for the CPU raises a mere RuntimeError."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(error)


def _check_size(request: Request) -> None:
    width, height = request.hires_size
    if max(width, height) > LARGEST:
        allowed = f"what makes sides of at most {LARGEST} pixels; this would make {width} x {height}"
        raise SettingsError("hires_scale", request.hires_scale, allowed)


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, numbered where another path ends with the same."""
    taken = {POCKET, *taken}
    numbered = (f"{name} ({n})" for n in range(2, len(taken) + 3))
    return next(n for n in (name, *numbered) if n not in taken)
