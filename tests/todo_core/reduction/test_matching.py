"""ToMe's matching: beside tomesd itself, beside plain loops, and what random destinations may depend on."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tomesd.merge import bipartite_soft_matching_random2d

from tests.fake_gpu import Sorts, autocast_to_half
from tests.naive import cells, examples, group_means, partition, random_tokens, token_ids, tome_groups
from todo_core.reduction import match, nearest_destination, random_draws, removable
from todo_core.reduction.matching import _without_autocast
from todo_core.reduction.scores import unit

AUTOCAST = {"cuda": autocast_to_half, "cpu": lambda: torch.autocast("cpu", torch.bfloat16), "none": nullcontext}
SIZES = [
    ((8, 8), (2, 2)),
    ((32, 32), (2, 2)),
    ((16, 12), (2, 2)),
    ((6, 20), (2, 4)),
    ((12, 9), (4, 3)),
    ((10, 14), (1, 2)),
    ((15, 4), (5, 1)),
    ((16, 32), (8, 16)),
]
UNEVEN = [((5, 5), (2, 2)), ((7, 4), (2, 3)), ((9, 10), (4, 4)), ((1, 7), (2, 2)), ((6, 1), (4, 4)), ((3, 5), (8, 8))]
LAST = float(torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)))


def tomesd_match(metric, size, ratio, cell):
    removed = int(metric.shape[1] * ratio)
    return bipartite_soft_matching_random2d(metric, size[1], size[0], cell[1], cell[0], removed, no_rand=True)


def count_of(size, cell):
    return len(cells(size, cell))


def draws_of(size, cell, numbers):
    """The draw that chooses token ``numbers[i]`` of cell i, counted row by row inside the cell."""
    areas = [len(tokens) for tokens in cells(size, cell)]
    return torch.tensor([[(number % area + 0.5) / area for number, area in zip(numbers, areas, strict=True)]])


@st.composite
def grid_and_cell(draw, side=9):
    sides, steps = st.integers(1, side), st.integers(1, 4)
    return (draw(sides), draw(sides)), (draw(steps), draw(steps))


@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.75])
@pytest.mark.parametrize(("size", "cell"), SIZES)
def test_without_draws_the_groups_are_tomesds(size, cell, ratio):
    metric = random_tokens(size, batch=2)
    ours = match(metric, size, ratio, cell)
    _, their_unmerge = tomesd_match(metric, size, ratio, cell)
    labels = torch.arange(ours.groups, dtype=torch.float64).repeat(2, 1)[:, :, None]
    for mine, theirs in zip(ours.index, their_unmerge(labels), strict=True):
        assert partition(mine) == partition(theirs[:, 0])


@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.75])
@pytest.mark.parametrize(("size", "cell"), SIZES)
def test_without_draws_the_merged_and_unmerged_values_are_tomesds(size, cell, ratio):
    metric, x = random_tokens(size, batch=2), random_tokens(size, channels=3, batch=2, seed=1)
    ours = match(metric, size, ratio, cell)
    their_merge, their_unmerge = tomesd_match(metric, size, ratio, cell)
    merged, theirs = ours.merge(x), their_merge(x)
    assert merged.shape == theirs.shape
    torch.testing.assert_close(merged.sort(dim=1).values, theirs.sort(dim=1).values)
    torch.testing.assert_close(ours.unmerge(merged), their_unmerge(theirs))


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.99])
@pytest.mark.parametrize(("size", "cell"), [*UNEVEN, ((8, 6), (2, 3))])
def test_on_any_grid_the_groups_are_those_of_plain_loops(size, cell, ratio):
    metric = random_tokens(size, batch=2)
    tokens, corners = size[0] * size[1], [tokens[0] for tokens in cells(size, cell)]
    removed = min(int(tokens * ratio), tokens - len(corners))
    found = match(metric, size, ratio, cell)
    for image, index in zip(metric, found.index, strict=True):
        assert partition(index) == tome_groups(image, corners, removed)


@given(grid_and_cell(side=7), st.sampled_from([0.3, 0.6, 0.99]), st.integers(0, 2**32), st.data())
@examples(60)
def test_with_draws_the_groups_are_those_of_plain_loops(case, ratio, seed, data):
    size, cell = case
    metric, found_cells = random_tokens(size, batch=1, seed=seed), cells(size, cell)
    numbers = data.draw(st.lists(st.integers(0, 15), min_size=len(found_cells), max_size=len(found_cells)))
    destinations = [tokens[number % len(tokens)] for tokens, number in zip(found_cells, numbers, strict=True)]
    removed = min(int(size[0] * size[1] * ratio), size[0] * size[1] - len(found_cells))
    found = match(metric, size, ratio, cell, draws_of(size, cell, numbers))
    assert partition(found.index[0]) == tome_groups(metric[0], destinations, removed)


@given(grid_and_cell(), st.integers(0, 2**32), st.sampled_from([None, 0.0, LAST]))
@examples(100)
def test_each_cell_and_part_cell_has_one_destination_inside_it(case, seed, draw):
    size, cell = case
    found_cells = cells(size, cell)
    looks = torch.randn(len(found_cells), 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    metric = torch.empty(1, size[0] * size[1], 16, dtype=torch.float64)
    for look, tokens in zip(looks, found_cells, strict=True):
        metric[0, tokens] = look
    draws = random_draws([seed], 0, 0, size, cell) if draw is None else torch.full((1, len(found_cells)), draw)
    # a cell's tokens look alike and like no other cell's: each joins its own, if there is one to join
    assert partition(match(metric, size, 0.9999, cell, draws).index[0]) == {frozenset(tokens) for tokens in found_cells}


def test_draws_choose_every_token_of_a_cell_equally_often():
    draws = random_draws(range(4000), 3, 5, (2, 2))
    counts = torch.bincount((draws[:, 0] * 4).long(), minlength=4)
    assert counts.sum() == 4000
    assert (counts - 1000).abs().max() < 120


def test_the_highest_draw_chooses_the_last_token_of_a_cell_of_any_size():
    numbers = torch.arange(1, 5000)
    assert torch.equal((LAST * numbers.float()).long(), numbers - 1), "the product never rounds up to the number"


def test_draws_have_one_row_for_each_image_and_one_column_for_each_cell():
    draws = random_draws([4, 9, 2], 0, 0, (5, 7), (2, 3))
    assert draws.shape == (3, 9)
    assert draws.min() >= 0
    assert draws.max() < 1


def test_equal_seeds_draw_equal_rows():
    draws = random_draws([7, 3, 7], 1, 2, (8, 8))
    assert draws[0].equal(draws[2])
    assert not draws[0].equal(draws[1])


def test_draws_depend_on_seed_step_and_rank_each():
    coordinates = [(1, 11, 1), (1, 1, 11), (11, 1, 1), (11, 11, 1), (111, 1, 1), (1, 111, 1), (1, 1, 111), (0, 0, 0)]
    drawn = {tuple(random_draws([seed], step, rank, (8, 8))[0].tolist()) for seed, step, rank in coordinates}
    assert len(drawn) == len(coordinates)


@given(st.lists(st.integers(0, 2**64), min_size=1, max_size=5), st.integers(0, 150), st.integers(0, 16))
@examples(50)
def test_draws_do_not_depend_on_neighbours(seeds, step, rank):
    together = random_draws(seeds, step, rank, (6, 6))
    for seed, row in zip(seeds, together, strict=True):
        assert row.equal(random_draws([seed], step, rank, (6, 6))[0])


def test_draws_leave_torchs_own_generator_alone():
    before = torch.get_rng_state()
    random_draws([1, 2], 3, 4, (8, 8))
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(16, 16), (13, 9)])
@pytest.mark.parametrize("drawn", [False, True])
def test_an_images_groups_do_not_depend_on_its_batch(size, drawn, dtype):
    metric = random_tokens(size, channels=40, batch=4, dtype=dtype)
    draws = random_draws([5, 6, 5, 7], 2, 1, size) if drawn else None
    together = match(metric, size, 0.5, draws=draws)
    for row in range(4):
        alone = match(metric[row : row + 1], size, 0.5, draws=draws[row : row + 1] if drawn else None)
        assert alone.groups == together.groups
        assert alone.index[0].equal(together.index[row])


@pytest.mark.parametrize("pairs", [1, 7, 100, 1000])
@pytest.mark.parametrize(("size", "cell"), [((12, 10), (2, 2)), ((7, 9), (3, 2)), ((1, 1), (2, 2)), ((3, 3), (1, 1))])
def test_scores_made_in_parts_give_the_same_groups(monkeypatch, pairs, size, cell):
    metric = random_tokens(size)
    whole = match(metric, size, 0.5, cell)
    monkeypatch.setattr(nearest_destination, "_MAX_SCORES", pairs)
    parts = match(metric, size, 0.5, cell)
    assert parts.groups == whole.groups
    assert parts.index.equal(whole.index)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_matrix_of_all_pairs_is_ever_made(monkeypatch, dtype):
    made = []
    matmul = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: made.append(matmul(a, b)) or made[-1])
    monkeypatch.setattr(nearest_destination, "_MAX_SCORES", 50 * 100)
    match(random_tokens((20, 20), batch=1, dtype=dtype), (20, 20), 0.5)
    padded = 128
    assert max(scores.numel() for scores in made) <= 50 * padded
    assert sum(scores.numel() for scores in made if scores.shape[-1] == padded) >= 300 * padded


def tokens_of(kind, count, channels, seed):
    """Float32 tokens (1, count, channels) of a kind that might mislead a search by scores."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, channels, generator=generator)
    which = torch.randint(count, (count,), generator=generator)
    made = {
        "noise": lambda: noise,
        "constant": lambda: noise[:1].expand(count, -1),
        "many ties": lambda: noise[which % 5],
        "some ties": lambda: noise[which],
        "near ties": lambda: noise[which % 5] + 1e-3 * noise,
        "nearer ties": lambda: noise[which % 5] + 1e-6 * noise,
        "one direction": lambda: 30 + noise,
        "opposite directions": lambda: noise[:1] * noise[:, :1],
        "one channel": lambda: noise * torch.eye(channels)[0].mul(1e3).add(1),
        "few zeros": lambda: noise * (which % 4 > 0)[:, None],
        "most zero": lambda: noise * (which % 9 == 0)[:, None],
        "tiny": lambda: noise * 1e-30,
        "some tiny": lambda: noise * torch.where(which % 3 == 0, 1e-15, 1.0)[:, None],
        "huge": lambda: noise * 1e17,
    }
    return made[kind]()[None].contiguous() if kind else list(made)


