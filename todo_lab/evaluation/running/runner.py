"""Run the jobs scene by scene. Every finished row is stored at once; a bar shows the remaining time."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..backends.backend import Backend
from ..metrics.pretrained_metrics import PretrainedMetrics
from .jobs import Job
from .measurement import Result, measure_scene
from .row_store import RowStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SceneJobs:
    """The open jobs of one scene, and its baseline image if that is done."""

    jobs: tuple[Job, ...]
    baseline: np.ndarray | None


Engine = Callable[[Sequence[SceneJobs]], Iterable[Result]]
"""Runs scenes and yields their results in any order."""


def run_jobs(jobs: Sequence[Job], store: RowStore, engine: Engine, *, retry_failed: bool = False) -> int:
    """Run the jobs that the store lacks; returns the number of new failed rows."""
    done = store.done(failed=not retry_failed)
    scenes = pending(jobs, store, done)
    total, failures = len(jobs), 0
    with logging_redirect_tqdm(), tqdm(total=total, initial=total - _count(scenes), unit="image") as progress:
        for result in engine(scenes):
            store.add(result)
            failures += bool(result.row["error"])
            progress.set_postfix_str(result.row["variant"], refresh=False)
            progress.update()
    return failures


def pending(jobs: Sequence[Job], store: RowStore, done: set[str]) -> list[SceneJobs]:
    """The open jobs by scene, in order."""
    finished = {row["key"]: row for row in store.rows if not row["error"]}
    found = []
    for _, of_scene in itertools.groupby(jobs, key=lambda job: job.scene.number):
        scene = list(of_scene)
        open_jobs = tuple(job for job in scene if job.key not in done)
        if open_jobs:
            baseline = finished.get(scene[0].key)
            found.append(SceneJobs(open_jobs, store.load_image(baseline) if baseline else None))
    return found


def local_engine(backend: Backend, *, runs: int, pretrained: PretrainedMetrics) -> Engine:
    """An engine that runs the scenes in this process, one after the other."""

    def engine(scenes: Sequence[SceneJobs]) -> Iterator[Result]:
        for scene in scenes:
            yield from measure_scene(backend, scene.jobs, runs=runs, pretrained=pretrained, baseline=scene.baseline)

    return engine


def _count(scenes: Iterable[SceneJobs]) -> int:
    return sum(len(scene.jobs) for scene in scenes)
