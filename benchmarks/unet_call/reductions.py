"""The reductions alone, on the tokens of one level-1 block, and those of tomesd."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from todo_core import Settings, TokenGrid
from todo_core.reduction import cluster, downsample, match, stride
from unet_call.models import Subject
from unet_call.smooth_tokens import smooth_tokens
from unet_call.variants import OURS

PARTS = ("find", "merge", "unmerge")
MIN_SECONDS = 0.05  # of one timing: shorter parts run several times
Part = Callable[[], Any]


@torch.inference_mode()
def reductions(subject: Subject, side: int, *, batch: int, repeats: int) -> list[dict[str, Any]]:
    """Milliseconds to find the groups of one level-1 block's tokens, to merge them, and to unmerge the result.

    ToDo unmerges nothing: it reduces keys and values, not queries.
    """
    grid = TokenGrid(side, side).halved(subject.host.depth)
    channels = subject.blocks[0].attn1.to_q.in_features
    x = smooth_tokens(batch, grid.size, channels).to(subject.device, subject.dtype)
    parts = _parts(x, grid)
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in parts}
    counts = {key: max(1, round(MIN_SECONDS / max(1e-9, _timed(part, 1, subject)))) for key, part in parts.items()}
    order = [*parts]
    for turn in range(repeats):
        random.Random(turn).shuffle(order)
        for key in order:
            taken[key].append(_timed(parts[key], counts[key], subject))
    rows = {name: {"latent": side, "tokens": grid.tokens, "reduction": name} for name, _ in parts}
    for (name, part), seconds in taken.items():
        rows[name][part] = 1000 * statistics.median(seconds)
    return list(rows.values())


def _parts(x: torch.Tensor, grid: TokenGrid) -> dict[tuple[str, str], Part]:
    parts: dict[tuple[str, str], Part] = {}
    for name, settings in OURS.items():
        find = _finder(x, grid, settings)
        if find:
            grouping = find()
            merged = grouping.merge(x)
            parts[name, "find"] = find
            parts[name, "merge"] = lambda grouping=grouping: grouping.merge(x)
            if settings.target == "all":
                parts[name, "unmerge"] = lambda grouping=grouping, merged=merged: grouping.unmerge(merged)
    return parts | _tomesd_parts(x, grid)


def _finder(x: torch.Tensor, grid: TokenGrid, settings: Settings) -> Part | None:
    """How the settings find the groups of level 1; None for settings that do nothing there, or the same as others."""
    if settings.method == "similarity":
        cell = settings.sy, settings.sx
        return lambda: match(x, grid.size, settings.ratio_1, cell)
    if settings.method == "cluster":
        return lambda: cluster(x, max(1, round(grid.tokens * (1 - settings.ratio_1))))
    factor = settings.factor_1
    if not isinstance(factor, int) or factor == 1 or settings.factor_2 != 1 or settings.start > 0:
        return None
    if settings.rotates:
        return lambda: stride(grid.size, factor, 0)
    return lambda: downsample(grid.size, grid.reduced(factor).size, settings.resample)


def _tomesd_parts(x: torch.Tensor, grid: TokenGrid) -> dict[tuple[str, str], Part]:
    from tomesd.merge import bipartite_soft_matching_random2d

    parts: dict[tuple[str, str], Part] = {}
    for ratio in (0.5, 0.75):

        def find(removed: int = int(grid.tokens * ratio)) -> Any:
            return bipartite_soft_matching_random2d(x, grid.width, grid.height, 2, 2, removed, no_rand=True)

        merge, unmerge = find()
        merged, name = merge(x), f"tomesd {ratio:g}"
        parts[name, "find"] = find
        parts[name, "merge"] = lambda merge=merge: merge(x)
        parts[name, "unmerge"] = lambda unmerge=unmerge, merged=merged: unmerge(merged)
    return parts


def _timed(part: Part, count: int, subject: Subject) -> float:
    """Seconds of one run, from ``count`` runs in a row."""
    gpu = subject.device == "cuda"
    if gpu:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        part()
    if gpu:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count