def first_like(tokens, destinations, found):
    """For each of ``found``, the first destination that is bit by bit the same token."""
    there = tokens[destinations]
    return torch.stack([(there == there[i]).all(1).nonzero()[0, 0] for i in found])


@pytest.mark.parametrize("kind", tokens_of(None, 3, 3, 0))
@examples(12)
@given(st.integers(2, 400), st.sampled_from([1, 3, 32, 75]), st.floats(0.1, 0.9), st.integers(0, 2**32))
def test_what_is_found_is_the_best_of_float64_within_its_rounding(kind, count, channels, share, seed):
    tokens = tokens_of(kind, count, channels, seed)
    split = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    sources, destinations = (part.sort().values for part in split.tensor_split([max(1, int(count * share))]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_destination, "_MAX_SOURCES", 100)
        values, found = (of[0] for of in nearest_destination.nearest_of_all(tokens, sources[None], destinations[None]))
    exact = torch.nn.functional.normalize(tokens[0].double(), dim=1)
    scores = exact[sources] @ exact[destinations].T
    best = scores.amax(1)
    close = {"atol": 2e-6, "rtol": 0}
    torch.testing.assert_close(values.double(), best, **close)
    torch.testing.assert_close(scores.gather(1, found[:, None])[:, 0], best, **close)
    assert found.equal(first_like(tokens[0], destinations, found))
    clear = (scores >= best[:, None] - 2e-6).sum(1) == 1
    assert found[clear].equal(scores.argmax(1)[clear])


@pytest.mark.parametrize("size", [(64, 64), (48, 40)])
def test_the_groups_of_many_tokens_are_tomesds(size):
    metric, ids = random_tokens(size, channels=128, dtype=torch.float32), token_ids(size, 2)
    ours, (merge, unmerge) = match(metric, size, 0.5), tomesd_match(metric, size, 0.5, (2, 2))
    torch.testing.assert_close(ours.unmerge(ours.merge(ids)), unmerge(merge(ids)))
    with torch.autocast("cpu", torch.float16):
        assert match(metric, size, 0.5).index.equal(ours.index)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_search_is_no_part_of_a_gradient(dtype):
    tokens = torch.randn(2, 64, 8, dtype=dtype, requires_grad=True)
    found = match(tokens, (8, 8), 0.5)
    found.merge(tokens).sum().backward()
    sizes = torch.stack([index.bincount()[index] for index in found.index])
    torch.testing.assert_close(tokens.grad, (1 / sizes.to(dtype))[..., None].expand_as(tokens))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 6), st.integers(1, 6), st.floats(0, 1))
