"""Time of a pass with predicted deep transformers: a full-size UNet with random weights, step by step.

    python benchmarks/interval.py --layout sdxl --side 128 --steps 10
    python benchmarks/interval.py --side 192 --factors 1 2 2,2           # interval alone, level 1, both levels
    python benchmarks/interval.py --layout sdxl --side 256 --steps 4     # the two kinds of step alone
    python benchmarks/interval.py --channels 32 --side 32 --steps 4      # a trial
    OMP_NUM_THREADS=1 python benchmarks/interval.py --steps 4 --cpu-time # beside other work

In each step the unpatched UNet and ToDo with each pair of factors and each interval take turns, so that a slower
machine slows all of them. Seconds are medians over the steps of a kind. The speed of a pass is the sum of the
unpatched steps to the sum of its own. The first call of each is a warm-up at a small latent.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from unet_call.models import CHANNELS, LAYOUTS, Subject, build

from todo_core import Session, Settings, TokenGrid
from todo_core.patching.plan import Pass

WARM_UP_SIDE = 32


Factors = tuple[int, int]  # of level 1 and of level 2


def factors_of(text: str) -> Factors:
    """ "2" is factor 2 at level 1 alone, "2,2" at both levels."""
    first, _, second = text.partition(",")
    return int(first), int(second or 1)


def sessions(
    subject: Subject, factors: Sequence[Factors], intervals: Sequence[int], side: int, steps: int
) -> dict[str, Session | None]:
    """The variants by name, for a pass of so many steps at a latent of ``side``; None is the unpatched UNet."""
    facts = Pass(TokenGrid(side, side), steps)
    made: dict[str, Session | None] = {"unpatched": None}
    for first, second in factors:
        for interval in (1, *intervals):
            parts = [f"ToDo {first}" + (f" and {second}" if second > 1 else "")] if (first, second) != (1, 1) else []
            parts += [f"interval {interval}"] if interval > 1 else []
            if parts:
                settings = Settings(factor_1=first, factor_2=second, interval=interval, predict="deep")
                made[", ".join(parts)] = Session(subject.host, settings, facts)
    return made


def step_seconds(
    session: Session | None,
    call: Callable[[], Any],
    step: int,
    steps: int,
    device: str,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """One step; attaching and detaching count, as in a WebUI."""
    _wait(device)
    start = clock()
    if session:
        session.attach().begin_step(step, steps, (0,))
    call()
    if session:
        session.detach()
    _wait(device)
    return clock() - start


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@torch.inference_mode()
def measure(subject: Subject, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each step by variant, and the steps in which the deep transformers were predicted."""
    variants = sessions(subject, args.factors, args.intervals, args.side, args.steps)
    small, call = subject.call(WARM_UP_SIDE, args.batch), subject.call(args.side, args.batch)
    for session in variants.values():
        step_seconds(session, small, 0, args.steps, args.device)
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for step in range(args.steps):
        for name, session in variants.items():
            seconds[name].append(step_seconds(session, call, step, args.steps, args.device, subject.clock))
        print(f"step {step}:", {name: round(each[-1], 2) for name, each in seconds.items()}, flush=True)
    predicted = {name: sorted(session.record.predicted_in) for name, session in variants.items() if session}
    return {"seconds": seconds, "predicted": predicted}


def table(seconds: dict[str, list[float]], predicted: dict[str, list[int]]) -> str:
    """One row for each variant, as markdown."""
    whole = seconds["unpatched"]
    lines = ["| variant | computed step | predicted step | speed of the pass |", "|---|---|---|---|"]
    for name, each in seconds.items():
        kinds: tuple[list[float], list[float]] = ([], [])
        for step, value in enumerate(each):
            kinds[step in predicted.get(name, ())].append(value)
        cells = [f"{statistics.median(kind):.2f} s ({len(kind)})" if kind else "-" for kind in kinds]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {sum(whole) / sum(each):.2f}x |")
    return "\n".join(lines)


def main() -> None:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", choices=LAYOUTS, default="sdxl", help="UNet (%(default)s)")
    parser.add_argument("--side", type=int, default=128, help="of the latent; default 128, an image of 1024 px")
    parser.add_argument("--steps", type=int, default=10, help="of the pass (%(default)s)")
    parser.add_argument("--intervals", type=int, nargs="+", default=[2, 3], help="default: 2 3")
    parser.add_argument(
        "--factors",
        type=factors_of,
        nargs="+",
        default=[(2, 1)],
        help='of level 1, as "2", or both, as "2,2"; default 2',
    )
    parser.add_argument("--batch", type=int, default=1, help="rows of a call (%(default)s)")
    parser.add_argument("--device", default="cuda" if gpu else "cpu", choices=("cpu", "cuda"), help="(%(default)s)")
    dtype = "float16" if gpu else "float32"
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default=dtype, help="(%(default)s)")
    parser.add_argument("--cpu-time", action="store_true", help="the process's own seconds, for a busy machine")
    parser.add_argument("--channels", type=int, default=CHANNELS, help="fewer, for a trial; a multiple of 32")
    args = parser.parse_args()
    subject = build(args.layout, device=args.device, dtype=args.dtype, channels=args.channels, cpu_time=args.cpu_time)
    found = measure(subject, args)
    run = {name: getattr(args, name) for name in ("layout", "side", "batch", "steps", "device", "dtype")}
    run |= {"threads": torch.get_num_threads(), "clock": "CPU time" if args.cpu_time else "wall time"}
    print("\n" + ", ".join(f"{name} {value}" for name, value in run.items()) + "\n")
    print(table(found["seconds"], found["predicted"]))
    print(json.dumps(run | found))


if __name__ == "__main__":
    main()
