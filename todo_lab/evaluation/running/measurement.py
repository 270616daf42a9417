"""One scene, every variant: the rows of the results, each beside the unreduced image and the minute it ran in."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from ..backends.backend import Backend, Shot, Stage
from ..metrics.image_metrics import figures
from ..metrics.pretrained_metrics import Learned
from ..metrics.prompt_statistics import nouns, words
from .jobs import Job
from .variants import UNREDUCED

log = logging.getLogger(__name__)
Row = dict[str, Any]


@dataclass
class Result:
    """A row, and its image where there is one."""

    row: Row
    image: np.ndarray | None = None
    infotext: str = ""


def measure_scene(
    backend: Backend, jobs: Sequence[Job], *, runs: int = 2, learned: Learned, unreduced: np.ndarray | None = None
) -> Iterator[Result]:
    """The results of one scene's jobs, as they come. A job that fails gives a row with its error.

    ``unreduced`` is the image of a run that was broken off; without it and without such a job it is made first.
    """
    try:
        stage = backend.stage(jobs[0].scene.request)
        if unreduced is None and not jobs[0].variant.unreduced:
            unreduced = stage.shoot(UNREDUCED).image
    except Exception as error:
        log.warning("scene %d failed: %s", jobs[0].scene.number, error)
        yield from (_failed(backend, job, error) for job in jobs)
        return
    pace: list[float] | None = None  # of the minute before: what ended one job begins the next
    for job in jobs:
        try:
            result, pace = _measured(backend, stage, job, unreduced, runs, learned, pace)
        except Exception as error:
            log.warning("%s failed in scene %d: %s", job.variant.name, job.scene.number, error)
            pace = None
            yield _failed(backend, job, error)
            continue
        unreduced = result.image if unreduced is None else unreduced
        yield result


def _measured(
    backend: Backend,
    stage: Stage,
    job: Job,
    unreduced: np.ndarray | None,
    runs: int,
    learned: Learned,
    pace: list[float] | None,
) -> tuple[Result, list[float]]:
    """The row, and the last look at the unreduced pace."""
    if unreduced is None and not job.variant.unreduced:
        raise RuntimeError("there is no unreduced image to compare with")
    stage.warm_up(job.variant)
    shots, paces = [], [pace or stage.pace()]
    for number in range(runs):  # between two looks at the unreduced pace, so that a drift of the machine cancels
        torch.manual_seed(number)  # as if something else had been drawn in between; an image has a seed of its own
        shots.append(stage.shoot(job.variant))
        paces.append(stage.pace())
    image = shots[0].image
    reference = image if unreduced is None else unreduced
    row = {**_asked(backend, job), **_times(shots, paces), **_told(shots, job), **figures(reference, image)}
    row |= learned.figures(reference, image, job.scene.request.prompt)
    return Result({**row, "error": None}, image, shots[0].infotext), paces[-1]


def _asked(backend: Backend, job: Job) -> Row:
    request, variant = job.scene.request, job.variant
    width, height = request.hires_size
    row = {"key": job.key, "scene": job.scene.number, **asdict(request), "hires_width": width, "hires_height": height}
    row |= {"words": words(request.prompt), "nouns": nouns(request.prompt), **backend.about}
    row |= {"variant": variant.name, "family": variant.family, "peer": variant.peer, "options": variant.options}
    row |= {"amount": variant.amount, "scale": variant.scale}
    return row | {f"set_{name}": _text(name, value) for name, value in variant.settings.to_dict().items()}


def _text(name: str, value: Any) -> Any:
    """Factors are numbers or "auto", and a column of a table holds one type."""
    return str(value) if name.startswith("factor_") else value


def _times(shots: Sequence[Shot], paces: Sequence[list[float]]) -> Row:
    step = statistics.median(second for shot in shots for second in steady(shot.steps))
    beside = statistics.median(second for pace in paces for second in steady(pace))
    return {
        "step_seconds": step,
        "unreduced_step_seconds": beside,
        "speed": beside / step,
        "first_seconds": statistics.median(shot.first_seconds for shot in shots),
        "hires_seconds": statistics.median(shot.hires_seconds for shot in shots),
        "whole_seconds": statistics.median(shot.whole_seconds for shot in shots),
    }


def _told(shots: Sequence[Shot], job: Job) -> Row:
    peaks = [shot.peak_mib for shot in shots if shot.peak_mib is not None]
    return {
        "peak_mib": max(peaks, default=None),
        "peak_kind": shots[0].peak_kind,
        "runs": len(shots),
        "repeats": all(np.array_equal(shots[0].image, s.image) for s in shots[1:]) if len(shots) > 1 else None,
        "plan": shots[0].plan,
        "notes": "\n".join(shots[0].notes),
        "image": job.image,
        **shots[0].more,
    }


def steady(seconds: list[float]) -> list[float]:
    """Without the first step of a pass, which sets things up, where enough are left."""
    return seconds[1:] if len(seconds) > 2 else seconds


def _failed(backend: Backend, job: Job, error: Exception) -> Result:
    return Result({**_asked(backend, job), "error": f"{type(error).__name__}: {error}"})
