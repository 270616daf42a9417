"""Ideas that are not in the library, compared with ToDo: for less work, or for less difference to the baseline.

    pip install -e ".[evaluation]" && pip install --no-deps stable-diffusion-sdkit==2.1.5
    python benchmarks/ideas.py --prompts 16 --cores 1
    python benchmarks/ideas.py --prompts 30 --cores 1 --ideas "ToDo 2" "ToDo 2, mean with the previous step"

Pocket model, one seed for each prompt, all hires passes from the same first pass. MSE is that of the 8-bit image to the
baseline: its mean over the images, and its geometric mean, which depends less on single images. Speed is the median
over the images of the baseline's seconds to those of the idea, measured one after the other.

Each idea replaces the forward of the level-1 self-attention during a pass.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from todo_core import Settings, reduction
from todo_core.hosts import Site, detect
from todo_lab.evaluation.backends.source import Source
from todo_lab.evaluation.prompts import prompt_sets
from todo_lab.sampling.passes import Pass, decode_image, first_pass, hires_pass
from todo_lab.sampling.request import Request

Forward = Callable[..., Tensor]
Idea = Callable[["CurrentStep", Site, Forward], Forward]


class CurrentStep:
    """The current step of the pass."""

    step = 0

    def begin_step(self, name: str, step: int, steps: int) -> None:
        self.step = step


def reuse(current: CurrentStep, site: Site, forward: Forward, *, every: int = 2, extrapolate: bool = False) -> Forward:
    """Compute attention in every so many steps. Between them reuse the last output, or extrapolate from two."""
    past: list[tuple[int, Tensor]] = []

    def held(x: Tensor, context: Tensor | None = None, **options: Any) -> Tensor:
        if current.step == 0:
            past.clear()
        if current.step % every == 0:
            past[:] = [*past[-1:], (current.step, forward(x, context, **options))]
        elif extrapolate and len(past) == 2:
            (first, a), (last, b) = past
            return b + (b - a) * ((current.step - last) / (last - first))
        return past[-1][1]

    return held


def blend(current: CurrentStep, site: Site, forward: Forward, *, weight: float = 0.5) -> Forward:
    """The mean with the output of the previous step, which kept other tokens."""
    past: list[Tensor] = []

    def mixed(x: Tensor, context: Tensor | None = None, **options: Any) -> Tensor:
        before = past[-1] if past and current.step else None
        past[:] = [forward(x, context, **options)]
        return past[0] if before is None else torch.lerp(past[0], before, weight)

    return mixed


def split(current: CurrentStep, site: Site, forward: Forward, *, keys: str, values: str, factor: int = 2) -> Forward:
    """Keys and values resampled in different ways."""

    def attend(x: Tensor, context: Tensor | None = None, **options: Any) -> Tensor:
        attention, size = site.block.attn1, _size(x)
        few = [_coarse(size, factor, way, current, site).merge(x) for way in (keys, values)]
        q, k, v = attention.to_q(x), attention.to_k(few[0]), attention.to_v(few[1])
        return attention.to_out(_attend(q, k, v, attention.heads))

    return attend


def near_and_far(current: CurrentStep, site: Site, forward: Forward, *, tile: int, factor: int, weigh: bool) -> Forward:
    """The queries of a tile see the keys of their tile, and a coarse grid of the image.

    With ``weigh``, each coarse key counts as the tokens of its cell. That needs a mask, and so a slower kernel.
    """

    def attend(x: Tensor, context: Tensor | None = None, **options: Any) -> Tensor:
        attention, size = site.block.attn1, _size(x)
        shift = (current.step + site.rank) % 2 * (tile // 2)  # the seams alternate between two positions
        grid = torch.roll(x.unflatten(1, size), (-shift, -shift), (1, 2)).flatten(1, 2)
        far = _coarse(size, factor, "nearest-exact", current, site)
        q, k, v = attention.to_q(grid), attention.to_k(grid), attention.to_v(grid)
        tiles = (size[0] // tile) * (size[1] // tile)
        near = [_tiled(z, size, tile) for z in (q, k, v)]
        both = [
            torch.cat([n, far.merge(z).repeat_interleave(tiles, 0)], 1) for n, z in zip(near[1:], (k, v), strict=True)
        ]
        weights = torch.zeros(both[0].shape[1])
        weights[tile * tile :] = 2 * math.log(factor)
        found = _attend(near[0], *both, attention.heads, weights[None, None, None] if weigh else None)
        back = _untiled(found, size, tile)
        return attention.to_out(torch.roll(back, (shift, shift), (1, 2)).flatten(1, 2))

    return attend


def _size(x: Tensor) -> tuple[int, int]:
    side = math.isqrt(x.shape[1])
    return side, side


def _coarse(size: tuple[int, int], factor: int, way: str, current: CurrentStep, site: Site) -> reduction.Reduction:
    if way.startswith("nearest"):
        return reduction.stride(size, factor, current.step + site.rank)
    return reduction.downsample(size, (size[0] // factor, size[1] // factor), way)


def _attend(q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Tensor | None = None) -> Tensor:
    q, k, v = (z.unflatten(2, (heads, -1)).transpose(1, 2) for z in (q, k, v))
    return scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


def _tiled(z: Tensor, size: tuple[int, int], tile: int) -> Tensor:
    grid = z.unflatten(1, (size[0] // tile, tile, size[1] // tile, tile))
    return grid.transpose(2, 3).flatten(3, 4).flatten(0, 2)


def _untiled(z: Tensor, size: tuple[int, int], tile: int) -> Tensor:
    down, across = size[0] // tile, size[1] // tile
    return z.unflatten(0, (-1, down, across)).unflatten(3, (tile, tile)).transpose(2, 3).flatten(3, 4).flatten(1, 2)


IDEAS: dict[str, tuple[Settings | None, Idea | None]] = {
    "ToDo 2": (Settings(factor_1=2, factor_2=1), None),
    "ToDo 2, end 0.75": (Settings(factor_1=2, factor_2=1, end=0.75), None),
    "ToDo 3": (Settings(factor_1=3, factor_2=1), None),
    "ToDo 4": (Settings(factor_1=4, factor_2=1), None),
    "reuse every 2nd step": (None, reuse),
    "reuse, extrapolated": (None, partial(reuse, extrapolate=True)),
    "ToDo 2, reuse every 2nd step": (Settings(factor_1=2, factor_2=1), reuse),
    "ToDo 2, mean with the previous step": (Settings(factor_1=2, factor_2=1), blend),
    "ToDo 3, mean with the previous step": (Settings(factor_1=3, factor_2=1), blend),
    "ToDo 4, mean with the previous step": (Settings(factor_1=4, factor_2=1), blend),
    "factor 2, keys kept, values averaged": (None, partial(split, keys="nearest-exact", values="area")),
    "factor 2, keys averaged, values kept": (None, partial(split, keys="area", values="nearest-exact")),
    "tile of 8 and every 4th token": (None, partial(near_and_far, tile=8, factor=4, weigh=False)),
    "tile of 8 and every 4th token, weighted": (None, partial(near_and_far, tile=8, factor=4, weigh=True)),
}


@contextmanager
def replaced_forwards(current: CurrentStep, sites: list[Site], idea: Idea) -> Iterator[None]:
    """Replace the forward of each site's self-attention by the idea."""
    attentions: list[Any] = [site.block.attn1 for site in sites]
    for site, attention in zip(sites, attentions, strict=True):
        attention.forward = idea(current, site, attention.forward)
    try:
        yield
    finally:
        for attention in attentions:
            del attention.__dict__["forward"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--hires", type=float, default=2.0)
    parser.add_argument("--hires-steps", type=int, default=8)
    parser.add_argument("--cores", type=int)
    parser.add_argument("--ideas", nargs="+", choices=IDEAS, default=[*IDEAS], metavar="NAME", help="default all")
    args = parser.parse_args()
    model = Source(device="cpu", dtype="float32", cores=args.cores).open().model
    sites = [site for site in detect(model.target).sites if site.level == 1]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in args.ideas}
    for text in prompt_sets.evenly_spaced(prompt_sets.load_prompts("pocket"), args.prompts):
        request = Request(prompt=text, seed=1, hires_scale=args.hires, hires_steps=args.hires_steps)
        first, current = first_pass(model, request), CurrentStep()
        for name in args.ideas:
            settings, idea = IDEAS[name]
            baseline = hires_pass(model, request, first)
            patch: AbstractContextManager[None] = replaced_forwards(current, sites, idea) if idea else nullcontext()
            with patch:
                made = hires_pass(model, request, first, settings, on_step=current.begin_step)
            found[name].append((_mse(model, baseline, made), baseline.total_seconds / made.total_seconds))
    print("| | MSE, mean | MSE, geometric mean | speed |\n|---|---|---|---|")
    for name, figures in found.items():
        mse, speed = zip(*figures, strict=True)
        print(f"| {name} | {np.mean(mse):.6f} | {np.exp(np.mean(np.log(mse))):.6f} | {statistics.median(speed):.2f}x |")


def _mse(model: Any, baseline: Pass, made: Pass) -> float:
    a, b = (decode_image(model, one).astype(float) / 255 for one in (baseline, made))
    return float(((a - b) ** 2).mean())


if __name__ == "__main__":
    main()
