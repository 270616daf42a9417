"""The reductions alone, on the tokens of one level-1 block, beside tomesd's."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from todo_core import Settings, TokenGrid
from todo_core.reduction import cluster, downsample, match
from unet_call.models import Subject
from unet_call.smooth_tokens import smooth_tokens
from unet_call.variants import OURS

PARTS = ("find", "merge", "spread")
SETTLED = 0.05  # seconds that one timing takes at least
Step = Callable[[], Any]


@torch.inference_mode()
def reductions(subject: Subject, side: int, *, batch: int, repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of what is done to the tokens of one level-1 block: to find the groups, merge, and spread again.

    ToDo has nothing to spread: its queries are whole.
    """
    grid = TokenGrid(side, side).halved(subject.host.depth)
    channels = subject.blocks[0].attn1.to_q.in_features
    x = smooth_tokens(batch, grid.size, channels).to(subject.device, subject.dtype)
    pieces = _pieces(x, grid)
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in pieces}
    counts = {key: max(1, round(SETTLED / max(1e-9, _timed(step, 1, subject)))) for key, step in pieces.items()}
    order = [*pieces]
    for turn in range(repeats):
        random.Random(turn).shuffle(order)
        for key in order:
            taken[key].append(_timed(pieces[key], counts[key], subject))
    rows = {name: {"latent": side, "tokens": grid.tokens, "reduction": name} for name, _ in pieces}
    for (name, part), seconds in taken.items():
        rows[name][part] = 1000 * statistics.median(seconds)
    return list(rows.values())


def _pieces(x: torch.Tensor, grid: TokenGrid) -> dict[tuple[str, str], Step]:
    found: dict[tuple[str, str], Step] = {}
    for name, settings in OURS.items():
        find = _finder(x, grid, settings)
        if find:
            made = find()
            merged = made.merge(x)
            found[name, "find"] = find
            found[name, "merge"] = lambda made=made: made.merge(x)
            if settings.target == "all":
                found[name, "spread"] = lambda made=made, merged=merged: made.unmerge(merged)
    return found | _tomesd_pieces(x, grid)


def _finder(x: torch.Tensor, grid: TokenGrid, settings: Settings) -> Step | None:
    """What a call makes of the settings at level 1; None for those that do nothing there or the same as others."""
    if settings.method == "similarity":
        cell = settings.sy, settings.sx
        return lambda: match(x, grid.size, settings.ratio_1, cell, reach=settings.reach)
    if settings.method == "cluster":
        return lambda: cluster(x, max(1, round(grid.tokens * (1 - settings.ratio_1))))
    factor = settings.factor_1
    if factor in (1, "auto") or settings.factor_2 != 1 or settings.start > 0:
        return None
    turn = 0 if settings.phase == "rotate" else None
    return lambda: downsample(grid.size, grid.reduced(float(factor)).size, settings.resample, turn=turn)


def _tomesd_pieces(x: torch.Tensor, grid: TokenGrid) -> dict[tuple[str, str], Step]:
    from tomesd.merge import bipartite_soft_matching_random2d

    found: dict[tuple[str, str], Step] = {}
    for ratio in (0.5, 0.75):

        def find(removed: int = int(grid.tokens * ratio)) -> Any:
            return bipartite_soft_matching_random2d(x, grid.width, grid.height, 2, 2, removed, no_rand=True)

        merge, spread = find()
        merged, name = merge(x), f"tomesd {ratio:g}"
        found[name, "find"] = find
        found[name, "merge"] = lambda merge=merge: merge(x)
        found[name, "spread"] = lambda spread=spread, merged=merged: spread(merged)
    return found


def _timed(step: Step, count: int, subject: Subject) -> float:
    """Seconds of one of ``count`` runs in a row."""
    gpu = subject.device == "cuda"
    if gpu:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    if gpu:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count
