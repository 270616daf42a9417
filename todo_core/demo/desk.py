"""Where comparisons are asked for: the models by name, one run at a time, progress and a way to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from ..errors import SettingsError
from ..evaluation.pair import Pair, compare
from ..pocket import checkpoints
from ..pocket.config import BASE_SIZE
from ..pocket.model import Pocket
from ..pocket.request import Request
from ..pocket.sampling import LatentModel
from ..settings import Settings

log = logging.getLogger(__name__)

POCKET = "pocket"
LARGEST = 2048  # pixels a side of the hires pass: beyond it a step can take minutes, and only between steps can it stop

OnProgress = Callable[[float, str], None]


class Cancelled(Exception):
    """The run was stopped by who asked for it."""


class OutOfMemory(Exception):
    """The run needs more memory than there is."""


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

    def side(self, name: str) -> int:
        """Pixels a side that a model's first pass is at home in."""
        return BASE_SIZE if name == POCKET else 512

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
        if name not in self.names:
            raise SettingsError("model", name, ", ".join(map(repr, self.names)))
        _check_size(request)
        steps = Steps(request, settings, progress, stop or threading.Event())
        with self._lock:
            steps.check()
            progress(0.0, f"loading {name}")
            model = self._model(name)
            try:
                return compare(model, request, settings, on_step=steps)
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

    def __init__(self, request: Request, settings: Settings, progress: OnProgress, stop: threading.Event) -> None:
        self._progress, self._stop = progress, stop
        first = request.steps * request.width * request.height
        hires = request.hires_steps * request.hires_size[0] * request.hires_size[1]
        stages = [("first pass", first), ("whole hires pass", hires), ("reduced hires pass", hires)]
        if settings.passes in ("first", "all") and settings.method != "none":
            stages.insert(1, ("reduced first pass", first))
        self._stages = stages
        self._total = sum(weight for _, weight in stages)
        self._stage = -1

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
