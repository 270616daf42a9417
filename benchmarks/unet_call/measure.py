"""What is measured: UNet calls, passes, and what reduces and predicts in them. Each part gives rows."""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from tomesd.merge import bipartite_soft_matching_random2d

from todo_core import Session, Settings, TokenGrid
from todo_core.patching.plan import Pass
from todo_core.patching.time.prediction import History
from todo_core.reduction import cluster, match, stride
from unet_call.models import Subject
from unet_call.variants import BASELINE, NAMES, Patch, variants

Row = dict[str, Any]
Factors = tuple[int, int]  # of level 1 and of level 2
ENOUGH_TURNS = 5
MIN_SECONDS = 0.05  # of one timing of a reduction: shorter ones run several times
DRIFT = 0.1  # how far the latent moves from step to step
UNPATCHED = "unpatched"


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """(lower, upper)."""
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper


def turns_of(args: argparse.Namespace, enough: int) -> Iterator[int]:
    """0, which is a warm-up, and the turns until the part's seconds are over, but ``enough`` in any case."""
    yield 0
    begin = time.monotonic()
    for turn in range(1, args.turns + 1):
        if turn > enough and time.monotonic() - begin > args.seconds:
            return
        yield turn


# calls --------------------------------------------------------------------------------------------------------------


