"""Run the jobs: scene by scene, each finished row kept at once, with the time left shown."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..backends.backend import Backend
from ..metrics.pretrained_metrics import Learned
from .jobs import Job
from .measurement import Result, measure_scene
from .row_store import Journal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Group:
    """The jobs of one scene that are still to do, with the unreduced image if that is done."""

    jobs: tuple[Job, ...]
    unreduced: np.ndarray | None


Engine = Callable[[Sequence[Group]], Iterable[Result]]
"""Takes groups and yields their results, in any order."""


def run(jobs: Sequence[Job], journal: Journal, engine: Engine, *, retry_failed: bool = False) -> int:
    """Do what the journal lacks; returns the number of failed rows among the new ones."""
    done = journal.done(failed=not retry_failed)
    groups = pending(jobs, journal, done)
    total, failures = len(jobs), 0
    with logging_redirect_tqdm(), tqdm(total=total, initial=total - _count(groups), unit="image") as progress:
        for result in engine(groups):
            journal.add(result)
            failures += bool(result.row["error"])
            progress.set_postfix_str(result.row["variant"], refresh=False)
            progress.update()
    return failures


def pending(jobs: Sequence[Job], journal: Journal, done: set[str]) -> list[Group]:
    """By scene, in their order."""
    pictures = {row["key"]: row for row in journal.rows if not row["error"]}
    found = []
    for _, of_scene in itertools.groupby(jobs, key=lambda job: job.scene.number):
        scene = list(of_scene)
        left = tuple(job for job in scene if job.key not in done)
        if left:
            whole = pictures.get(scene[0].key)
            found.append(Group(left, journal.picture(whole) if whole else None))
    return found


def local_engine(backend: Backend, *, runs: int, learned: Learned) -> Engine:
    """In this process, one after the other."""

    def engine(groups: Sequence[Group]) -> Iterator[Result]:
        for group in groups:
            yield from measure_scene(backend, group.jobs, runs=runs, learned=learned, unreduced=group.unreduced)

    return engine


def _count(groups: Iterable[Group]) -> int:
    return sum(len(group.jobs) for group in groups)
