"""The figures of a GPU, by one command: UNet calls, passes with predicted steps, the fit, and a profile.

    pip install -e . --group benchmark
    python benchmarks/gpu.py --minutes 8
    python benchmarks/gpu.py --device cpu --channels 32 --sides 16 --minutes 1 --out /tmp/trial     # a trial

UNets of diffusers in their full size with random weights, in float16, with two rows a call: prompt and negative prompt.
Each part is written as soon as it is measured, the most important one first. The program ends when the minutes are
over. Called again with the same --out, it goes on where it stopped.

- calls: one UNet call. All variants take turns, each turn in another order. Seconds are medians, by CUDA events. Memory
  is the peak of a call beyond the loaded model.
- passes: 10 steps one after the other, as a WebUI makes them; in each step all variants take turns. Seconds by the
  clock, with the hooks' own Python, from an idle GPU to an idle GPU.
- fit: what a computed step adds for the steps that are predicted from it, for all deep transformers together.
- python: milliseconds of a call so small that the GPU waits for Python.
- profile: a computed and a predicted step: kernels, and how long the GPU waits.

--out gets gpu.json and gpu.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from interval import sessions, step_seconds
from torch.nn.attention import SDPBackend, sdpa_kernel
from unet_call.measure import measure
from unet_call.models import CHANNELS, PIXELS, Subject, build
from unet_call.report import quartiles
from unet_call.variants import BASELINE, variants

from todo_core import Session, Settings
from todo_core.prediction import History
from todo_lab.evaluation.running.row_store import write_atomically

HERE = Path(__file__).resolve().parents[1]
KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "memory-efficient": SDPBackend.EFFICIENT_ATTENTION, "any": None}
LAYOUTS = {"sdxl": "SDXL", "sd1": "SD 1.5"}
SIDES = {"sdxl": (128, 192, 256), "sd1": (128, 64, 96, 192, 256)}
SETTINGS = ("ToDo 2", "ToDo 4", "ToDo 2 and 2", "ToDo 4 and 2", "lower bound of ToDo 2", "lower bound of ToDo 4")
SETTINGS += ("ToMe 0.5", "tomesd 0.5")
FACTORS = {"sdxl": [(1, 1), (2, 1), (2, 2)], "sd1": [(1, 1), (2, 1)]}
STEPS = 10
PYTHON_SIDE = 32
DRIFT = 0.1  # how far the latent moves from step to step

Row = dict[str, Any]


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments. On a CPU, which is for trials, there is one kernel and float32."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8, help="no part begins after these (%(default)s)")
    parser.add_argument("--turns", type=int, default=30, help="turns of a part, at most (%(default)s)")
    parser.add_argument("--seconds", type=float, default=6, help="of a part; five turns are made in any case")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=[*LAYOUTS], help="UNets (all)")
    parser.add_argument("--sides", type=int, nargs="+", help="of the latent; default by layout, 512 to 2048 px")
    parser.add_argument("--device", default="cuda" if gpu else "cpu", choices=("cpu", "cuda"), help="(%(default)s)")
    parser.add_argument("--channels", type=int, default=CHANNELS, help="fewer, for a trial; a multiple of 32")
    parser.add_argument("--out", type=Path, default=HERE / "docs" / "benchmarks", help="folder of gpu.json and gpu.md")
    args = parser.parse_args(words)
    args.dtype = "float16" if args.device == "cuda" else "float32"
    args.kernels = ["flash", "memory-efficient"] if args.device == "cuda" else ["any"]
    return args


# the order --------------------------------------------------------------------------------------------------------


def parts(args: argparse.Namespace) -> list[Row]:
    """What is measured, the most important first: each has a part, a layout, a side and a kernel."""
    first, *others = args.kernels
    sizes = [(layout, side) for layout in args.layouts for side in args.sides or SIDES[layout]]
    sizes.sort(key=lambda size: (args.sides or SIDES[size[0]]).index(size[1]))  # the first size of each layout first
    order = [(part, *size, first) for size in sizes for part in ("calls", "passes", "fit")]
    smallest = [(layout, PYTHON_SIDE if not args.sides else min(args.sides)) for layout in args.layouts]
    order += [("python", *size, first) for size in smallest]
    order += [("profile", *sizes[0], first)]
    order += [("calls", *size, kernel) for kernel in others for size in sizes]
    return [dict(zip(("part", "layout", "side", "kernel"), each, strict=True)) for each in order]


def run(args: argparse.Namespace, clock: Callable[[], float] = time.monotonic) -> list[Row]:
    """Measure what is not measured yet, until the minutes are over."""
    begin, path = clock(), args.out / "gpu.json"
    device = torch.cuda.get_device_name() if args.device == "cuda" else "CPU, a trial"
    common = {"device": device, "torch": torch.__version__, "dtype": args.dtype, "channels": args.channels}
    rows: list[Row] = json.loads(path.read_text("utf-8")) if path.is_file() else []
    subject = lru_cache(maxsize=2)(
        lambda layout: build(layout, device=args.device, dtype=args.dtype, channels=args.channels)
    )
    for part in parts(args):
        key = common | part
        if any(key.items() <= row.items() for row in rows):
            continue
        if clock() - begin > 60 * args.minutes:
            print("the minutes are over; the same command goes on here", flush=True)
            break
        with only(part["kernel"]), torch.inference_mode():
            rows += [key | row for row in MEASURED[part["part"]](subject(part["layout"]), part["side"], args)]
        args.out.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(rows, indent=1))
        write_atomically(args.out / "gpu.md", markdown(rows))
        print(f"{clock() - begin:.0f} s: {title(part)}", flush=True)
    return rows


@contextmanager
def only(kernel: str) -> Iterator[None]:
    """torch's attention by this kernel alone."""
    backend = KERNELS[kernel]
    with sdpa_kernel(backend) if backend else nullcontext():
        yield


