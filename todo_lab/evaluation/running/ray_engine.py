"""Runs the jobs on a Ray cluster, with one worker per GPU or per given number of cores.

If a worker dies, another one repeats its scene. Images are sent back to this machine, so the workers need the same
packages but no shared disk.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import lru_cache

from ..backends.backend import Backend
from ..backends.source import Source
from ..metrics.image_metrics import ImageMetrics
from .measurement import Result
from .runner import Engine, SceneJobs, local_engine

RETRIES = 5  # of a scene whose worker died; an exception inside a scene becomes a failed row without a retry


def ray_engine(source: Source, *, runs: int, timed: bool = True, cores: int | None = None) -> Engine:
    """An engine that yields scenes as they finish. ``cores`` are those of one CPU worker, 1 by default.

    It uses the cluster of RAY_ADDRESS or a running one on this machine, else it starts one here.
    """
    import ray

    has_gpu = source.device.startswith("cuda")
    worker = source if has_gpu else replace(source, cores=cores or 1)  # else the workers' threads compete

    def engine(scenes: Sequence[SceneJobs]) -> Generator[Result, None, None]:
        started = not ray.is_initialized()
        if started:
            ray.init(log_to_driver=False)
        try:
            task = ray.remote(num_cpus=cores or 1, num_gpus=int(has_gpu), max_retries=RETRIES)(_scene)
            waiting = [task.remote(worker, scene, runs, timed) for scene in scenes]
            while waiting:
                (done,), waiting = ray.wait(waiting, num_returns=1)
                yield from ray.get(done)
        finally:
            if started:
                ray.shutdown()

    return engine


def _scene(source: Source, scene: SceneJobs, runs: int, timed: bool) -> list[Result]:
    backend, metrics = _opened(source)
    return list(local_engine(backend, runs=runs, timed=timed, metrics=metrics)([scene]))


@lru_cache(maxsize=1)
def _opened(source: Source) -> tuple[Backend, ImageMetrics]:
    """Load the model once per worker."""
    return source.open(), ImageMetrics(source.device)
