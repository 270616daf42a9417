"""Runs comparisons on one model: one run at a time, with progress and a way to stop."""

from __future__ import annotations

import difflib
import threading
from pathlib import Path
from typing import Any

import torch

from todo_core.errors import SettingsError
from todo_core.settings import Settings

from ..pocket.model.pocket_model import Pocket
from ..pocket.model.vocabulary import CaptionError, vocabulary
from ..sampling import checkpoints
from ..sampling.comparison import Comparison, compare_all, plain_steps
from ..sampling.passes import LatentModel
from ..sampling.request import Request
from .options import POCKET_DEFAULTS, PROMPTS
from .progress import OnProgress, StepProgress, stages_of

POCKET = "pocket"
LARGEST_SIDE = 2048  # pixels of the hires pass; a run stops only between steps, and larger ones can take minutes
CANCELS_WITHIN = 0.5  # seconds, of a run that waits for another one
SHORTEST_OFFER = 3  # letters of a word that is offered instead of an unknown one


class OutOfMemory(Exception):
    """The run needs more memory than there is."""


class UnreadablePrompt(ValueError):
    """The pocket model has not learned a word of the prompt, or the prompt is too long."""


EXPECTED_ERRORS = (SettingsError, UnreadablePrompt, checkpoints.ModelError, OutOfMemory, OSError)


class ModelRunner:
    """Runs the pocket model, or the user's model at `path`. Raises ModelError. On a GPU that model is in float16."""

    def __init__(self, path: Path | None = None) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._lock = threading.Lock()
        self.is_pocket = path is None
        self.model: LatentModel
        if path is None:
            # its products are small: threads that wait for each other on a busy machine would slow the shorter more
            torch.set_num_threads(1)
            self.name, self.defaults = POCKET, dict[str, Any](POCKET_DEFAULTS)
            self.model = Pocket(device=device)
        else:
            dtype = torch.float16 if device == "cuda" else torch.float32
            checkpoint = checkpoints.load(path, device=device, dtype=dtype)
            self.name, self.model = path.name, checkpoint
            self.defaults = {"width": checkpoint.side, "height": checkpoint.side, "guidance": checkpoint.guidance}

    def compare(
        self,
        request: Request,
        settings: Settings,
        *,
        progress: OnProgress = lambda fraction, text: None,
        stop: threading.Event | None = None,
    ) -> list[Comparison]:
        """Compare the settings with the baseline, and that with plain steps, as soon as no other run is under way.

        `progress` receives a fraction 0..1 and what happens now. If `stop` is set, the run raises Cancelled before its
        next step. Raises one of EXPECTED_ERRORS.
        """
        width, height = request.hires_size
        if max(width, height) > LARGEST_SIDE:
            allowed = f"sides of at most {LARGEST_SIDE} pixels; this would make {width} x {height}"
            raise SettingsError("hires_scale", request.hires_scale, allowed)
        for caption in (request.prompt, request.negative) if self.is_pocket else ():
            _check_caption(caption)
        steps = StepProgress(stages_of(request, settings), progress, stop or threading.Event())
        while not self._lock.acquire(timeout=CANCELS_WITHIN):
            steps.check()
            progress(0, "Waiting for another run to end")
        try:
            steps.check()
            (ours,) = compare_all(self.model, request, [settings], on_step=steps)
            return [ours, plain_steps(self.model, ours, on_step=steps)]
        except (MemoryError, RuntimeError) as error:
            # torch's CPU allocator raises a plain RuntimeError
            if not (isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(error)):
                raise
            raise OutOfMemory(f"There is not enough memory for a hires pass of {width} x {height}.") from error
        finally:
            self._lock.release()


def _check_caption(caption: str) -> None:
    """Raise UnreadablePrompt, which names unknown words and the nearest known ones."""
    if not (unknown := [word for word in caption.split() if not _can_read(word)]):
        if not _can_read(caption):
            raise UnreadablePrompt("The prompt is too long for the pocket model. Use fewer words.")
        return
    offered = [word for word in vocabulary().words if len(word) >= SHORTEST_OFFER]
    nearest = {word: difflib.get_close_matches(word.lower(), offered, n=1) for word in unknown}
    named = (f'"{word}"' + (f' (did you mean "{near[0]}"?)' if near else "") for word, near in nearest.items())
    example = "" if all(nearest.values()) else f' Try "{PROMPTS[0]}".'
    raise UnreadablePrompt(f"The pocket model does not know {', '.join(named)}.{example}")


def _can_read(text: str) -> bool:
    try:
        vocabulary().encode([text])
    except CaptionError:
        return False
    return True
