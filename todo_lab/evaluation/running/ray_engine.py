"""The same jobs on a Ray cluster: one worker a GPU, or a given number of cores; a scene that dies with its worker is
done again elsewhere. Images come back to this machine, so the workers need no shared disk, only the same packages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from ..backends.backend import Backend
from ..backends.source import Source
from ..metrics.pretrained_metrics import Learned
from .measurement import Result, measure_scene
from .runner import Engine, Group

RETRIES = 5  # of a scene whose worker died; what raises inside a scene is a row with an error and not tried again


def ray_engine(source: Source, *, runs: int, clip: str | None = None, cores: int | None = None) -> Engine:
    """Groups in the order in which they are done. A cluster that is there already is used (RAY_ADDRESS or a running
    one on this machine), else one is begun here. ``cores`` is that of one worker on the CPU, 1 if not given."""
    import ray

    gpus = 1 if source.device.startswith("cuda") else 0

    def engine(groups: Sequence[Group]) -> Iterator[Result]:
        begun = not ray.is_initialized()
        if begun:
            ray.init(log_to_driver=False)
        try:
            task = ray.remote(num_cpus=cores or 1, num_gpus=gpus, max_retries=RETRIES)(_scene)
            waiting = [task.remote(_with_cores(source, cores), group, runs, clip) for group in groups]
            while waiting:
                (done,), waiting = ray.wait(waiting, num_returns=1)
                yield from ray.get(done)
        finally:
            if begun:
                ray.shutdown()

    return engine


def _scene(source: Source, group: Group, runs: int, clip: str | None) -> list[Result]:
    backend, learned = _opened(repr(source), clip, _Held(source))
    return list(measure_scene(backend, group.jobs, runs=runs, learned=learned, unreduced=group.unreduced))


class _Held:
    """A source as an argument of a cache: the key beside it tells sources apart."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=1)
def _opened(key: str, clip: str | None, held: _Held) -> tuple[Backend, Learned]:
    """The model is loaded once a worker."""
    return held.source.open(), Learned(clip)


def _with_cores(source: Source, cores: int | None) -> Source:
    """torch on the cores that the worker has, or the workers would compute against each other."""
    from dataclasses import replace

    return source if source.device.startswith("cuda") else replace(source, cores=cores or 1)
