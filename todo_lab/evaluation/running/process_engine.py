"""Runs the jobs in several processes of this machine, also on one GPU, which a small model cannot fill alone.

Each process takes every n-th scene. Prompts vary fastest, so with as many processes as prompts each keeps its prompts.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from multiprocessing import connection, get_context
from typing import Any

from ..backends.source import Source
from ..metrics.image_metrics import ImageMetrics
from .measurement import Result
from .runner import Engine, SceneJobs, local_engine


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
        shares = [scenes[first::processes] for first in range(min(processes, len(scenes)))]
        started = [start(share) for share in shares]
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
    engine = local_engine(source.open(), runs=runs, timed=timed, metrics=ImageMetrics(source.device))
    for result in engine(scenes):
        writer.send(result)
