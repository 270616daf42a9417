"""What runs the scenes: this process, several of them, or a Ray cluster.

Several processes also share one GPU, which a small model cannot fill alone. Each takes every n-th scene: prompts vary
fastest, so with as many processes as prompts each keeps its prompts. With Ray there is one worker per GPU or per given
number of cores. If a worker dies, another one repeats its scene. Images are sent back to this machine, so the workers
need the same packages but no shared disk.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import lru_cache
from multiprocessing import connection, get_context
from typing import Any

from ..backends.local import Local
from ..backends.source import Source
from ..metrics.image_metrics import ImageMetrics
from .measurement import Result, measure_scene
from .runner import Engine, SceneJobs

RETRIES = 5  # of a scene whose Ray worker died; an exception inside a scene becomes a failed row without a retry


def local_engine(backend: Local, *, runs: int, timed: bool = True, metrics: ImageMetrics) -> Engine:
    """An engine that runs the scenes in this process, one after the other."""

    def engine(scenes: Sequence[SceneJobs]) -> Generator[Result, None, None]:
        options: dict[str, Any] = {"runs": runs, "timed": timed, "metrics": metrics}
        for scene in scenes:
            yield from measure_scene(backend, scene.jobs, baseline=scene.baseline, **options)

    return engine


@lru_cache(maxsize=1)
def _engine_of(source: Source, runs: int, timed: bool) -> Engine:
    """Load the model once per worker."""
    return local_engine(source.open(), runs=runs, timed=timed, metrics=ImageMetrics(source.device))


def process_engine(source: Source, *, processes: int, runs: int, timed: bool) -> Engine:
    """An engine that yields results as they come. Raises ChildProcessError if a process dies."""
    context = get_context("spawn")  # CUDA does not survive a fork

    def start(scenes: Sequence[SceneJobs]) -> tuple[Any, Any]:
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(writer, source, scenes, runs, timed), daemon=True)
        process.start()
        writer.close()  # here, so that the reader sees the end of the process
        return reader, process

    def engine(scenes: Sequence[SceneJobs]) -> Generator[Result, None, None]:
        started = [start(scenes[first::processes]) for first in range(min(processes, len(scenes)))]
        try:
            yield from _results(dict(started))
        finally:
            for _, process in started:
                process.terminate()
                process.join()

    return engine


def _results(processes: dict[Any, Any]) -> Generator[Result, None, None]:
    while processes:
        ready: list[Any] = connection.wait(list(processes))
        for reader in ready:
            try:
                yield reader.recv()
            except EOFError:
                process = processes.pop(reader)
                process.join()
                if process.exitcode:
                    raise ChildProcessError(f"a process ended with {process.exitcode}") from None


def _work(writer: Any, source: Source, scenes: Sequence[SceneJobs], runs: int, timed: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all processes; the first one ends the others
    for result in _engine_of(source, runs, timed)(scenes):
        writer.send(result)


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
    return list(_engine_of(source, runs, timed)([scene]))
