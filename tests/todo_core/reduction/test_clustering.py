"""One-dimensional k-means on the closeness to the mean token: exact counts, intervals, and plain Lloyd's loops."""

from __future__ import annotations

import importlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_gpu import Sorts
from tests.naive import closeness, examples, group_means, kmeans_groups, partition, random_tokens
from todo_core.reduction import cluster

KINDS = ["normal", "constant", "zeros", "ties", "geometric", "outlier", "two"]


def tokens_of(kind, n, channels, seed):
    """(2, n, c) of a kind that makes k-means's life hard."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, n, channels, generator=generator)
    if kind == "constant":
        return x[:, :1].expand(-1, n, -1)
    if kind == "zeros":
        return torch.zeros_like(x)
    if kind == "ties":
        return torch.randint(-1, 2, x.shape, generator=generator).float()
    if kind == "geometric":
        return x * 2.0 ** -torch.arange(n).clamp(max=60)[:, None] + 1
    if kind == "outlier":
        return torch.cat([x[:, :1] * 1e4, torch.ones_like(x[:, 1:])], dim=1)
    if kind == "two":
        return torch.where(torch.arange(n)[:, None] % 2 == 0, x[:, :1], -x[:, :1] * 0.5)
    return x


@st.composite
def counts(draw):
    n = draw(st.integers(1, 300))
    return n, draw(st.integers(1, n))


@pytest.mark.parametrize("kind", KINDS)
@given(counts(), st.integers(1, 8), st.integers(0, 2**32), st.sampled_from([torch.float32, torch.bfloat16]))
@examples(40)
def test_there_are_as_many_groups_as_asked_for_and_none_is_empty(kind, case, channels, seed, dtype):
    n, groups = case
    found = cluster(tokens_of(kind, n, channels, seed).to(dtype), groups)
    assert found.groups == groups
    assert found.index.shape == (2, n)
    for index in found.index:
        assert sorted(set(index.tolist())) == list(range(groups))


@pytest.mark.parametrize("kind", ["normal", "outlier", "ties"])
@given(counts(), st.integers(0, 2**32))
@examples(25)
def test_groups_are_intervals_of_the_closeness_to_the_mean(kind, case, seed):
    n, groups = case
    # float64, and a shift, so that neither the closeness nor the mean is lost in rounding
    x = tokens_of(kind, n, 4, seed).double() + torch.tensor([3.0, 0.5, 0.25, 0.125])
    found = cluster(x, groups)
    for image, index in zip(x, found.index, strict=True):
        values = closeness(image)
        spans = sorted((min(v), max(v)) for v in ([values[t] for t in group] for group in partition(index)))
        for (_, high), (low, _) in zip(spans, spans[1:], strict=False):
            assert high <= low + 1e-12


@pytest.mark.parametrize("rounds", [1, 2, 8, 200])
@pytest.mark.parametrize(("n", "groups"), [(30, 3), (64, 16), (100, 25), (121, 10), (200, 2), (50, 1)])
def test_the_groups_are_those_of_lloyds_plain_loops(monkeypatch, n, groups, rounds):
    monkeypatch.setattr(importlib.import_module("todo_core.reduction.clustering"), "_ROUNDS", rounds)
    x = random_tokens((n, 1), batch=2, channels=6, seed=n)
    found = cluster(x, groups)
    for image, index in zip(x, found.index, strict=True):
        expected = kmeans_groups(closeness(image), groups, rounds)
        assert expected is not None
        assert partition(index) == expected


def test_the_search_has_eight_rounds():
    x = random_tokens((30, 30), batch=1, channels=6, seed=5)
    seventh, eighth, ninth = (kmeans_groups(closeness(x[0]), 20, rounds) for rounds in (7, 8, 9))
    assert seventh != eighth != ninth
    assert partition(cluster(x, 20).index[0]) == eighth


def test_the_rounds_are_enough_to_come_close_to_the_end(monkeypatch):
    x = random_tokens((32, 32), batch=1)
    module = importlib.import_module("todo_core.reduction.clustering")

    def spread(rounds):
        monkeypatch.setattr(module, "_ROUNDS", rounds)
        values = torch.tensor(closeness(x[0]), dtype=torch.float64)[None, :, None]
        found = cluster(x, 16)
        return (found.unmerge(found.merge(values)) - values).square().mean()

    shipped = module._ROUNDS
    assert spread(shipped) < 0.8 * spread(0)
    assert spread(shipped) < 1.2 * spread(500)


@pytest.mark.parametrize("sizes", [(20, 6, 4), (15, 14, 1), (1, 14, 15)])
def test_separate_lumps_are_found(sizes):
    # directions 0, 60 and 90 degrees from the first axis; a lone token is a lump, too
    lumps = [[angle] * size for angle, size in zip((0.0, 1.05, 1.57), sizes, strict=True)]
    angles = torch.tensor(sum(lumps, []), dtype=torch.float64) + torch.linspace(0, 0.01, 30, dtype=torch.float64)
    found = cluster(torch.stack([angles.cos(), angles.sin()], dim=1)[None], 3)
    ends = [0, sizes[0], sizes[0] + sizes[1], 30]
    assert partition(found.index[0]) == {frozenset(range(*ends[k : k + 2])) for k in range(3)}


@pytest.mark.parametrize(("n", "groups"), [(1, 1), (7, 3), (40, 10), (40, 40), (40, 1)])
def test_merging_averages_each_group(n, groups):
    x = random_tokens((n, 1), channels=3)
    found = cluster(x, groups)
    for row in range(2):
        torch.testing.assert_close(found.merge(x)[row], group_means(x[row], found.index[row], groups))


@pytest.mark.parametrize(("n", "groups"), [(1, 1), (7, 3), (40, 10), (40, 40)])
def test_unmerging_copies_to_each_of_the_group(n, groups):
    found = cluster(random_tokens((n, 1)), groups)
    y = random_tokens((groups, 1), channels=5, seed=1)
    spread = found.unmerge(y)
    for row in range(2):
        for token, group in enumerate(found.index[row].tolist()):
            assert spread[row, token].equal(y[row, group])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_neither_overflow_nor_stall(dtype):
    x = torch.full((1, 5000, 2), 60000.0, dtype=dtype)
    x[0, :, 1] = torch.linspace(0, 1, 5000)
    merged = cluster(x, 1).merge(x)
    torch.testing.assert_close(merged[0, 0].double(), x[0].double().mean(0), rtol=0.01, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_grouped_as_the_same_numbers_in_float32_are(dtype):
    x = random_tokens((30, 20), channels=16, dtype=dtype)
    found, wide = cluster(x, 40), cluster(x.float(), 40)
    assert found.index.equal(wide.index)
    assert found.merge(x).dtype == dtype
    assert found.merge(x).equal(wide.merge(x.float()).to(dtype))


def test_the_same_tokens_make_the_same_groups_again():
    x = random_tokens((20, 20))
    assert cluster(x, 50).index.equal(cluster(x.clone(), 50).index)


def test_the_sort_is_stable_on_every_device():
    with Sorts() as sorts:
        cluster(random_tokens((4, 4)), 5)
    assert sorts.stable
    assert all(sorts.stable)
