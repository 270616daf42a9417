"""Runs comparisons on the models by name: one run at a time, with progress and a way to stop."""

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
from ..sampling.comparison import Comparison, compare, reduces_first_pass
from ..sampling.passes import LatentModel, OnStep, Pass, decode_image, first_pass, hires_pass
from ..sampling.request import Request

log = logging.getLogger(__name__)

POCKET = "pocket"
MODEL_FIELDS = ("width", "height", "guidance")  # the fields of a request whose defaults depend on the model
OWN_MODEL_DEFAULTS = (512, 512, 7.5)
LARGEST_SIDE = 2048  # pixels of the hires pass; a run stops only between steps, and larger ones can take minutes

FIRST, REDUCED_FIRST = "first pass", "reduced first pass"

OnProgress = Callable[[float, str], None]
T = TypeVar("T")


class Cancelled(Exception):
    """The user stopped the run."""


class OutOfMemory(Exception):
    """The run needs more memory than there is."""


@dataclass(frozen=True)
class GeneratedImage:
    """One image, uint8 (h, w, 3), and the two passes that made it."""

    request: Request
    settings: Settings
    first: Pass
    hires: Pass
    image: np.ndarray

    @property
    def passes(self) -> tuple[Pass, Pass]:
        """First pass and hires pass."""
        return self.first, self.hires


def generate(model: LatentModel, request: Request, settings: Settings, on_step: OnStep) -> GeneratedImage:
    """Run a first pass and a hires pass. The settings act in the passes that they name."""
    first = first_pass(model, request, settings, on_step=on_step)
    hires = hires_pass(model, request, first, settings, on_step=on_step)
    return GeneratedImage(request, settings, first, hires, decode_image(model, hires))


class ModelRunner:
    """Runs the pocket model and the user's models at `paths`. Raises ModelError for a path that is no model.

    Only the last used model of the user stays in memory. On a GPU it is held in float16.
    """

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self._paths: dict[str, Path] = {}
        for path in paths:
            checkpoints.check_path(path)
            self._paths[_unique_name(path.name, self._paths)] = path
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._lock = threading.Lock()
        self._pocket: Pocket | None = None
        self._own: tuple[str, LatentModel] | None = None

    @property
    def names(self) -> list[str]:
        """The names of all models."""
        return [POCKET, *self._paths]

    def request_defaults(self, name: str) -> dict[str, Any]:
        """The defaults of a request that depend on the model: first-pass size and guidance."""
        if name == POCKET:
            return {field: getattr(Request, field) for field in MODEL_FIELDS}
        return dict(zip(MODEL_FIELDS, OWN_MODEL_DEFAULTS, strict=True))

    def compare(
        self,
        name: str,
        request: Request,
        settings: Settings,
        *,
        progress: OnProgress = lambda fraction, text: None,
        stop: threading.Event | None = None,
    ) -> Comparison:
        """Run one comparison as soon as no other runs.

        `progress` receives a fraction 0..1 and the name of the current step. If `stop` is set, the run raises
        Cancelled before its next step. Raises SettingsError, CaptionError, ModelError and OutOfMemory.
        """
        firsts = [FIRST, REDUCED_FIRST] if reduces_first_pass(settings) else [FIRST]
        steps = StepProgress(
            request, [*firsts, "baseline hires pass", "reduced hires pass"], progress, stop or threading.Event()
        )
        return self._run(name, request, steps, lambda model: compare(model, request, settings, on_step=steps))

    def generate(
        self, name: str, request: Request, settings: Settings, *, progress: OnProgress = lambda fraction, text: None
    ) -> GeneratedImage:
        """Make one picture with the settings; errors and `progress` as in `compare`."""
        steps = StepProgress(request, [FIRST, "hires pass"], progress, threading.Event())
        return self._run(name, request, steps, lambda model: generate(model, request, settings, steps))

    def _run(self, name: str, request: Request, steps: StepProgress, job: Callable[[LatentModel], T]) -> T:
        if name not in self.names:
            raise SettingsError("model", name, ", ".join(map(repr, self.names)))
        _check_size(request)
        with self._lock:
            steps.begin(f"loading {name}")
            model = self._model(name)
            try:
                return job(model)
            except (MemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                width, height = request.hires_size
                raise OutOfMemory(f"There is not enough memory for a hires pass of {width} x {height}.") from error

    def _model(self, name: str) -> LatentModel:
        if name == POCKET:
            self._pocket = self._pocket or Pocket(device=self._device)
            return self._pocket
        if self._own is None or self._own[0] != name:
            self._own = None  # free the last model before the next one is loaded
            dtype = torch.float16 if self._device == "cuda" else torch.float32
            self._own = name, checkpoints.load(self._paths[name], device=self._device, dtype=dtype)
        return self._own[1]


class StepProgress:
    """Turns the steps of several passes into one fraction. A step counts by its pixels; see `OnStep`."""

    def __init__(self, request: Request, passes: list[str], progress: OnProgress, stop: threading.Event) -> None:
        self._progress, self._stop = progress, stop
        first = request.steps * request.width * request.height
        hires = request.hires_steps * request.hires_size[0] * request.hires_size[1]
        self._passes = [(name, first if name in (FIRST, REDUCED_FIRST) else hires) for name in passes]
        self._total = sum(weight for _, weight in self._passes)
        self._current = -1

    def begin(self, text: str) -> None:
        """Report what happens before the first step. Raises Cancelled."""
        self.check()
        self._progress(0.0, text)

    def __call__(self, name: str, step: int, steps: int) -> None:
        """Report that a step begins. Raises Cancelled."""
        self.check()
        self._current += step == 0  # every pass has exactly one step 0
        text, weight = self._passes[self._current]
        done = sum(w for _, w in self._passes[: self._current]) + weight * step / steps
        self._progress(done / self._total, f"{text}, step {step + 1} of {steps}")

    def check(self) -> None:
        """Raise Cancelled if the run was cancelled."""
        if self._stop.is_set():
            raise Cancelled("Cancelled.")


def _is_out_of_memory(error: Exception) -> bool:
    """Torch's CPU allocator raises a plain RuntimeError."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(error)


def _check_size(request: Request) -> None:
    width, height = request.hires_size
    if max(width, height) > LARGEST_SIDE:
        allowed = f"sides of at most {LARGEST_SIDE} pixels; this would make {width} x {height}"
        raise SettingsError("hires_scale", request.hires_scale, allowed)


def _unique_name(name: str, taken: Iterable[str]) -> str:
    """The name, with a number if another path has the same one."""
    taken = {POCKET, *taken}
    numbered = (f"{name} ({n})" for n in range(2, len(taken) + 3))
    return next(n for n in (name, *numbered) if n not in taken)