@examples(200)
def test_removable_is_the_share_of_tokens_but_never_a_destination(height, width, sy, sx, ratio):
    tokens, destinations = height * width, count_of((height, width), (sy, sx))
    removed = removable((height, width), ratio, (sy, sx))
    assert 0 <= removed <= tokens - destinations
    assert removed == int(tokens * ratio) or (removed == tokens - destinations and removed < tokens * ratio)


def test_a_cell_has_two_by_two_tokens_unless_told():
    assert removable((8, 8), 1.0) == removable((8, 8), 1.0, (2, 2)) == 48
    assert random_draws([1], 0, 0, (8, 8)).shape == (1, 16)


@pytest.mark.parametrize(("size", "cell"), SIZES + UNEVEN)
def test_when_all_that_can_go_goes_no_destination_is_merged_into_another(size, cell):
    found = match(random_tokens(size, batch=1), size, 0.9999, cell)
    corners = [tokens[0] for tokens in cells(size, cell)]
    assert found.groups == len(corners)
    assert len(set(found.index[0, corners].tolist())) == len(corners)


@pytest.mark.parametrize(("size", "cell"), SIZES + UNEVEN)
def test_merging_averages_each_group_and_unmerging_copies_to_it(size, cell):
    x = random_tokens(size, channels=3, seed=1)
    found = match(random_tokens(size), size, 0.5, cell)
    merged = found.merge(x)
    spread = found.unmerge(merged)
    for row in range(2):
        torch.testing.assert_close(merged[row], group_means(x[row], found.index[row], found.groups))
        for token, group in enumerate(found.index[row].tolist()):
            assert spread[row, token].equal(merged[row, group])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_averaged_in_float32(dtype):
    """Sixty-three tokens of one direction: a sum in half precision would overflow or lose the small ones."""
    x = torch.full((1, 64, 2), 60000.0, dtype=dtype)
    x[0, :, 1] = torch.linspace(0.5, 1, 64)
    found = match(torch.ones(1, 64, 4, dtype=dtype), (8, 8), 0.99, (8, 8))
    expected = x.double().mean(1, keepdim=True).to(dtype)
    assert found.merge(x).equal(expected)


