"""Run the jobs scene by scene. Every finished row is stored at once; a bar shows the remaining time."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from .jobs import Job
from .measurement import Result
from .row_store import RowStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SceneJobs:
    """The open jobs of one scene, and its baseline image if that is done."""

    jobs: tuple[Job, ...]
    baseline: np.ndarray | None


Engine = Callable[[Sequence[SceneJobs]], Generator[Result, None, None]]
"""Runs scenes and yields their results in any order."""


def run_jobs(jobs: Sequence[Job], store: RowStore, engine: Engine, *, seconds: float = math.inf) -> int:
    """Run the jobs that the store lacks, for at most so many seconds; returns the number of new failed rows."""
    end = time.monotonic() + seconds
    scenes = pending(jobs, store)
    total, failures = len(jobs), 0
    bar = tqdm(total=total, initial=total - sum(len(scene.jobs) for scene in scenes), unit="image")
    with logging_redirect_tqdm(), bar as progress, closing(engine(scenes)) as results:
        for result in results:
            store.add(result)
            failures += bool(result.row["error"])
            progress.set_postfix_str(result.row["variant"], refresh=False)
            progress.update()
            if time.monotonic() > end:
                log.warning("Time is up: %d of %d rows are in %s", len(store.done()), total, store.folder)
                break
    return failures


def pending(jobs: Sequence[Job], store: RowStore) -> list[SceneJobs]:
    """The open jobs by scene, in order."""
    finished = store.done()
    found = []
    for _, of_scene in itertools.groupby(jobs, key=lambda job: job.scene.number):
        scene = list(of_scene)
        open_jobs = tuple(job for job in scene if job.key not in finished)
        if open_jobs:
            baseline = finished.get(scene[0].key)
            found.append(SceneJobs(open_jobs, store.load_image(baseline) if baseline else None))
    return found
