"""Time and memory of ToMe's matching alone, compared with tomesd; prints a table.

    pip install -e . tomesd==0.1.3
    python benchmarks/matching.py --sides 64 96 128

The tokens have the shape of level 1 of SD 1.5: 320 channels, cond and uncond. They are random, but smooth over the
grid, like those of an image. The variants take turns; each cell's upper left token is its destination. The exact
matching must find the groups of tomesd ("yes"). Memory is how far the resident set grows at its peak, without the
tokens, each variant in its own process (only on Linux).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from tomesd.merge import bipartite_soft_matching_random2d
from unet_call.smooth_tokens import smooth_tokens

from todo_core.reduction import match
from todo_lab.evaluation.metrics.peak_memory import peak_memory

CHANNELS, ROWS = 320, 2


def tokens(side: int) -> torch.Tensor:
    """(2, side * side, 320) float32."""
    return smooth_tokens(ROWS, (side, side), CHANNELS)


def ours(x: torch.Tensor, side: int, ratio: float) -> Any:
    """Our matching, among all destinations."""
    return match(x, (side, side), ratio)


def tomesd(x: torch.Tensor, side: int, ratio: float) -> Any:
    """The matching of tomesd 0.1.3, without randomness."""
    return bipartite_soft_matching_random2d(x, side, side, 2, 2, int(x.shape[1] * ratio), no_rand=True)


def within(reach: int) -> Callable[[torch.Tensor, int, float], Any]:
    """Our matching, among the destinations of cells at most ``reach`` away."""
    return lambda x, side, ratio: match(x, (side, side), ratio, reach=reach)


VARIANTS: dict[str, Callable[[torch.Tensor, int, float], Any]] = {
    "tomesd 0.1.3": tomesd,
    "ours, exact": ours,
    "ours, reach 1": within(1),
    "ours, reach 2": within(2),
}


def same_groups(x: torch.Tensor, side: int, ratio: float) -> bool:
    """Whether both find the same groups: the unmerged means of the groups are equal."""
    mine, (merge, unmerge) = ours(x, side, ratio), tomesd(x, side, ratio)
    return torch.allclose(mine.unmerge(mine.merge(x)), unmerge(merge(x)), atol=1e-4)


def timed(side: int, ratio: float, repeats: int) -> dict[str, float]:
    """Median seconds of each variant; they take turns."""
    x = tokens(side)
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(repeats + 1):
        for name, run in VARIANTS.items():
            started = time.perf_counter()
            run(x, side, ratio)
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def peak(name: str, side: int, ratio: float) -> float:
    """How far the resident set grows in a process of its own, in MiB."""
    done = subprocess.run(
        [sys.executable, __file__, "--peak-of", name, "--sides", str(side), "--ratio", str(ratio)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def print_peak(name: str, side: int, ratio: float) -> None:
    torch.set_grad_enabled(False)
    x, cpu = tokens(side), torch.device("cpu")
    VARIANTS[name](x[:, : 16 * 16].contiguous(), 16, ratio)  # load the libraries first
    with peak_memory(cpu) as before:
        pass
    with peak_memory(cpu) as during:
        VARIANTS[name](x, side, ratio)
    print(during.mib - before.mib)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs="+", default=[64, 96, 128], help="of the token grid")
    parser.add_argument("--ratio", type=float, default=0.5, help="of merged tokens (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="of each search (%(default)s)")
    parser.add_argument("--peak-of", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        return print_peak(options.peak_of, options.sides[0], options.ratio)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, ratio {options.ratio}, {CHANNELS} channels\n")
    print(
        "| tokens | matching | time, s | times faster | peak memory, MiB | tomesd's groups |\n|---|---|---|---|---|---|"
    )
    for side in options.sides:
        with torch.inference_mode():
            seconds = timed(side, options.ratio, options.repeats)
            same = same_groups(tokens(side), side, options.ratio)
        groups = {"tomesd 0.1.3": "", "ours, exact": "yes" if same else "no"}
        for name, median in seconds.items():
            faster, memory = seconds["tomesd 0.1.3"] / median, peak(name, side, options.ratio)
            cells = [
                f"{side} x {side}",
                name,
                f"{median:.3f}",
                f"{faster:.2f}x",
                f"{memory:.0f}",
                groups.get(name, ""),
            ]
            print("| " + " | ".join(cells) + " |")
    return None


if __name__ == "__main__":
    main()
