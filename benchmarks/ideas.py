"""Ideas that are not in the library, beside ToDo: the figures of docs/research.

    pip install -e . --group evaluation && pip install --no-deps stable-diffusion-sdkit==2.1.5
    python benchmarks/ideas.py --prompts 12 --cores 1
    python benchmarks/ideas.py --prompts 30 --hires 1.5 --ideas "ToDo auto"

Pocket model, one seed for each prompt, all hires passes from the same first pass, no prediction between steps. MSE is
that of the 8-bit image to the baseline, times 10^6: its mean over the images with a bootstrap 95 % interval, and its
geometric mean, which depends less on single images. Speed is the median over the images of the baseline's seconds to
those of the idea, measured one after the other.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from todo_core import Settings, reduction
from todo_core.hosts import Site, detect
from todo_lab.evaluation.backends import peers
from todo_lab.evaluation.backends.source import Source
from todo_lab.evaluation.prompts import prompt_sets
from todo_lab.evaluation.report.bootstrap import interval
from todo_lab.sampling.passes import Pass, decode_image, first_pass, hires_pass
from todo_lab.sampling.request import Request

Forward = Callable[..., Tensor]
Idea = Callable[["CurrentStep", Any, Request], AbstractContextManager[None]]
TILE, FAR = 8, 4  # of `near_and_far`: tokens a side of a tile, and the factor of the coarse grid


class CurrentStep:
    """The current step of the pass."""

    step = 0

    def begin_step(self, name: str, step: int, steps: int) -> None:
        self.step = step


def reuse(current: CurrentStep, site: Site, forward: Forward) -> Forward:
    """Attention is computed in every second step. The others reuse its output."""
    kept: list[Tensor] = []

    def held(x: Tensor, context: Tensor | None = None, **options: Any) -> Tensor:
        if current.step % 2 == 0:
            kept[:] = [forward(x, context, **options)]
        return kept[0]

    return held


def blend(current: CurrentStep, site: Site, forward: Forward) -> Forward:
    """The mean with the output of the previous step, which kept other tokens."""
    past: list[Tensor] = []

    def mixed(x: Tensor, context: Tensor | None = None, **options: Any) -> Tensor:
        before = past[-1] if past and current.step else None
        past[:] = [forward(x, context, **options)]
        return past[0] if before is None else torch.lerp(past[0], before, 0.5)

    return mixed


def near_and_far(current: CurrentStep, site: Site, forward: Forward) -> Forward:
    """The queries of a tile see the keys of their tile, and a coarse grid of the image."""

    def attend(x: Tensor, context: Tensor | None = None, **options: Any) -> Tensor:
        attention: Any = site.block.attn1
        side, tiles = math.isqrt(x.shape[1]), x.shape[1] // TILE**2
        shift = (current.step + site.rank) % 2 * (TILE // 2)  # the seams alternate between two positions
        grid = torch.roll(x.unflatten(1, (side, side)), (-shift, -shift), (1, 2)).flatten(1, 2)
        far = reduction.stride((side, side), FAR, current.step + site.rank)
        q, k, v = attention.to_q(grid), attention.to_k(grid), attention.to_v(grid)
        both = [torch.cat([tiled(z, side), far.merge(z).repeat_interleave(tiles, 0)], 1) for z in (k, v)]
        heads = [z.unflatten(2, (attention.heads, -1)).transpose(1, 2) for z in (tiled(q, side), *both)]
        found = untiled(scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2), side)
        return attention.to_out(torch.roll(found, (shift, shift), (1, 2)).flatten(1, 2))

    return attend


def tiled(z: Tensor, side: int) -> Tensor:
    """(b, side * side, c) as (b * tiles, TILE * TILE, c)."""
    grid = z.unflatten(1, (side // TILE, TILE, side // TILE, TILE))
    return grid.transpose(2, 3).flatten(3, 4).flatten(0, 2)


def untiled(z: Tensor, side: int) -> Tensor:
    """The grid (b, side, side, c) of `tiled`."""
    cells = z.unflatten(0, (-1, side // TILE, side // TILE)).unflatten(3, (TILE, TILE))
    return cells.transpose(2, 3).flatten(3, 4).flatten(1, 2)


@contextmanager
def at_level_1(replacement: Any, current: CurrentStep, target: Any, request: Request) -> Iterator[None]:
    """Replace the forward of each self-attention at level 1."""
    sites = [site for site in detect(target).sites if site.level == 1]
    attentions: list[Any] = [site.block.attn1 for site in sites]
    for site, attention in zip(sites, attentions, strict=True):
        attention.forward = replacement(current, site, attention.forward)
    try:
        yield
    finally:
        for attention in attentions:
            del attention.__dict__["forward"]


def deepcache(every: int, current: CurrentStep, target: Any, request: Request) -> AbstractContextManager[None]:
    """DeepCache, as the evaluation has it."""
    return peers.applied("DeepCache", None, target, request, json.dumps({"interval": every}))


def todo(**settings: Any) -> Settings:
    """Without prediction, which is judged by benchmarks/predictors.py."""
    return Settings(interval=1, **settings)


AUTO, BY_2 = todo(), todo(factor_1=2, factor_2=1)
IDEAS: dict[str, tuple[Settings | None, Idea | None]] = {
    "ToDo auto": (AUTO, None),
    "ToDo 2": (BY_2, None),
    "ToDo 2, end 0.75": (todo(factor_1=2, factor_2=1, end=0.75), None),
    "ToDo 3": (todo(factor_1=3, factor_2=1), None),
    "ToDo 4": (todo(factor_1=4, factor_2=1), None),
    "last output in every 2nd step": (None, partial(at_level_1, reuse)),
    "ToDo 2, mean with the previous step": (BY_2, partial(at_level_1, blend)),
    "keys near and far": (None, partial(at_level_1, near_and_far)),
    "DeepCache 2": (None, partial(deepcache, 2)),
    "DeepCache 2, ToDo auto": (AUTO, partial(deepcache, 2)),
}


@contextmanager
def applied(idea: Idea | None, current: CurrentStep, target: Any, request: Request) -> Iterator[None]:
    """The model with the idea, if there is one."""
    if idea is None:
        yield
        return
    with idea(current, target, request):
        yield


def measure(model: Any, request: Request, names: list[str]) -> dict[str, tuple[float, float]]:
    """(MSE x 10^6, speed) of each idea for one image."""
    first, current, found = first_pass(model, request), CurrentStep(), {}
    for name in names:
        settings, idea = IDEAS[name]
        baseline = hires_pass(model, request, first)
        with applied(idea, current, model.target, request):
            made = hires_pass(model, request, first, settings, on_step=current.begin_step)
        found[name] = (mse(model, baseline, made), baseline.total_seconds / made.total_seconds)
    return found


def mse(model: Any, baseline: Pass, made: Pass) -> float:
    """Of the 8-bit images in 0..1, times 10^6."""
    a, b = (decode_image(model, one).astype(float) / 255 for one in (baseline, made))
    return float(((a - b) ** 2).mean()) * 1e6


def table(rows: list[dict[str, tuple[float, float]]]) -> str:
    """One line for each idea."""
    lines = ["| | MSE x 10^6 | geometric mean | speed |", "|---|---|---|---|"]
    for name in rows[0]:
        errors, speeds = zip(*(row[name] for row in rows), strict=True)
        low, high = interval(errors, np.mean)
        mean = f"{np.mean(errors):.0f}" + (f" ({low:.0f}–{high:.0f})" if low == low else "")  # NaN with few prompts
        middle = np.exp(np.mean(np.log(errors)))
        lines.append(f"| {name} | {mean} | {middle:.0f} | {statistics.median(speeds):.2f}x |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=12, help="how many (%(default)s)")
    parser.add_argument("--hires", type=float, default=2.0, help="scale of the hires pass (%(default)s)")
    parser.add_argument("--hires-steps", type=int, default=8, help="steps of the hires pass (%(default)s)")
    parser.add_argument("--cores", type=int, help="threads of torch; default: its own choice")
    parser.add_argument("--ideas", nargs="+", choices=IDEAS, default=[*IDEAS], metavar="NAME", help="default: all")
    args = parser.parse_args()
    model: Any = Source(device="cpu", dtype="float32", cores=args.cores).open()
    rows = []
    for text in prompt_sets.evenly_spaced(prompt_sets.load_prompts("pocket"), args.prompts):
        request = Request(prompt=text, seed=1, hires_scale=args.hires, hires_steps=args.hires_steps)
        rows.append(measure(model.model, request, args.ideas))
    print(table(rows))


if __name__ == "__main__":
    main()
