"""Time of UNet calls and of whole passes: unpatched, reduced, predicted, and by other implementations.

    pip install -e . --group benchmark
    python benchmarks/speed.py --minutes 8                                  # everything, on a GPU
    OMP_NUM_THREADS=1 python benchmarks/speed.py --cpu-time --parts calls --layouts sd1-ldm --sides 64 96 \\
        --peer token-downsampling=PATH --peer hypertile=PATH                # beside other work
    python benchmarks/speed.py --parts passes python --settings Balanced Closest Fast "ToDo only" --steps 10 20
    python benchmarks/speed.py --channels 32 --sides 16 --minutes 1         # a trial

The UNets have their full size and random weights. Those of ldm need `pip install --no-deps
stable-diffusion-sdkit==2.1.5`. All variants take turns, each turn in another order, so that a slower machine affects
all of them. Each part is written as soon as it is measured, the most important one first; no part begins after the
minutes. Called again with the same --out, the program goes on where it stopped. --out gets speed.json and speed.md.

- calls: one UNet call, the level-1 attention in it (from the start of each level-1 block to its second norm), and on a
  GPU its peak memory. Lower bound: the same number of keys, at no cost.
- passes: steps one after the other, as a WebUI makes them with DPM++ 2M Karras: presets as they are, and others. Where
  the measured error decides, random weights would tell a wrong one. So it is measured and read, but in as many steps is
  predicted as on trained models usually (`predicted_in`). The medians of each kind of step price any other number:
  computed, computed and measured, predicted. Their difference is what measuring the error costs.
- python: our functions that take most Python, at a size so small that a GPU waits for it.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from unet_call.measure import KINDS, PARTS, PYTHON_SIDE, UNPATCHED, Row, quartiles
from unet_call.models import CHANNELS, LAYOUTS, PIXELS, build
from unet_call.variants import BASELINE, NAMES, OF_PASSES, peer_paths

from todo_lab.evaluation.report.document import markdown_table
from todo_lab.evaluation.running.row_store import write_atomically

KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "memory-efficient": SDPBackend.EFFICIENT_ATTENTION, "any": None}
SIDES = {"sdxl": (128, 192, 256), "sd1": (128, 64, 96, 192, 256)}
OF_PASSES_OF_SD1 = (128, 256)
ON_GPU = torch.cuda.is_available()
ARGUMENTS: dict[str, dict[str, Any]] = {
    "--parts": {"nargs": "+", "choices": PARTS, "help": "default: calls; on a GPU passes and python too"},
    "--layouts": {"nargs": "+", "choices": LAYOUTS, "default": ["sdxl", "sd1"], "help": "UNets; default sdxl sd1"},
    "--sides": {"type": int, "nargs": "+", "help": "of the latent; default by layout, 512 to 2048 px"},
    "--settings": {
        "nargs": "+",
        "choices": (*NAMES, *OF_PASSES),
        "metavar": "NAME",
        "help": f"default all; of calls: {', '.join(NAMES)}; of passes: {', '.join(OF_PASSES)}",
    },
    "--peer": {"action": "append", "default": [], "metavar": "NAME=PATH", "help": "a peer's checkout; repeatable"},
    "--steps": {"type": int, "nargs": "+", "default": [10], "help": "of passes; default 10"},
    "--batch": {"type": int, "default": 2 if ON_GPU else 1, "help": "rows of a call (%(default)s)"},
    "--turns": {"type": int, "default": 30 if ON_GPU else 3, "help": "after a warm-up, at most (%(default)s)"},
    "--seconds": {"type": float, "default": 6, "help": "of a part; five turns are made in any case"},
    "--warm-up": {"type": int, "metavar": "SIDE", "help": "of the first turn; default the latent's own"},
    "--minutes": {"type": float, "default": 8, "help": "no part begins after these (%(default)s)"},
    "--device": {"default": "cuda" if ON_GPU else "cpu", "choices": ("cpu", "cuda"), "help": "(%(default)s)"},
    "--dtype": {"choices": ("float32", "float16", "bfloat16"), "help": "default float16 on cuda, else float32"},
    "--kernels": {"nargs": "+", "choices": KERNELS, "help": "attention; default flash and memory-efficient on cuda"},
    "--cpu-time": {"action": "store_true", "help": "count this process's CPU seconds, beside other work"},
    "--channels": {"type": int, "default": CHANNELS, "help": "fewer, for a trial; a multiple of 32"},
    "--out": {"type": Path, "default": Path("speed"), "help": "folder of speed.json and speed.md (%(default)s)"},
}


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, with what depends on the device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, declared in ARGUMENTS.items():
        parser.add_argument(name, **declared)
    args = parser.parse_args(words)
    gpu = args.device == "cuda"
    args.dtype = args.dtype or ("float16" if gpu else "float32")
    args.parts = args.parts or (["passes", "python", "calls"] if gpu else ["calls"])
    args.kernels = args.kernels or (["flash", "memory-efficient"] if gpu else ["any"])
    args.paths = peer_paths(parser, args.peer)
    return args


# the run ------------------------------------------------------------------------------------------------------------


def order(args: argparse.Namespace) -> list[Row]:
    """What is measured, the most important first: each has a part, a layout, a side and a kernel."""
    first, *others = args.kernels
    sides = {layout: args.sides or SIDES[layout.split("-")[0]] for layout in args.layouts}
    sizes = [(layout, side) for layout in args.layouts for side in sides[layout]]
    sizes.sort(key=lambda size: sides[size[0]].index(size[1]))  # the first size of each layout first
    in_passes = [(of, side) for of, side in sizes if args.sides or of != "sd1" or side in OF_PASSES_OF_SD1]
    small = [] if args.sides else [(layout, PYTHON_SIDE) for layout in args.layouts]
    found: list[tuple[Any, ...]] = [("passes", *size, first, args.steps[0]) for size in in_passes]
    found += [(part, *size, first, args.steps[0]) for part in ("passes", "python") for size in small or sizes]
    found += [("passes", *size, first, steps) for steps in args.steps[1:] for size in in_passes]
    found += [("calls", *size, first) for size in sizes]
    found += [("calls", *size, kernel) for kernel in others for size in sizes]
    chosen = [each for each in dict.fromkeys(found) if each[0] in args.parts]
    return [dict(zip(("part", "layout", "side", "kernel", "steps"), each, strict=False)) for each in chosen]


def common(args: argparse.Namespace) -> Row:
    """What all rows of this run have in common."""
    threads = f"{platform.machine()}, {torch.get_num_threads()} threads" + (", CPU time" if args.cpu_time else "")
    device = torch.cuda.get_device_name() if args.device == "cuda" else threads
    like = {name: getattr(args, name) for name in ("dtype", "batch", "channels")}
    return {"device": device, "torch": torch.__version__, **like}


def run(args: argparse.Namespace, clock: Callable[[], float] = time.monotonic) -> list[Row]:
    """Measure what is not measured yet, until the minutes are over."""
    begin, path = clock(), args.out / "speed.json"
    rows: list[Row] = json.loads(path.read_text("utf-8")) if path.is_file() else []
    like = {name: getattr(args, name) for name in ("device", "dtype", "channels", "cpu_time")}
    subject = lru_cache(maxsize=2)(lambda layout: build(layout, **like))
    for each in order(args):
        key = common(args) | each
        if any(key.items() <= row.items() for row in rows):
            continue
        if clock() - begin > 60 * args.minutes:
            print("the minutes are over; the same command goes on here", flush=True)
            break
        kernel = KERNELS[each["kernel"]]
        with sdpa_kernel(kernel) if kernel else nullcontext(), torch.inference_mode():
            own = argparse.Namespace(**vars(args) | each)  # of its steps
            rows += [key | row for row in PARTS[each["part"]](subject(each["layout"]), each["side"], own)]
        args.out.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(rows))
        write_atomically(args.out / "speed.md", markdown(rows))
        print(f"{clock() - begin:.0f} s: {each['part']}, {each['layout']}, latent {each['side']}", flush=True)
    return rows


# the page -----------------------------------------------------------------------------------------------------------


def markdown(rows: Sequence[Row]) -> str:
    """A table for each part, layout, kernel and machine: settings by size."""
    group = ("part", "layout", "kernel", "device", "torch", "dtype", "batch", "channels", "steps")
    found = ["# Speed"]
    for key in dict.fromkeys(tuple(row.get(name) for name in group) for row in rows):
        mine = {(r["setting"], r["side"]): r for r in rows if tuple(r.get(name) for name in group) == key}
        sides = sorted({side for _, side in mine})
        lines = [["", *(f"{side * PIXELS} px" for side in sides)]]
        for setting in dict.fromkeys(setting for setting, _ in mine):
            lines.append([setting, *(cell(mine.get((setting, side)), mine, side) for side in sides)])
        found += ["## {}: {}, {} attention".format(*key), "{}, torch {}, {}, batch {}, {} channels".format(*key[3:])]
        found[-1] += f", {key[-1]} steps." if key[-1] else "."
        found.append(markdown_table(lines))
    return "\n\n".join(found) + "\n"


def cell(row: Row | None, rows: dict[tuple[str, int], Row], side: int) -> str:
    """What a row says, whichever part it is of."""
    if row is None or "failed" in row:
        return row["failed"].replace("|", "/") if row else ""
    told = [f"{name} {value:.2f} ms" for name, value in row.get("ms", {}).items()]
    if "speed" in row and row["setting"] != BASELINE:
        turns = zip(rows[BASELINE, side]["turns"], row["turns"], strict=True)
        told.append("{:.2f}x ({:.2f} to {:.2f})".format(row["speed"], *quartiles([b / s for b, s in turns])))
    elif "seconds" in row:
        told.append(f"{1000 * row['seconds']:.1f} ms")
    told += [f"{kind} {1000 * row[kind]['seconds']:.1f} ms" for kind in KINDS if kind in row]
    if "pass" in row:
        told.append(f"{rows[UNPATCHED, side]['pass'] / row['pass']:.2f}x")
    return ", ".join([*told, *([f"{row['peak']:.0f} MiB"] if "peak" in row else [])])


if __name__ == "__main__":
    given = parse_arguments()
    run(given)
    print((given.out / "speed.md").read_text("utf-8"))
