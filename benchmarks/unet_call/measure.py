"""What is measured: UNet calls, passes, and what reduces and predicts in them. Each part gives rows."""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from todo_core import Session, TokenGrid
from todo_core.course import Course
from todo_core.patching.estimate import Estimate
from todo_core.patching.facts import Pass
from todo_core.patching.steps import rows_of
from todo_core.patching.time import pacing
from todo_core.patching.time.prediction import Line
from todo_core.patching.time.prediction_plan import Part
from todo_lab.sampling.samplers import make_scheduler
from todo_lab.sampling.schedules import SIGMAS
from unet_call.models import Subject
from unet_call.variants import BASELINE, NAMES, OF_PASSES, variants

Row = dict[str, Any]
Variant = tuple[Session | None, dict[Part, set[int]]]  # None is the unpatched UNet; the steps that auto shall predict
ENOUGH_TURNS = 5
DRIFT = 0.1  # how far the latent moves from step to step
UNPATCHED = "unpatched"
PYTHON_SIDE = 32  # of a latent so small that a GPU waits for Python
WARM_UP_STEPS = 5  # of a pass: all kinds of steps
GUIDANCE = 6.0
KINDS = ("computed", "measured", "predicted", "skipped")  # of steps; of a skipped one the whole model is predicted
PLAIN = (0.8, 0.7, 0.6)  # of a pass's steps
SLOWEST = 10


def quartiles(values: Sequence[float]) -> list[float]:
    """[lower, upper]."""
    return np.quantile(values, [0.25, 0.75]).tolist()


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
    patches = variants(subject, side, args.settings or NAMES, args.paths)
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
    with ExitStack() as hooks:
        for block in subject.blocks:
            begins = block.register_forward_pre_hook(lambda *_: marks.append([mark()]), prepend=True)
            ends = block.norm2.register_forward_pre_hook(lambda *_: marks[-1].append(mark()), prepend=True)
            hooks.enter_context(begins)
            hooks.enter_context(ends)
        yield marks


# passes -------------------------------------------------------------------------------------------------------------


