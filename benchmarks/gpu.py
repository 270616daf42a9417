"""The whole table of a GPU, by one command: SD 1.5 and SDXL from 512 to 2048 px in half precision.

    pip install -e ".[benchmark]"
    python benchmarks/gpu.py
    python benchmarks/gpu.py --layouts sd1 sdxl sd1-ldm --peer hypertile=PATH

Each layout is measured with torch's flash attention and with its memory-efficient attention. All variants take turns
(benchmarks/unet.py says what they are). Seconds are medians of 100 calls, by CUDA events; the peak memory is that of a
call beyond the loaded model. The ldm layouts need `pip install --no-deps stable-diffusion-sdkit==2.1.5`; HyperTile runs
only there. The folder of --out gets gpu.md, and gpu/ with the rows and the plots. A row that is measured again replaces
the old one, so the table can be made in parts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from unet_call import report
from unet_call.charts import plots
from unet_call.measure import measure
from unet_call.models import CHANNELS, LAYOUTS, build
from unet_call.variants import LOWER_BOUNDS, peer_paths, variants

KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "memory-efficient": SDPBackend.EFFICIENT_ATTENTION, "any": None}
SETTINGS = ("ToDo 2", "ToDo 3", "ToDo 4", "ToMe 0.5", "ToMe 0.5 reach 1", "ToMe 0.75", *LOWER_BOUNDS)
SETTINGS += ("tomesd 0.5", "tomesd 0.75", "HyperTile 256", "HyperTile 512", "out of the window")
HERE = Path(__file__).resolve().parents[1]


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments. On a CPU, which is for trials, there is one kernel and float32."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--layouts", nargs="+", choices=LAYOUTS, default=["sd1", "sdxl"], help="UNets; default: sd1 sdxl"
    )
    kernels = ["flash", "memory-efficient"] if gpu else ["any"]
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=kernels, help="torch's attention kernels")
    parser.add_argument("--latents", type=int, nargs="+", default=[64, 96, 128, 192, 256], help="sides")
    parser.add_argument("--batch", type=int, default=2, help="rows of a call (%(default)s)")
    parser.add_argument("--repeats", type=int, default=100, help="calls of each variant after the first")
    parser.add_argument("--device", default="cuda" if gpu else "cpu", choices=("cpu", "cuda"), help="(%(default)s)")
    parser.add_argument("--channels", type=int, default=CHANNELS, help="fewer, for a trial; a multiple of 32")
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=PATH", help="a peer's checkout; repeatable"
    )
    parser.add_argument(
        "--out", type=Path, default=HERE / "docs" / "benchmarks", help="folder for the page and the plots"
    )
    args = parser.parse_args(words)
    args.dtype = "float16" if args.device == "cuda" else "float32"
    args.paths = peer_paths(parser, args.peer)
    return args


def run(args: argparse.Namespace) -> report.Results:
    """Measure everything. What is done is written after each latent."""
    folder = args.out / "gpu"
    results = report.Results.read(folder)
    for layout in args.layouts:
        subject = build(layout, device=args.device, dtype=args.dtype, channels=args.channels)
        for kernel in args.kernels:
            name = layout if args.channels == CHANNELS else f"{layout} ({args.channels} channels)"
            device = torch.cuda.get_device_name() if args.device == "cuda" else "CPU, a trial"
            common = {"layout": f"{name}, {kernel} attention", "batch": args.batch, "dtype": args.dtype}
            common |= {"torch": torch.__version__, "device": device}
            for side in args.latents:
                patches = variants(subject, side, SETTINGS, args.paths)
                with only(kernel):
                    rows = measure(subject, side, patches, batch=args.batch, repeats=args.repeats)
                results.add(rows=[common | row for row in rows])
                results.write(folder)
                print(report.table(rows), *report.left_out(rows), "", sep="\n\n", flush=True)
    return results


@contextmanager
def only(kernel: str) -> Iterator[None]:
    """torch's attention by this kernel alone."""
    backend = KERNELS[kernel]
    with sdpa_kernel(backend) if backend else nullcontext():
        yield


def write(results: report.Results, out: Path) -> Path:
    """``gpu.md``: the plots, then the tables."""
    images = plots(results, out / "gpu")
    text = "# Speed on a GPU\n\nOne UNet call, measured by `python benchmarks/gpu.py`.\n\n"
    text += "\n".join(f"![{image.stem}](gpu/{image.name})" for image in images)
    path = out / "gpu.md"
    path.write_text(f"{text}\n\n{report.markdown(results)}", "utf-8")
    return path


def main() -> None:
    args = parse_arguments()
    print("wrote", write(run(args), args.out))


if __name__ == "__main__":
    main()
