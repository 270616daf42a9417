"""The measuring: interleaved calls of the UNet, the level-1 attention in them, and their peak memory."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from todo_lab.evaluation.metrics.peak_memory import peak_memory
from unet_call.models import Subject
from unet_call.variants import WHOLE, Patch

Row = dict[str, Any]
SMALL_SIDE = 16  # of a latent that loads the libraries


@torch.inference_mode()
def measure(
    subject: Subject,
    side: int,
    tried: Mapping[str, Patch],
    *,
    batch: int,
    repeats: int,
    warm_up: int | None = None,
) -> list[Row]:
    """A row a variant: its seconds, and its speed as the median over turns of whole's seconds to its own.

    Every turn runs all variants in another order; the first is the warm-up, if need be at another side. A variant that
    cannot run is a row with ``failed``, and stays out of the later turns.
    """
    order = [*tried]
    taken: dict[str, list[Row]] = {name: [] for name in order}
    failed: dict[str, str] = {}
    for turn in range(repeats + 1):
        random.Random(turn).shuffle(order)
        call = subject.call(side if turn else warm_up or side, batch)
        for name in [name for name in order if name not in failed]:
            try:
                with tried[name]():
                    taken[name].append(once(subject, call))
            except Exception as error:  # somebody else's code, or too little memory: the others are to go on
                if name == WHOLE:
                    raise
                failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    run = time.strftime("%Y-%m-%dT%H:%M:%S")
    whole = [one["seconds"] for one in taken[WHOLE][1:]]
    rows = [{"latent": side, "setting": name, "run": run} for name in tried]
    return [
        row | ({"failed": failed[name]} if name in failed else _summary(taken[name][1:], whole))
        for name, row in zip(tried, rows, strict=True)
    ]


def _summary(taken: list[Row], whole: list[float]) -> Row:
    turns = [one["seconds"] for one in taken]
    row = {
        "seconds": statistics.median(turns),
        "speed": statistics.median(w / s for w, s in zip(whole, turns, strict=True)),
        "attention": statistics.median(one["attention"] for one in taken),
        "turns": turns,
        "attentions": [one["attention"] for one in taken],
    }
    return row | ({"peak": taken[-1]["peak"]} if "peak" in taken[-1] else {})


def once(subject: Subject, call: Callable[[], Any]) -> Row:
    """Seconds of one call and of the level-1 attention in it; on a GPU also the MiB held at most beyond the model."""
    gpu = subject.device == "cuda"
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    with attention_marks(subject) as marks:
        start = time.perf_counter()
        call()
        if gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    if not gpu:
        return {"seconds": seconds, "attention": sum(end - begin for begin, end in marks)}
    attention = sum(begin.elapsed_time(end) for begin, end in marks) / 1000
    return {"seconds": seconds, "attention": attention, "peak": (torch.cuda.max_memory_allocated() - held) / 2**20}


@contextmanager
def attention_marks(subject: Subject) -> Iterator[list[list[Any]]]:
    """Fills up with the [begin, end] of the self-attention of each level-1 block.

    From the block's beginning to its second norm, because implementations differ in where they put their work: so
    all of it counts, for all of them with one norm and one addition besides. CUDA events, for a GPU runs behind.
    """
    marks: list[list[Any]] = []

    def begin(*_: Any) -> None:
        marks.append([_mark(subject.device)])

    def end(*_: Any) -> None:
        marks[-1].append(_mark(subject.device))

    handles = [block.register_forward_pre_hook(begin, prepend=True) for block in subject.blocks]
    handles += [block.norm2.register_forward_pre_hook(end, prepend=True) for block in subject.blocks]
    try:
        yield marks
    finally:
        for handle in handles:
            handle.remove()


def _mark(device: str) -> Any:
    if device != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


@torch.inference_mode()
def peak(subject: Subject, side: int, patch: Patch, small: Patch, *, batch: int) -> float | None:
    """MiB that the most memory of one call is beyond the loaded model. For a process that has done nothing else.

    A call at a small latent, under the same variant ``small``, has loaded the libraries before it counts.
    """
    device, call = torch.device(subject.device), subject.call(side, batch)
    with small():
        subject.call(SMALL_SIDE, batch)()
    with patch():
        with peak_memory(device) as before:
            pass
        with peak_memory(device) as during:
            call()
    return None if before.mib is None or during.mib is None else during.mib - before.mib