def passes(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """Steps one after the other, as a WebUI makes them, with the hooks' own Python; in each all variants take turns.

    Passes of fewer plain steps are the first steps of the unpatched ones.
    """
    chosen, steps = sessions(subject, side, args), args.steps
    taken: dict[str, list[float]] = {name: [] for name in chosen}
    for turn in turns_of(args, 1):
        call = moving(subject, side if turn else args.warm_up or side, args.batch, steps)
        for step in range(steps if turn else min(steps, WARM_UP_STEPS)):
            for name, variant in chosen.items():
                seconds = step_seconds(subject, variant, partial(call, step), step, steps)
                if turn:
                    taken[name].append(seconds)
    rows = [{"setting": name} | of_steps(taken[name], variant[0], steps) for name, variant in chosen.items()]
    for count in sorted({round(share * steps) for share in PLAIN}, reverse=True):
        fewer = [second for i, second in enumerate(taken[UNPATCHED]) if i % steps < count]
        rows.append({"setting": f"{count} plain steps", "pass": whole(fewer, count)})
    return rows


def sessions(subject: Subject, side: int, args: argparse.Namespace) -> dict[str, Variant]:
    """The variants by name, for a pass at a latent of ``side`` with a sampler that adds no noise.

    One of `PYTHON_SIDE` counts as twice the trained side, so that presets reduce there too.
    """
    noise = SIGMAS["Karras"](2 * args.steps)[-args.steps - 1 :]  # with denoising 0.5
    facts = Pass(TokenGrid(side, side), args.steps, Course.of_noise(noise.tolist()))
    host = subject.host if side > PYTHON_SIDE else replace(subject.host, trained_side=side / 2)
    made: dict[str, Variant] = {UNPATCHED: (None, {})}
    for name, settings in OF_PASSES.items():
        if not args.settings or name in args.settings:
            session = Session(host, settings, facts)
            # random weights have errors that no trained model has: they are measured and read, but not obeyed
            made[name] = session, Estimate.of(host, session.plan).predicted
    return made


def step_seconds(subject: Subject, variant: Variant, call: Callable[[], Any], step: int, steps: int) -> float:
    """One step; attaching and detaching count, as in a WebUI."""
    session, predicted = variant

    def run() -> None:
        if session:
            session.begin_step(step, steps, rows_of((0,), (1 - GUIDANCE, GUIDANCE)))
            if session.acts_in_step():
                session.attach()
        call()
        if session:
            session.detach()

    def gap(_: Any, cost: float, tolerance: float, *more: Any) -> int:
        part: Part = "whole" if session and tolerance == session.plan.whole.tolerance else "deep"
        return pacing.LONGEST if step in predicted[part] else 1

    with mock.patch.object(pacing.Budget, "gap", gap):
        return subject.clock.seconds(run)


def of_steps(seconds: Sequence[float], session: Session | None, steps: int) -> Row:
    """The seconds of a pass and of each kind of step: medians. Of the computed ones, some measure the error too."""
    whole_in, deep_in = (part.predicted_in for part in session.record.parts.values()) if session else (set(), set())
    measures = session is not None and any(each.predicts and each.tolerance for each in session.plan.parts.values())
    measured = set(range(Line.computed_first - 1, steps - 1)) if measures else set()
    kinds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number, value in enumerate(seconds):
        step = number % steps
        kind = "skipped" if step in whole_in else "predicted" if step in deep_in else "computed"
        kinds["measured" if kind == "computed" and step in measured else kind].append(value)
    predicted = sorted(whole_in | deep_in)
    row: Row = {"predicted_in": predicted, "pass": whole(seconds, steps), "passes": len(seconds) // steps}
    row |= {"plan": str(session.plan)} if session else {}
    return row | {
        kind: {"seconds": statistics.median(each), "quartiles": quartiles(each)} for kind, each in kinds.items() if each
    }


def whole(seconds: Sequence[float], steps: int) -> float:
    """The median of passes of so many steps."""
    return statistics.median(sum(seconds[i : i + steps]) for i in range(0, len(seconds), steps))


def moving(subject: Subject, side: int, batch: int, steps: int) -> Callable[[int], Any]:
    """A call for each step: the latent moves a little, and the timesteps are those of DPM++ 2M Karras from 0.5 on."""
    call = subject.call(side, batch)
    latent, time_of = call.args[:2]
    noise = torch.randn_like(latent)
    scheduler = make_scheduler("DPM++ 2M", "Karras", steps, 2 * steps)
    times = [time.expand_as(time_of) for time in scheduler.timesteps.to(time_of)]
    return lambda step: call.func(latent + DRIFT * step * noise, times[step], *call.args[2:], **call.keywords)


def python(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """Milliseconds of Python of ours in a step of each variant, and its slowest functions, by cProfile.

    That of a function is its own time and that of torch's operations in it. The profiler makes all of them slower: the
    times of passes at this side tell the sum.
    """
    call, rows = moving(subject, side, args.batch, args.steps), []
    for name, variant in sessions(subject, side, args).items():
        for _ in ("a warm-up", "the pass that counts"):
            with cProfile.Profile() as profile:
                for step in range(args.steps):
                    step_seconds(subject, variant, partial(call, step), step, args.steps)
        own = own_seconds(profile)
        slowest = [("all of ours", own.total()), *own.most_common(SLOWEST)]
        rows.append({"setting": name, "ms": {of: 1000 * seconds / args.steps for of, seconds in slowest}})
    return rows


def own_seconds(profile: cProfile.Profile) -> Counter[str]:
    """The seconds of each function of todo_core, with the compiled ones that it calls."""
    own: Counter[str] = Counter()
    for function, (_, _, seconds, _, callers) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if is_ours(function):
            own[f"{Path(function[0]).stem}.{function[2]}"] += seconds
        elif function[0] == "~":  # compiled
            for caller in filter(is_ours, callers):
                own[f"{Path(caller[0]).stem}.{caller[2]}"] += callers[caller][2]
    return own


def is_ours(function: tuple[str, int, str]) -> bool:
    """Whether a function of the profiler, (file, line, name), is one of todo_core."""
    return "todo_core" in Path(function[0]).parts


PARTS = {"calls": calls, "passes": passes, "python": python}