def calls(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """Seconds of one UNet call by each variant, and its speed relative to the baseline: medians over the turns.

    Each turn runs all variants, in another order. A variant that fails gets a row with ``failed``, and is left out of
    the later turns.
    """
    return timed(subject, side, variants(subject, side, args.settings or NAMES, args.paths), args)


def timed(subject: Subject, side: int, patches: Mapping[str, Patch], args: argparse.Namespace) -> list[Row]:
    """The rows of ``calls`` for these variants, the baseline among them."""
    order, found = [*patches], {name: list[Row]() for name in patches}
    failed: dict[str, str] = {}
    for turn in turns_of(args, ENOUGH_TURNS):
        random.Random(turn).shuffle(order)
        call = subject.call(side if turn else args.warm_up or side, args.batch)
        for name in [name for name in order if name not in failed]:
            try:
                with patches[name]():
                    found[name].append(time_call(subject, call))
            except Exception as error:  # code of other projects, or too little memory: the others still run
                if name == BASELINE:
                    raise
                failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    baseline = [call["seconds"] for call in found[BASELINE][1:]]
    return [
        {"setting": name} | ({"failed": failed[name]} if name in failed else _summary(found[name][1:], baseline))
        for name in patches
    ]


def _summary(calls: list[Row], baseline: list[float]) -> Row:
    turns = [call["seconds"] for call in calls]
    row = {
        "seconds": statistics.median(turns),
        "speed": statistics.median(b / s for b, s in zip(baseline, turns, strict=True)),
        "attention": statistics.median(call["attention"] for call in calls),
        "turns": turns,
    }
    return row | ({"peak": calls[-1]["peak"]} if "peak" in calls[-1] else {})


def time_call(subject: Subject, call: Callable[[], Any]) -> Row:
    """Seconds of one call and of the level-1 attention in it; on a GPU also its peak memory beyond the model, MiB."""
    gpu, clock = subject.device == "cuda", subject.clock
    if gpu:
        clock.wait()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    with attention_marks(subject) as marks:
        seconds = clock.seconds(call)
    row = {"seconds": seconds, "attention": sum(clock.between(begin, end) for begin, end in marks)}
    return row | ({"peak": (torch.cuda.max_memory_allocated() - held) / 2**20} if gpu else {})


@contextmanager
def attention_marks(subject: Subject) -> Iterator[list[list[Any]]]:
    """A list that gets the [begin, end] of the self-attention of each level-1 block, during a call.

    It is timed from the start of the block to its second norm. Implementations put their work at different places;
    this counts all of it, with one norm and one addition.
    """
    marks: list[list[Any]] = []
    mark = subject.clock.mark
    handles = []
    for block in subject.blocks:
        handles.append(block.register_forward_pre_hook(lambda *_: marks.append([mark()]), prepend=True))
        handles.append(block.norm2.register_forward_pre_hook(lambda *_: marks[-1].append(mark()), prepend=True))
    try:
        yield marks
    finally:
        for handle in handles:
            handle.remove()


# passes -------------------------------------------------------------------------------------------------------------


def factors_of(text: str) -> Factors:
    """ "2" is factor 2 at level 1 alone, "2,2" at both levels."""
    first, _, second = text.partition(",")
    return int(first), int(second or 1)


def sessions(
    subject: Subject, factors: Sequence[Factors], intervals: Sequence[int], side: int, steps: int
) -> dict[str, Session | None]:
    """The variants by name, for a pass of so many steps at a latent of ``side``; None is the unpatched UNet."""
    facts = Pass(TokenGrid(side, side), steps)
    made: dict[str, Session | None] = {UNPATCHED: None}
    for first, second in factors:
        for interval in (1, *intervals):
            parts = [f"ToDo {first}" + (f" and {second}" if second > 1 else "")] if (first, second) != (1, 1) else []
            parts += [f"interval {interval}"] if interval > 1 else []
            if parts:
                settings = Settings(factor_1=first, factor_2=second, interval=interval, predict="deep")
                made[", ".join(parts)] = Session(subject.host, settings, facts)
    return made


def passes(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """Steps one after the other, as a WebUI makes them, with the hooks' own Python; in each all variants take turns."""
    chosen = sessions(subject, args.factors, args.intervals, side, args.steps)
    taken: dict[str, list[float]] = {name: [] for name in chosen}
    for turn in turns_of(args, 1):
        call = moving(subject, side if turn else args.warm_up or side, args.batch)
        for step in range(args.steps):
            for name, session in chosen.items():
                seconds = step_seconds(subject, session, partial(call, step), step, args.steps)
                if turn:
                    taken[name].append(seconds)
    return [
        {"setting": name} | of_steps(taken[name], session.record.predicted_in if session else set(), args.steps)
        for name, session in chosen.items()
    ]


def step_seconds(subject: Subject, session: Session | None, call: Callable[[], Any], step: int, steps: int) -> float:
    """One step; attaching and detaching count, as in a WebUI."""

    def run() -> None:
        if session:
            session.attach().begin_step(step, steps, (0,))
        call()
        if session:
            session.detach()

    return subject.clock.seconds(run)


def of_steps(seconds: Sequence[float], predicted: set[int], steps: int) -> Row:
    """The seconds of a pass and of each kind of step: medians."""
    kinds: dict[str, list[float]] = {"computed": [], "predicted": []}
    for number, value in enumerate(seconds):
        kinds["predicted" if number % steps in predicted else "computed"].append(value)
    whole = statistics.median(sum(seconds[i : i + steps]) for i in range(0, len(seconds), steps))
    row: Row = {"predicted_in": sorted(predicted), "pass": whole, "steps": steps, "passes": len(seconds) // steps}
    return row | {
        kind: {"seconds": statistics.median(each), "quartiles": quartiles(each)} for kind, each in kinds.items() if each
    }


def moving(subject: Subject, side: int, batch: int) -> Callable[[int], Any]:
    """A call for each step: the latent moves a little and the timestep falls."""
    call = subject.call(side, batch)
    latent, time_of = call.args[:2]
    noise = torch.randn_like(latent)
    return lambda step: call.func(latent + DRIFT * step * noise, time_of - 20 * step, *call.args[2:], **call.keywords)


# what is in them ----------------------------------------------------------------------------------------------------


def fit(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """Milliseconds to learn from a computed step and to predict, summed over all deep transformers."""
    shapes: list[torch.Size] = []  # (b, c, h, w) of what they see in a call
    deep = subject.host.deep_transformers
    hooks = [module.register_forward_pre_hook(lambda _, x: shapes.append(x[0].shape)) for module in deep]
    subject.call(side, args.batch)()
    for hook in hooks:
        hook.remove()
    turns = [[_fit_one(subject, shape) for shape in shapes] for _ in turns_of(args, ENOUGH_TURNS)]
    sums = [[1000 * sum(part) for part in zip(*turn, strict=True)] for turn in turns]
    learn, predict = map(statistics.median, zip(*sums, strict=True))
    return [{"setting": "fit", "ms": {"learn": learn, "predict": predict}}]


def _fit_one(subject: Subject, shape: torch.Size) -> tuple[float, float]:
    """Seconds to learn from a second run of one transformer, and to predict a third."""
    like: dict[str, Any] = {"device": subject.device, "dtype": subject.dtype}
    history, times = History(), [torch.full((), 500.0 - 20 * n, device=subject.device) for n in range(3)]
    x, made = torch.randn(3, *shape, **like), torch.randn(2, *shape, **like)
    history.add(times[0], x[0], made[0])
    learn = subject.clock.seconds(lambda: history.add(times[1], x[1], made[1]))
    return learn, subject.clock.seconds(lambda: history.predict(times[2], x[2]))


def reductions(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """Milliseconds to find the groups of one level-1 block's tokens, to merge them, and to unmerge the result."""
    grid = TokenGrid(side, side).halved(subject.host.depth)
    x = smooth_tokens(args.batch, grid.size, subject.blocks[0].attn1.to_q.in_features)
    x, half = x.to(subject.device, subject.dtype), grid.tokens // 2
    found: dict[str, Callable[[], tuple[Callable[..., Any], ...]]] = {
        "ToDo 2": lambda: _both(stride(grid.size, 2, 0)),
        "ToMe 0.5": lambda: _both(match(x, grid.size, 0.5)),
        "cluster 0.5": lambda: _both(cluster(x, half)),
        "tomesd 0.5": lambda: bipartite_soft_matching_random2d(x, grid.width, grid.height, 2, 2, half, no_rand=True),
    }
    parts: dict[tuple[str, str], Callable[[], Any]] = {}
    for name, find in found.items():
        merge, unmerge = find()
        merged = merge(x)
        parts |= {(name, "find"): find, (name, "merge"): partial(merge, x), (name, "unmerge"): partial(unmerge, merged)}
    counts = {key: max(1, round(MIN_SECONDS / max(1e-9, subject.clock.seconds(part)))) for key, part in parts.items()}
    order, taken = [*parts], {key: list[float]() for key in parts}
    for turn in turns_of(args, ENOUGH_TURNS):
        random.Random(turn).shuffle(order)
        for key in order:
            again = range(counts[key])
            seconds = subject.clock.seconds(lambda run=parts[key], again=again: [run() for _ in again])
            taken[key].append(seconds / counts[key])
    medians = {key: 1000 * statistics.median(each) for key, each in taken.items()}
    return [{"setting": name, "ms": {part: medians[name, part] for of, part in parts if of == name}} for name in found]


def _both(reduction: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return reduction.merge, reduction.unmerge


def smooth_tokens(batch: int, size: tuple[int, int], channels: int) -> torch.Tensor:
    """(batch, h*w, channels) float32 on the CPU, random but smooth over the grid, the same at every call."""
    generator = torch.Generator().manual_seed(size[0])
    coarse = torch.randn(batch, channels, *(-(-side // 8) for side in size), generator=generator)
    smooth = F.interpolate(coarse, size, mode="bicubic")
    smooth += 0.2 * torch.randn(smooth.shape, generator=generator)
    return smooth.flatten(2).transpose(1, 2).contiguous()


PARTS: dict[str, Callable[[Subject, int, argparse.Namespace], list[Row]]] = {
    "calls": calls,
    "passes": passes,
    "fit": fit,
    "reductions": reductions,
}