# the parts ----------------------------------------------------------------------------------------------------------


def calls(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """One UNet call, by every variant."""
    patches = variants(subject, side, SETTINGS, {})
    rows = measure(subject, side, patches, batch=2, repeats=args.turns, seconds=args.seconds)
    return [{key: value for key, value in row.items() if key not in ("latent", "attentions", "run")} for row in rows]


def passes(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """Each step's seconds of the unpatched UNet, of ToDo, and of both with deep transformers predicted."""
    chosen = sessions(subject, FACTORS[subject.layout], [2], side, STEPS)
    return [
        _variant(name, session, each)
        for (name, session), each in zip(chosen.items(), _steps(subject, side, chosen, args), strict=True)
    ]


def _steps(
    subject: Subject, side: int, chosen: dict[str, Session | None], args: argparse.Namespace
) -> list[list[float]]:
    call, device, turns = moving(subject, side), args.device, 0
    seconds: list[list[float]] = [[] for _ in chosen]
    begin = time.monotonic()
    while turns < 2 or (turns < args.turns and time.monotonic() - begin < args.seconds):  # the first pass warms up
        if turns <= 1:
            seconds = [[] for _ in chosen]
        for step in range(STEPS):
            for each, session in zip(seconds, chosen.values(), strict=True):
                each.append(step_seconds(session, lambda step=step: call(step), step, STEPS, device))
        turns += 1
    return seconds


def _variant(name: str, session: Session | None, seconds: list[float]) -> Row:
    predicted = session.record.predicted_in if session else set()
    kinds: tuple[list[float], list[float]] = ([], [])
    for number, value in enumerate(seconds):
        kinds[number % STEPS in predicted].append(value)
    row = {"setting": name, "predicted_in": sorted(predicted), "passes": len(seconds) // STEPS}
    row |= {"pass": statistics.median(sum(seconds[i : i + STEPS]) for i in range(0, len(seconds), STEPS))}
    named = zip(("computed", "predicted"), kinds, strict=True)
    return row | {
        kind: {"seconds": statistics.median(each), "quartiles": quartiles(each)} for kind, each in named if each
    }


def moving(subject: Subject, side: int) -> Callable[[int], Any]:
    """A call for each step: the latent moves a little and the timestep falls."""
    call = subject.call(side, 2)
    latent, time_of = call.args[:2]
    noise = torch.randn_like(latent)
    return lambda step: call.func(latent + DRIFT * step * noise, time_of - 20 * step, *call.args[2:], **call.keywords)


def fit(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """Milliseconds to learn from a computed step and to predict, summed over all deep transformers."""
    shapes = _deep_shapes(subject, side)
    turns = [[_fit_one(subject, shape) for shape in shapes] for _ in range(args.turns)]
    found = {"learn": [sum(learn for learn, _ in turn) for turn in turns]}
    found |= {"predict": [sum(predict for _, predict in turn) for turn in turns]}
    row: Row = {"setting": "fit", "shapes": [list(shape) for shape in shapes]}
    return [row | {name: {"ms": statistics.median(each), "quartiles": quartiles(each)} for name, each in found.items()}]


def _fit_one(subject: Subject, shape: torch.Size) -> tuple[float, float]:
    """Milliseconds to learn from a second run of one transformer, and to predict a third."""
    like: dict[str, Any] = {"device": subject.device, "dtype": subject.dtype}
    history, times = History(), [torch.full((), 500.0 - 20 * n, device=subject.device) for n in range(3)]
    x, made = torch.randn(3, *shape, **like), torch.randn(2, *shape, **like)
    history.add(times[0], x[0], made[0])
    learn = step_seconds(None, lambda: history.add(times[1], x[1], made[1]), 0, 1, subject.device)
    predict = step_seconds(None, lambda: history.predict(times[2], x[2]), 0, 1, subject.device)
    return 1000 * learn, 1000 * predict


def _deep_shapes(subject: Subject, side: int) -> list[torch.Size]:
    """(b, c, h, w) of what the deep transformers see in a call."""
    shapes: list[torch.Size] = []
    hooks = [
        t.register_forward_pre_hook(lambda _, x: shapes.append(x[0].shape)) for t in subject.host.deep_transformers
    ]
    subject.call(side, 2)()
    for hook in hooks:
        hook.remove()
    return shapes


def python(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """As the pass, at a latent so small that a GPU waits for Python."""
    return passes(subject, side, args)


def profile(subject: Subject, side: int, args: argparse.Namespace) -> list[Row]:
    """Kernels of an unpatched, a computed and a predicted step, those that take longest, and the GPU's share."""
    from torch.profiler import ProfilerActivity

    session = Session(subject.host, Settings(factor_1=2, factor_2=1, interval=2, predict="deep"))
    call, rows = moving(subject, side), []
    kinds = {2: "predicted", 3: "computed"}  # the first two steps are computed, then every second one
    for step in range(4):
        session.attach().begin_step(step, STEPS, (0,))
        name = kinds.get(step)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if args.device == "cuda" else [])]
        with torch.profiler.profile(activities=activities) if name else nullcontext() as profiler:
            seconds = step_seconds(None, lambda step=step: call(step), step, STEPS, args.device)
        session.detach()
        rows += [_profiled(name, seconds, profiler)] if name else []
    with torch.profiler.profile(activities=activities) as profiler:
        seconds = step_seconds(None, lambda: call(4), 0, STEPS, args.device)
    return [_profiled("unpatched", seconds, profiler), *rows]


def _profiled(name: str, seconds: float, profiler: Any) -> Row:
    kernels = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    longest = [e for e in profiler.key_averages() if getattr(e, "self_device_time_total", 0)]
    longest.sort(key=lambda e: -e.self_device_time_total)
    busy = sum(e.self_device_time_total for e in kernels) / 1e6
    top = [[e.key[:80], e.count, round(e.self_device_time_total / 1000, 3)] for e in longest[:15]]
    return {"setting": name, "seconds": seconds, "kernels": len(kernels), "busy": busy, "longest_ms": top}


MEASURED: dict[str, Callable[[Subject, int, argparse.Namespace], list[Row]]] = {
    "calls": calls,
    "passes": passes,
    "fit": fit,
    "python": python,
    "profile": profile,
}


# the page -----------------------------------------------------------------------------------------------------------


def title(part: Row) -> str:
    """A part in words."""
    pixels = part["side"] * PIXELS
    return f"{part['part']}, {LAYOUTS[part['layout']]}, {pixels} px, {part['kernel']} attention"


def markdown(rows: Sequence[Row]) -> str:
    """All tables."""
    lines = ["# Speed on a GPU", ""]
    for group in dict.fromkeys((row["device"], row["torch"], row["dtype"], row["channels"]) for row in rows):
        mine = [r for r in rows if (r["device"], r["torch"], r["dtype"], r["channels"]) == group]
        lines += ["{}, torch {}, {}, batch 2, {} channels.".format(*group), ""]
        for kind, make in (("calls", _calls_table), ("passes", _passes_table), ("python", _passes_table)):
            for layout, kernel in dict.fromkeys((r["layout"], r["kernel"]) for r in mine if r["part"] == kind):
                here = [r for r in mine if (r["part"], r["layout"], r["kernel"]) == (kind, layout, kernel)]
                lines += [f"## {kind}: {LAYOUTS[layout]}, {kernel} attention", "", make(here), ""]
        lines += [
            f"- {title(r)}: learn {r['learn']['ms']:.2f} ms, predict {r['predict']['ms']:.2f} ms"
            for r in mine
            if r["part"] == "fit"
        ]
        lines += [""]
        for row in (r for r in mine if r["part"] == "profile"):
            ms, busy = 1000 * row["seconds"], 1000 * row["busy"]
            lines += [f"- {row['setting']} step: {ms:.1f} ms, {row['kernels']} kernels, GPU busy {busy:.1f} ms"]
            lines += [f"    - {ms:.3f} ms, {count} times: `{name}`" for name, count, ms in row["longest_ms"]]
    return "\n".join(lines) + "\n"


def _calls_table(rows: Sequence[Row]) -> str:
    sides = sorted({row["side"] for row in rows})
    by = {(row["setting"], row["side"]): row for row in rows}
    lines = ["| | " + " | ".join(f"{side * PIXELS} px" for side in sides) + " |", "|---" * (len(sides) + 1) + "|"]
    for name in dict.fromkeys(row["setting"] for row in rows):
        lines.append(
            f"| {name} | "
            + " | ".join(_call_cell(by.get((name, side)), by.get((BASELINE, side))) for side in sides)
            + " |"
        )
    return "\n".join(lines)


def _call_cell(row: Row | None, baseline: Row | None) -> str:
    if row is None or "failed" in row:
        return row["failed"] if row else ""
    memory = f", {row['peak']:.0f} MiB" if "peak" in row else ""
    if row["setting"] == BASELINE or baseline is None:
        return f"{1000 * row['seconds']:.1f} ms{memory}"
    low, high = quartiles([b / s for b, s in zip(baseline["turns"], row["turns"], strict=True)])
    return f"{row['speed']:.2f}x ({low:.2f} to {high:.2f}){memory}"


def _passes_table(rows: Sequence[Row]) -> str:
    lines = ["| size | setting | computed step | predicted step | 10 steps | 20 steps |", "|---|---|---|---|---|---|"]
    for row in rows:
        whole = next(r for r in rows if r["side"] == row["side"] and r["setting"] == "unpatched")
        cells = [f"{1000 * row[kind]['seconds']:.1f} ms" if kind in row else "-" for kind in ("computed", "predicted")]
        cells += [f"{whole['pass'] / row['pass']:.2f}x", f"{whole['computed']['seconds'] / _mean_of_20(row):.2f}x"]
        lines.append(f"| {row['side'] * PIXELS} px | {row['setting']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean_of_20(row: Row) -> float:
    """Seconds of a step in a pass of 20 with interval 2: 11 are computed."""
    if "predicted" not in row:
        return row["computed"]["seconds"]
    return (11 * row["computed"]["seconds"] + 9 * row["predicted"]["seconds"]) / 20


def main() -> None:
    args = parse_arguments()
    run(args)
    print((args.out / "gpu.md").read_text("utf-8"))


if __name__ == "__main__":
    main()
