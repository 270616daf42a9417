"""Time and peak memory of UNet calls, and the time of the level-1 attention in them."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from todo_lab.evaluation.metrics.peak_memory import peak_memory
from unet_call.models import Subject
from unet_call.variants import BASELINE, Patch

Row = dict[str, Any]
ENOUGH_TURNS = 5
SMALL_SIDE = 16  # of the latent of a first call, which loads the libraries


@torch.inference_mode()
def measure(
    subject: Subject,
    side: int,
    patches: Mapping[str, Patch],
    *,
    batch: int,
    repeats: int,
    warm_up: int | None = None,
    seconds: float = math.inf,
) -> list[Row]:
    """One row for each variant: its seconds, and its speed relative to the baseline (median over the turns).

    Each turn runs all variants, in another order. The first turn is the warm-up, at side ``warm_up`` if given. A
    variant that fails gets a row with ``failed``, and is left out of the later turns. After so many ``seconds``
    beside the first turn no other begins, but five are made in any case.
    """
    order = [*patches]
    calls: dict[str, list[Row]] = {name: [] for name in order}
    failed: dict[str, str] = {}
    for turn in range(repeats + 1):
        if turn == 1:
            begin = time.monotonic()
        if turn > ENOUGH_TURNS and time.monotonic() - begin > seconds:
            break
        random.Random(turn).shuffle(order)
        call = subject.call(side if turn else warm_up or side, batch)
        for name in [name for name in order if name not in failed]:
            try:
                with patches[name]():
                    calls[name].append(time_call(subject, call))
            except Exception as error:  # code of other projects, or too little memory: the others still run
                if name == BASELINE:
                    raise
                failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    run = time.strftime("%Y-%m-%dT%H:%M:%S")
    baseline = [call["seconds"] for call in calls[BASELINE][1:]]
    rows = [{"latent": side, "setting": name, "run": run} for name in patches]
    return [
        row | ({"failed": failed[name]} if name in failed else _summary(calls[name][1:], baseline))
        for name, row in zip(patches, rows, strict=True)
    ]


def _summary(calls: list[Row], baseline: list[float]) -> Row:
    turns = [call["seconds"] for call in calls]
    row = {
        "seconds": statistics.median(turns),
        "speed": statistics.median(b / s for b, s in zip(baseline, turns, strict=True)),
        "attention": statistics.median(call["attention"] for call in calls),
        "turns": turns,
        "attentions": [call["attention"] for call in calls],
    }
    return row | ({"peak": calls[-1]["peak"]} if "peak" in calls[-1] else {})


def time_call(subject: Subject, call: Callable[[], Any]) -> Row:
    """Seconds of one call and of the level-1 attention in it; on a GPU also its peak memory beyond the model, MiB."""
    gpu = subject.device == "cuda"
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    with attention_marks(subject) as marks:
        start = _mark(subject)
        call()
        stop = _mark(subject)
    if not gpu:
        return {"seconds": stop - start, "attention": sum(end - begin for begin, end in marks)}
    torch.cuda.synchronize()
    seconds, attention = start.elapsed_time(stop) / 1000, sum(begin.elapsed_time(end) for begin, end in marks) / 1000
    return {"seconds": seconds, "attention": attention, "peak": (torch.cuda.max_memory_allocated() - held) / 2**20}


@contextmanager
def attention_marks(subject: Subject) -> Iterator[list[list[Any]]]:
    """A list that gets the [begin, end] of the self-attention of each level-1 block, during a call.

    It is timed from the start of the block to its second norm. Implementations put their work at different places;
    this counts all of it, with one norm and one addition. A GPU runs asynchronously, so there these are CUDA events.
    """
    marks: list[list[Any]] = []

    def begin(*_: Any) -> None:
        marks.append([_mark(subject)])

    def end(*_: Any) -> None:
        marks[-1].append(_mark(subject))

    handles = [block.register_forward_pre_hook(begin, prepend=True) for block in subject.blocks]
    handles += [block.norm2.register_forward_pre_hook(end, prepend=True) for block in subject.blocks]
    try:
        yield marks
    finally:
        for handle in handles:
            handle.remove()


def _mark(subject: Subject) -> Any:
    if subject.device != "cuda":
        return subject.clock()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


@torch.inference_mode()
def peak(subject: Subject, side: int, patch: Patch, small: Patch, *, batch: int) -> float | None:
    """Peak memory of one call beyond the loaded model, in MiB. For a process that has done nothing else.

    First a call at a small latent, with the same variant as ``small``, loads the libraries.
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
