"""One-dimensional k-means on the closeness to the mean token: exact counts, intervals, and plain Lloyd's loops."""

import importlib

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.fake_gpu import Count
from tests.naive import closeness, examples, group_means, kmeans_groups, partition, random_tokens
from todo_core.reduction import cluster

# (2, n, c) of kinds that make k-means's life hard, from normal tokens and the numbers 0 to n - 1
KINDS = {
    "normal": lambda x, n: x,
    "constant": lambda x, n: x[:, :1].expand_as(x),
    "zeros": lambda x, n: torch.zeros_like(x),
    "ties": lambda x, n: x.round().clamp(-1, 1),
    "geometric": lambda x, n: x * 2.0 ** -n.clamp(max=60) + 1,
    "outlier": lambda x, n: torch.cat([x[:, :1] * 1e4, torch.ones_like(x[:, 1:])], dim=1),
    "two": lambda x, n: torch.where(n % 2 == 0, x[:, :1], -x[:, :1] * 0.5),
}


def tokens_of(kind, n, channels, seed):
    return KINDS[kind](random_tokens((n, 1), channels, seed=seed, dtype=torch.float32), torch.arange(n)[:, None])


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
@given(st.integers(1, 120), st.integers(1, 25), st.integers(0, 2**32))
@examples(25)
def test_groups_means_and_copies_are_those_of_lloyds_plain_loops(rounds, n, groups, seed):
    groups, x = min(groups, n), random_tokens((n, 1), channels=6, seed=seed)
    wanted = [kmeans_groups(closeness(image), groups, rounds) for image in x]
    assume(None not in wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("todo_core.reduction.clustering"), "_ROUNDS", rounds)
        found = cluster(x, groups)
    merged = found.merge(x)
    spread = found.unmerge(merged)
    for row, index in enumerate(found.index):
        assert partition(index) == wanted[row]
        torch.testing.assert_close(merged[row], group_means(x[row], index, groups))
        assert spread[row].equal(merged[row, index])


def test_the_search_has_eight_rounds():
    x = random_tokens((30, 30), batch=1, channels=6, seed=5)
    seventh, eighth, ninth = (kmeans_groups(closeness(x[0]), 20, rounds) for rounds in (7, 8, 9))
    assert seventh != eighth != ninth
    assert partition(cluster(x, 20).index[0]) == eighth


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_grouped_as_the_same_numbers_in_float32_are(dtype):
    x = random_tokens((30, 20), channels=16, dtype=dtype)
    found, wide = cluster(x, 40), cluster(x.float(), 40)
    assert found.index.equal(wide.index)
    assert found.merge(x).equal(wide.merge(x.float()).to(dtype))


def test_the_sort_is_stable_on_every_device():
    with Count() as count:
        cluster(random_tokens((4, 4)), 5)
    assert {*count.sorts} == {True}
