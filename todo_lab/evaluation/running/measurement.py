"""Measure all variants of a scene, relative to its baseline image and to baseline steps of the same minute."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from todo_core.settings import SETTINGS

from ...sampling.infotext import encode_png
from ..backends.local import Local, LocalScene, TimedImage
from ..metrics.image_metrics import ImageMetrics
from ..variants import BASELINE, Variant
from .jobs import Job

log = logging.getLogger(__name__)
Row = dict[str, Any]


@dataclass
class Result:
    """A row and the bytes of its PNG file; a failed row has none."""

    row: Row
    png: bytes | None = None


def measure_scene(
    backend: Local,
    jobs: Sequence[Job],
    *,
    runs: int = 2,
    timed: bool = True,
    metrics: ImageMetrics,
    baseline: np.ndarray | None = None,
) -> Iterator[Result]:
    """Yield the results of a scene's jobs. A failed job yields a row with its error.

    ``baseline`` is the baseline image of an interrupted run. Without it the first job is the baseline, or the baseline
    is made first. Without ``timed`` there are no warm-up, no baseline steps and no times.
    """
    try:
        scene = backend.prepare(jobs[0].scene.request)
        if baseline is None and not jobs[0].variant.is_baseline:
            baseline = scene.generate(BASELINE).image
    except Exception as error:
        log.warning("scene %d failed: %s", jobs[0].scene.number, error)
        yield from (_failed(backend, job, error) for job in jobs)
        return
    runner = _Runs(scene, runs, timed)
    for job in jobs:
        try:
            if baseline is None and not job.variant.is_baseline:
                raise RuntimeError("there is no baseline image to compare with")
            images, times = runner.make(job.variant)
            baseline = images[0].image if baseline is None else baseline
            row = {**_input_columns(backend, job), **times, **_output_columns(images, job)}
            row |= metrics.measure(baseline, images[0].image)
            yield Result({**row, "error": None}, encode_png(images[0].image, images[0].infotext))
        except Exception as error:
            log.warning("%s failed in scene %d: %s", job.variant.name, job.scene.number, error)
            yield _failed(backend, job, error)


class _Runs:
    """Makes images of a scene, each between baseline steps if it is timed, so that a steady drift cancels."""

    def __init__(self, scene: LocalScene, runs: int, timed: bool) -> None:
        self._scene, self._runs, self._timed = scene, runs, timed
        self._before: list[float] | None = None  # baseline steps after one job also serve as those before the next

    def make(self, variant: Variant) -> tuple[list[TimedImage], Row]:
        """The images of a variant and the columns of their times."""
        before, self._before = self._before, None
        if not self._timed:
            return [self._image(variant, number) for number in range(self._runs)], {}
        self._scene.warm_up(variant)
        images, baseline_steps = [], [before or self._scene.time_baseline_steps()]
        for number in range(self._runs):
            images.append(self._image(variant, number))
            baseline_steps.append(self._scene.time_baseline_steps())
        self._before = baseline_steps[-1]
        return images, _time_columns(images, baseline_steps)

    def _image(self, variant: Variant, number: int) -> TimedImage:
        torch.manual_seed(number)  # changes torch's global state; the image must depend on its own seed alone
        return self._scene.generate(variant)


def _input_columns(backend: Local, job: Job) -> Row:
    request, variant = job.scene.request, job.variant
    width, height = request.hires_size
    row = {"key": job.key, "scene": job.scene.number, **asdict(request), "hires_width": width, "hires_height": height}
    row |= {**backend.about, "variant": variant.name, "peer": variant.peer, "options": variant.options}
    texts = {name: str(value) for name, value in variant.settings.to_dict().items() if SETTINGS[name].kind == "factor"}
    # a factor is a number or "auto", and a column has one type
    return row | {f"set_{name}": texts.get(name, value) for name, value in variant.settings.to_dict().items()}


def _time_columns(images: Sequence[TimedImage], baseline_steps: Sequence[list[float]]) -> Row:
    step = statistics.median(second for image in images for second in without_first_step(image.step_seconds))
    baseline = statistics.median(second for steps in baseline_steps for second in without_first_step(steps))
    whole = ("first_seconds", "hires_seconds", "total_seconds")
    medians = {name: statistics.median(getattr(image, name) for image in images) for name in whole}
    return {"step_seconds": step, "baseline_step_seconds": baseline, **medians}


def _output_columns(images: Sequence[TimedImage], job: Job) -> Row:
    first, *others = images
    peaks = [image.peak_mib for image in images if image.peak_mib is not None]
    return {
        "peak_mib": max(peaks, default=None),
        "runs": len(images),
        "repeats": all(np.array_equal(first.image, other.image) for other in others) if others else None,
        "plan": first.plan,
        "notes": "\n".join(first.notes),
        "image": job.image,
        **first.more,
    }


def without_first_step(seconds: list[float]) -> list[float]:
    """Drop the first step of a pass, which includes set-up, if at least two steps remain."""
    return seconds[1:] if len(seconds) > 2 else seconds


def _failed(backend: Local, job: Job, error: Exception) -> Result:
    return Result({**_input_columns(backend, job), "error": f"{type(error).__name__}: {error}"})
