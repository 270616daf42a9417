"""Slow references for the reductions: plain loops and exact fractions, from the definitions in the papers.

Nothing here is shared with ``todo_core``. A grid of (h, w) tokens is a list row by row, as everywhere.
"""

import math
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, settings


def examples(count):
    """Hypothesis settings that do not depend on the speed of the machine, with the same examples in every run."""
    return settings(
        max_examples=max(1, count * settings.default.max_examples // 100),
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
        database=None,
    )


def token_ids(size):
    """(1, h*w, 1): each token holds its own number, so that kept tokens can be recognised."""
    return torch.arange(size[0] * size[1], dtype=torch.float64)[None, :, None]


def random_tokens(size, channels=8, batch=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, size[0] * size[1], channels, generator=generator, dtype=torch.float64).to(dtype)


def kept_line(side, kept, position):
    """Of ``kept`` equal cells along ``side`` tokens, the token at ``position`` (0 to 1) of each; exact."""
    return [math.floor((i + Fraction(position)) * Fraction(side, kept)) for i in range(kept)]


def kept_tokens(size, target, position):
    """The numbers of the tokens that a nearest resampling keeps: position 0 is "nearest", 1/2 "nearest-exact"."""
    rows, columns = (kept_line(s, t, position) for s, t in zip(size, target, strict=True))
    return [row * size[1] + column for row in rows for column in columns]


def windows(side, kept):
    """The tokens of each window of an adaptive pooling."""
    return [range(math.floor(Fraction(i * side, kept)), math.ceil(Fraction((i + 1) * side, kept))) for i in range(kept)]


def pooled(x, size, target, pool):
    """``pool`` (numpy's max or mean) over the window of each target token."""
    grid = x.numpy().reshape(x.shape[0], *size, x.shape[2])
    found = [
        pool([grid[:, row, column] for row in rows for column in columns], axis=0)
        for rows in windows(size[0], target[0])
        for columns in windows(size[1], target[1])
    ]
    return torch.from_numpy(np.stack(found, axis=1))


def interpolated(x, size, target, mode):
    """torch's own resampling of (b, h*w, c) from ``size`` to ``target``."""
    grid = x.unflatten(1, size).movedim(3, 1)
    return F.interpolate(grid, size=target, mode=mode).movedim(1, 3).flatten(1, 2)


def cells(size, cell):
    """The tokens of each (sy, sx) cell of a grid, row by row; those at the edges may have fewer."""
    h, w = size
    sy, sx = cell
    return [
        [row * w + column for row in range(top, min(top + sy, h)) for column in range(left, min(left + sx, w))]
        for top in range(0, h, sy)
        for left in range(0, w, sx)
    ]


def cosine(a, b):
    return sum(p * q for p, q in zip(a, b, strict=True)) / math.sqrt(sum(p * p for p in a) * sum(q * q for q in b))


def tome_groups(tokens, destinations, removed):
    """Bipartite soft matching of one image's ``tokens`` (n, c): a set of groups (frozensets of token numbers).

    Every token that is no destination looks for the destination most like it; the ``removed`` best pairs merge.
    """
    tokens = [list(map(float, token)) for token in tokens]
    links = []
    for source in range(len(tokens)):
        if source not in destinations:
            likeness, destination = max((cosine(tokens[source], tokens[d]), d) for d in destinations)
            links.append((likeness, source, destination))
    links.sort(reverse=True)
    groups = {d: {d} for d in destinations}
    for _, source, destination in links[:removed]:
        groups[destination].add(source)
    alone = [{source} for _, source, _ in links[removed:]]
    return {frozenset(group) for group in [*groups.values(), *alone]}


def closeness(tokens):
    """The cosine similarity of each of one image's ``tokens`` (n, c) to their mean."""
    tokens = [list(map(float, token)) for token in tokens]
    mean = [sum(column) / len(tokens) for column in zip(*tokens, strict=True)]
    return [cosine(token, mean) for token in tokens]


def kmeans_groups(values, count, rounds):
    """Lloyd's algorithm on numbers, from groups of equal size by rank; None where a group would become empty."""
    ranked = sorted(range(len(values)), key=values.__getitem__)
    groups = [[] for _ in range(count)]
    for rank, item in enumerate(ranked):
        groups[rank * count // len(values)].append(item)
    for _ in range(rounds):
        centres = [sum(values[item] for item in group) / len(group) for group in groups]
        before, groups = groups, [[] for _ in range(count)]
        for item, value in enumerate(values):
            groups[min(range(count), key=lambda k: abs(centres[k] - value))].append(item)
        if not all(groups):
            return None
        if groups == before:  # as all later rounds would leave them
            break
    return {frozenset(group) for group in groups}


def partition(labels):
    """The groups that equal labels make: a set of frozensets of positions."""
    groups = {}
    for position, label in enumerate(labels):
        groups.setdefault(float(label), set()).add(position)
    return {frozenset(group) for group in groups.values()}


def group_means(tokens, index, count):
    """The mean of the tokens (n, c) of each group, added up one by one."""
    sums, sizes = [np.zeros(tokens.shape[1]) for _ in range(count)], [0] * count
    for token, group in zip(tokens.double().numpy(), index.tolist(), strict=True):
        sums[group] += token
        sizes[group] += 1
    return torch.from_numpy(np.stack([total / size for total, size in zip(sums, sizes, strict=True)]))
