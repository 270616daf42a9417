"""Time and memory of one UNet call: unpatched, reduced, by other implementations, and at the lower bound.

    pip install -e . --group benchmark
    python benchmarks/unet.py --quick
    python benchmarks/unet.py --latents 64 96 128 --out results
    python benchmarks/unet.py --layout sd1-ldm --peer token-downsampling=PATH --peer hypertile=PATH --out results
    python benchmarks/unet.py --part memory --latents 96 --out results
    PYTHONPATH=. WEBUI/venv/bin/python benchmarks/unet.py --layout sd1-ldm --webui-dir WEBUI --optimization InvokeAI
    OMP_NUM_THREADS=1 python benchmarks/unet.py --cpu-time --out results        # beside other work
    python benchmarks/unet.py --replot results more-results

The UNets have their full size and random weights. The ldm layouts need `pip install --no-deps
stable-diffusion-sdkit==2.1.5`.
All variants of a latent take turns, each turn in another order, so that a slower machine affects all of them. Seconds
are medians. Speed is the median over the turns of the baseline's seconds to those of the variant in the same turn.

baseline: the unpatched UNet.
lower bound of a setting: the same number of keys, at no cost. Each level-1 attention gets a ready context of that size.
level-1 attention: what runs from the start of each level-1 block to its second norm.

Parts: unet (the above; on a GPU with peak memory), memory (on a CPU: how far the resident set grows beyond the loaded
model, only on Linux; each variant has its own process), reduction (the reductions alone, on the tokens of a level).
--out gets unet.json, unet.md and plots. What is in the folder and is not measured again is kept, so sizes, layouts and
devices can be measured one by one. unet.json is written after each latent. With --warm-up, the first turn of a large
latent runs at a small one.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from unet_call import report
from unet_call.charts import plots
from unet_call.measure import SMALL_SIDE, measure, peak
from unet_call.models import CHANNELS, LAYOUTS, Subject, build
from unet_call.reductions import reductions
from unet_call.variants import NAMES, QUICK, peer_paths, variants
from unet_call.webui_attention import optimize

PARTS = ("unet", "memory", "reduction")


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, with the defaults that depend on other arguments."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=(*PARTS, "all"), default="unet", help="what to measure (%(default)s)")
    parser.add_argument("--layout", choices=LAYOUTS, default="sd1", help="UNet (%(default)s)")
    parser.add_argument("--latents", type=int, nargs="+", help="sides; default 64 96 128")
    parser.add_argument("--settings", nargs="+", metavar="NAME", help=f"default all; of: {', '.join(NAMES)}")
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=PATH", help="a peer's checkout; repeatable"
    )
    parser.add_argument("--batch", type=int, help="default 2")
    parser.add_argument("--repeats", type=int, help="turns after the warm-up; default 5")
    parser.add_argument("--warm-up", type=int, metavar="LATENT", help="side of the first turn; default the latent's")
    parser.add_argument("--device", default="cuda" if gpu else "cpu", choices=("cpu", "cuda"), help="(%(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), help="default float16 on cuda")
    parser.add_argument("--webui-dir", type=Path, help="folder of a WebUI; ldm's UNet gets its attention")
    parser.add_argument("--optimization", default="InvokeAI", help="which of the WebUI's; default its own on a CPU")
    parser.add_argument("--cpu-time", action="store_true", help="count this process's CPU seconds, beside other work")
    parser.add_argument("--quick", action="store_true", help="batch 1, two repeats, fewer settings; latent 96")
    parser.add_argument("--channels", type=int, default=CHANNELS, help="fewer, for a trial; a multiple of 32")
    parser.add_argument("--out", type=Path, help="folder for unet.json, unet.md and plots")
    parser.add_argument("--replot", type=Path, nargs="+", metavar="FOLDER", help="join the results of these folders")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    args.dtype = args.dtype or ("float16" if args.device == "cuda" else "float32")
    args.latents = args.latents or ([96] if args.quick else [64, 96, 128])
    args.batch = args.batch or (1 if args.quick else 2)
    args.repeats = args.repeats or (2 if args.quick else 5)
    args.warm_up = args.warm_up or (32 if args.quick else None)
    args.settings = args.settings or (QUICK if args.quick else NAMES)
    args.paths = peer_paths(parser, args.peer)
    if args.webui_dir and (args.layout != "sd1-ldm" or not (args.webui_dir / "modules").is_dir()):
        parser.error(f"--webui-dir needs a WebUI's folder and --layout sd1-ldm, not {args.webui_dir}, {args.layout}")
    for name in args.settings:
        if name not in NAMES:
            parser.error(f"--settings: {name!r} is none of {', '.join(NAMES)}")
    return args


def group(args: argparse.Namespace) -> dict[str, Any]:
    """What all rows of this run have in common."""
    layout = args.layout if args.channels == CHANNELS else f"{args.layout} ({args.channels} channels)"
    layout += f" and the WebUI's {args.optimization}" if args.webui_dir else ""
    threads = f"{platform.machine()}, {torch.get_num_threads()} threads" + (", CPU time" if args.cpu_time else "")
    device = torch.cuda.get_device_name() if args.device == "cuda" else threads
    return {"layout": layout, "batch": args.batch, "dtype": args.dtype, "torch": torch.__version__, "device": device}


def build_subject(args: argparse.Namespace) -> Subject:
    """The UNet that the arguments ask for."""
    if args.webui_dir:
        optimize(args.webui_dir.resolve(), args.optimization, args.device, getattr(torch, args.dtype))
    sdp = not args.webui_dir
    like = {"device": args.device, "dtype": args.dtype, "channels": args.channels}
    return build(args.layout, **like, sdp=sdp, cpu_time=args.cpu_time)


def run(args: argparse.Namespace) -> report.Results:
    """Measure, latent by latent."""
    parts = PARTS if args.part == "all" else (args.part,)
    results = report.Results.read(args.out) if args.out else report.Results()
    subject, common = build_subject(args), group(args)
    print(report.title_of(common), "\n", flush=True)
    for side in args.latents:
        measured = report.Results()
        if "unet" in parts:
            patches = variants(subject, side, args.settings, args.paths)
            rows = measure(subject, side, patches, batch=args.batch, repeats=args.repeats, warm_up=args.warm_up)
            measured.add(rows=[common | row for row in rows])
        if "memory" in parts:
            measured.add(rows=[common | row for row in memory(subject, side, args)])
        if "reduction" in parts:
            rows = reductions(subject, side, batch=args.batch, repeats=args.repeats)
            measured.add(reductions=[common | row for row in rows])
        print(tables(measured), flush=True)
        results.add(measured.rows, measured.reductions)
        if args.out:
            results.write(args.out)
    return results


def tables(measured: report.Results) -> str:
    """The tables of one latent, without the goals."""
    parts = [report.table(measured.rows), *report.left_out(measured.rows)] if measured.rows else []
    parts += [report.reductions_table(measured.reductions)] if measured.reductions else []
    return "\n\n".join(parts) + "\n"


def memory(subject: Subject, side: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each variant, measured in a process of its own."""
    rows = []
    for name in variants(subject, side, args.settings, args.paths):
        words = ["--peak-of", name, "--layout", args.layout, "--latents", side, "--batch", args.batch]
        words += ["--device", args.device, "--dtype", args.dtype, "--channels", args.channels]
        words += ["--webui-dir", args.webui_dir, "--optimization", args.optimization] if args.webui_dir else []
        words += [word for peer in args.peer for word in ("--peer", peer)]
        command = [sys.executable, __file__, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        row: dict[str, Any] = {"latent": side, "setting": name}
        if done.returncode:
            row[report.NO_MEMORY] = (done.stderr.strip().splitlines() or [f"its process ended with {done.returncode}"])[
                -1
            ]
        elif (answer := done.stdout.split()[-1]) != "None":  # a loaded WebUI prints before it
            row["peak"] = float(answer)
        rows.append(row)
    return rows


def print_peak(args: argparse.Namespace) -> None:
    """The answer of the process of one variant."""
    subject = build_subject(args)
    full, small = (
        variants(subject, side, [args.peak_of], args.paths)[args.peak_of] for side in (args.latents[0], SMALL_SIDE)
    )
    print(peak(subject, args.latents[0], full, small, batch=args.batch))


def finish(results: report.Results, out: Path | None) -> None:
    """Print the goals, and write everything into the folder."""
    for title, rows in results.groups.items():
        checks = report.goals(rows)
        if checks:
            print(f"goals, {title}\n\n{report.goals_table(checks)}\n")
    if out:
        results.write(out)
        written = [out / "unet.md", *plots(results, out)]
        written[0].write_text(report.markdown(results), "utf-8")
        print("wrote", *written)


def main() -> None:
    args = parse_arguments()
    if args.peak_of:
        print_peak(args)
    elif args.replot:
        finish(report.Results.read(*args.replot), args.out or args.replot[0])
    else:
        finish(run(args), args.out)


if __name__ == "__main__":
    main()