def test_tokens_that_stay_alone_keep_their_last_bit():
    x = random_tokens((8, 8), dtype=torch.float16)
    found = match(x, (8, 8), 0.25)
    assert found.merge(x)[:, : found.alone].equal(x.gather(1, found.stay[:, : found.alone, None].expand(-1, -1, 8)))


def test_of_equally_alike_sources_the_first_go():
    """A stable order, so that a run can be repeated on any device."""
    found = match(torch.ones(1, 16, 4), (4, 4), 0.25)
    assert found.merged.tolist() == [[1, 3, 4, 5]]


def test_the_order_is_stable_on_every_device():
    with Sorts() as sorts:
        match(random_tokens((4, 4)), (4, 4), 0.25)
    assert sorts.stable
    assert all(sorts.stable)


def test_the_most_alike_go_first():
    # angles on a circle; token 0 is the destination, and 3 lies nearest to it
    angles = torch.tensor([0.0, 0.5, 0.9, 0.1], dtype=torch.float64)
    metric = torch.stack([angles.cos(), angles.sin()], dim=1)[None]
    assert partition(match(metric, (2, 2), 0.25).index[0]) == {frozenset({0, 3}), frozenset({1}), frozenset({2})}
    assert partition(match(metric, (2, 2), 0.5).index[0]) == {frozenset({0, 1, 3}), frozenset({2})}


def test_likeness_is_of_direction_not_of_length():
    metric = torch.tensor([[[1.0, 0.0], [0.0, 9.0], [5.0, 0.1], [0.9, 0.9]]], dtype=torch.float64)
    assert frozenset({0, 2}) in partition(match(metric, (2, 2), 0.25).index[0])


@pytest.mark.parametrize("scale", [5000, 1e-6])
def test_the_length_of_a_half_precision_token_neither_overflows_nor_vanishes(scale):
    """A length of 5000 * sqrt(320) is no number of float16, nor is the square of 1e-6; a token of zeros has none."""
    metric = random_tokens((8, 8), channels=320, batch=1)
    metric[:, 9] = 0
    half = (metric * scale).half()
    found, expected = match(half, (8, 8), 0.5), match(half.double(), (8, 8), 0.5)
    same = (found.index == expected.index).float().mean()
    assert same > 0.9, "but for the rounding of close scores"


@pytest.mark.parametrize(("given", "asked", "made"), [("float32", None, "float32"), ("float32", "float16", "float16")])
def test_unit_vectors_have_the_dtype_that_is_asked_for(given, asked, made):
    tokens = random_tokens((4, 4)).to(getattr(torch, given))
    assert unit(tokens, asked and getattr(torch, asked)).dtype == getattr(torch, made)


def test_tokens_of_zeros_are_like_nothing_and_break_nothing():
    x = torch.zeros(1, 16, 4)
    x[0, 5] = 1
    found = match(x, (4, 4), 0.5)
    assert found.unmerge(found.merge(token_ids((4, 4)))).isfinite().all()
    assert len(partition(found.index[0])) == 8


@pytest.mark.parametrize(
    ("device", "on", "dtype"),
    [("cuda", "cuda", torch.float16), ("cuda", "none", None), ("cpu", "cpu", None), ("mps", "cpu", None)],
)
def test_only_a_gpu_multiplies_in_autocasts_own_dtype(device, on, dtype):
    with AUTOCAST[on](), _without_autocast(torch.device(device)) as found:
        assert found == dtype


def test_a_cpu_does_not_cast_inside_and_does_again_outside():
    tokens = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        with _without_autocast(torch.device("cpu")):
            assert (tokens @ tokens).dtype == torch.float32
        assert (tokens @ tokens).dtype == torch.bfloat16
