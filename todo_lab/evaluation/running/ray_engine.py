"""Runs the jobs on a Ray cluster, with one worker per GPU or per given number of cores.

If a worker dies, another one repeats its scene. Images are sent back to this machine, so the workers need the same
packages but no shared disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ..backends.backend import Backend
from ..backends.source import Source
from ..metrics.pretrained_metrics import PretrainedMetrics
from .measurement import Result, measure_scene
from .runner import Engine, SceneJobs

Models = dict[str, str | None]
RETRIES = 5  # of a scene whose worker died; an exception inside a scene becomes a failed row without a retry


def ray_engine(source: Source, *, runs: int, models: Models | None = None, cores: int | None = None) -> Engine:
    """An engine that yields scenes as they finish. ``cores`` are those of one CPU worker, 1 by default.

    ``models`` are the arguments of PretrainedMetrics.

    It uses the cluster of RAY_ADDRESS or a running one on this machine, else it starts one here.
    """
    import ray

    gpus = 1 if source.device.startswith("cuda") else 0

    def engine(scenes: Sequence[SceneJobs]) -> Iterator[Result]:
        started = not ray.is_initialized()
        if started:
            ray.init(log_to_driver=False)
        try:
            task = ray.remote(num_cpus=cores or 1, num_gpus=gpus, max_retries=RETRIES)(_scene)
            waiting = [task.remote(_with_cores(source, cores), scene, runs, models or {}) for scene in scenes]
            while waiting:
                (done,), waiting = ray.wait(waiting, num_returns=1)
                yield from ray.get(done)
        finally:
            if started:
                ray.shutdown()

    return engine


def _scene(source: Source, scene: SceneJobs, runs: int, models: Models) -> list[Result]:
    backend, pretrained = _opened(source, tuple(models.items()))
    return list(measure_scene(backend, scene.jobs, runs=runs, pretrained=pretrained, baseline=scene.baseline))


@lru_cache(maxsize=1)
def _opened(source: Source, models: tuple[tuple[str, str | None], ...]) -> tuple[Backend, PretrainedMetrics]:
    """Load the model once per worker."""
    return source.open(), PretrainedMetrics(**dict(models))


def _with_cores(source: Source, cores: int | None) -> Source:
    """Limit torch to the worker's cores, so that workers do not compete."""
    from dataclasses import replace

    return source if source.device.startswith("cuda") else replace(source, cores=cores or 1)
