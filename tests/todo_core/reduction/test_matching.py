"""ToMe's matching: beside plain loops, and what random destinations may depend on."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_gpu import Count, autocast_to_half
from tests.naive import cells, examples, group_means, partition, random_tokens, tome_groups
from todo_core.reduction import match, nearest_destination, random_draws
from todo_core.reduction.matching import _without_autocast
from todo_core.reduction.nearest_destination import unit

AUTOCAST = {"cuda": autocast_to_half, "cpu": lambda: torch.autocast("cpu", torch.bfloat16), "none": nullcontext}
LAST = float(torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)))
STEPS, SEEDS = st.integers(1, 5), st.integers(0, 2**32)


def grids_and_cells(side):
    sides = st.integers(1, side)
    return st.tuples(st.tuples(sides, sides), st.tuples(STEPS, STEPS))


def draws_of(found_cells, numbers):
    """The draw that chooses token ``numbers[i]`` of cell i, counted row by row inside it; 0 and LAST for its ends."""
    places = [(number % len(tokens), len(tokens)) for number, tokens in zip(numbers, found_cells, strict=True)]
    draws = [LAST if number + 1 == area else (number + 0.5) / area * (number > 0) for number, area in places]
    return torch.tensor([draws])


@given(grids_and_cells(9), st.floats(0, 1), SEEDS, st.data())
@examples(150)
def test_on_any_grid_groups_means_and_copies_are_those_of_plain_loops(case, ratio, seed, data):
    size, cell = case
    metric, x, found_cells = random_tokens(size, seed=seed), random_tokens(size, 3, seed=1), cells(size, cell)
    drawn = data.draw(st.lists(st.integers(0, 24), min_size=len(found_cells), max_size=len(found_cells)))
    of_rows = [drawn, drawn[::-1]] if data.draw(st.booleans()) else None
    draws = of_rows and torch.cat([draws_of(found_cells, numbers) for numbers in of_rows])
    removed = min(int(size[0] * size[1] * ratio), size[0] * size[1] - len(found_cells))
    found = match(metric, size, ratio, cell, draws)
    merged = found.merge(x)
    spread = found.unmerge(merged)
    for row, index in enumerate(found.index):
        numbers = of_rows[row] if of_rows else [0] * len(found_cells)
        destinations = [tokens[number % len(tokens)] for tokens, number in zip(found_cells, numbers, strict=True)]
        assert partition(index) == tome_groups(metric[row], destinations, removed)
        torch.testing.assert_close(merged[row], group_means(x[row], index, found.groups))
        assert spread[row].equal(merged[row, index])


def test_under_autocast_the_same_is_found():
    metric = random_tokens((48, 40), channels=128, dtype=torch.float32)
    ours = match(metric, (48, 40), 0.5)
    with torch.autocast("cpu", torch.float16):
        assert match(metric, (48, 40), 0.5).index.equal(ours.index)


@given(st.lists(st.integers(0, 2**64), min_size=1, max_size=5), st.integers(0, 150), st.integers(0, 16))
@examples(50)
def test_a_row_of_draws_depends_on_its_seed_the_step_and_the_rank_alone(seeds, step, rank):
    before = torch.get_rng_state()
    together = random_draws([*seeds, seeds[0]], step, rank, (5, 7), (2, 3))
    assert together.shape == (len(seeds) + 1, 9)
    assert 0 <= together.min() <= together.max() < 1
    assert together[0].equal(together[-1])
    for seed, row in zip(seeds, together, strict=False):
        assert row.equal(random_draws([seed], step, rank, (5, 7), (2, 3))[0])
    assert torch.get_rng_state().equal(before)
    coordinates = [(1, 11, 1), (1, 1, 11), (11, 1, 1), (11, 11, 1), (111, 1, 1), (1, 111, 1), (1, 1, 111), (0, 0, 0)]
    drawn = {tuple(random_draws([seed], step, rank, (8, 8))[0].tolist()) for seed, step, rank in coordinates}
    assert len(drawn) == len(coordinates)


def test_draws_choose_every_token_of_a_cell_equally_often_and_the_highest_the_last():
    draws = random_draws(range(4000), 3, 5, (2, 2))
    counts = torch.bincount((draws[:, 0] * 4).long(), minlength=4)
    assert counts.sum() == 4000
    assert (counts - 1000).abs().max() < 120
    numbers = torch.arange(1, 5000)
    assert torch.equal((LAST * numbers.float()).long(), numbers - 1), "the product never rounds up to the number"


def test_scores_made_in_parts_give_the_same_groups(monkeypatch):
    sizes = [((12, 10), (2, 2)), ((7, 9), (3, 2)), ((1, 1), (2, 2)), ((3, 3), (1, 1))]
    whole = [match(random_tokens(size), size, 0.5, cell).index for size, cell in sizes]
    for pairs in (1, 7, 100, 1000):
        monkeypatch.setattr(nearest_destination, "_MAX_SCORES", pairs)
        for (size, cell), index in zip(sizes, whole, strict=True):
            assert match(random_tokens(size), size, 0.5, cell).index.equal(index)


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


# Float32 tokens of kinds that might mislead a search by scores, from normal ``noise`` and a random ``which`` of each
KINDS = {
    "noise": lambda noise, which: noise,
    "constant": lambda noise, which: noise[:1].expand_as(noise),
    "many ties": lambda noise, which: noise[which % 5],
    "some ties": lambda noise, which: noise[which],
    "near ties": lambda noise, which: noise[which % 5] + 1e-3 * noise,
    "nearer ties": lambda noise, which: noise[which % 5] + 1e-6 * noise,
    "one direction": lambda noise, which: 30 + noise,
    "opposite directions": lambda noise, which: noise[:1] * noise[:, :1],
    "one channel": lambda noise, which: noise * torch.eye(noise.shape[1])[0].mul(1e3).add(1),
    "few zeros": lambda noise, which: noise * (which % 4 > 0)[:, None],
    "most zero": lambda noise, which: noise * (which % 9 == 0)[:, None],
    "tiny": lambda noise, which: noise * 1e-30,
    "some tiny": lambda noise, which: noise * torch.where(which % 3 == 0, 1e-15, 1.0)[:, None],
    "huge": lambda noise, which: noise * 1e17,
}


def first_like(tokens, destinations, found):
    """For each of ``found``, the first destination that is bit by bit the same token."""
    there = tokens[destinations]
    return torch.stack([(there == there[i]).all(1).nonzero()[0, 0] for i in found])


@pytest.mark.parametrize("kind", KINDS)
@examples(12)
@given(st.integers(2, 400), st.sampled_from([1, 3, 32, 75]), st.floats(0.1, 0.9), SEEDS)
def test_what_is_found_is_the_best_of_float64_within_its_rounding(kind, count, channels, share, seed):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, channels, generator=generator)
    tokens = KINDS[kind](noise, torch.randint(count, (count,), generator=generator))[None].contiguous()
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_search_is_no_part_of_a_gradient(dtype):
    tokens = torch.randn(2, 64, 8, dtype=dtype, requires_grad=True)
    found = match(tokens, (8, 8), 0.5)
    found.merge(tokens).sum().backward()
    sizes = torch.stack([index.bincount()[index] for index in found.index])
    torch.testing.assert_close(tokens.grad, (1 / sizes.to(dtype))[..., None].expand_as(tokens))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_averaged_in_float32(dtype):
    """Sixty-three tokens of one direction: a sum in half precision would overflow or lose the small ones."""
    x = torch.full((1, 64, 2), 60000.0, dtype=dtype)
    x[0, :, 1] = torch.linspace(0.5, 1, 64)
    found = match(torch.ones(1, 64, 4, dtype=dtype), (8, 8), 0.99, (8, 8))
    assert found.merge(x).equal(x.double().mean(1, keepdim=True).to(dtype))


def test_tokens_that_stay_alone_keep_their_last_bit():
    x = random_tokens((8, 8), dtype=torch.float16)
    found = match(x, (8, 8), 0.25)
    assert found.merge(x)[:, : found.alone].equal(x.gather(1, found.stay[:, : found.alone, None].expand(-1, -1, 8)))


def test_of_equally_alike_sources_the_first_go_on_every_device():
    """A stable order, so that a run can be repeated on any device."""
    with Count() as count:
        found = match(torch.ones(1, 16, 4), (4, 4), 0.25)
    assert found.merged.tolist() == [[1, 3, 4, 5]]
    assert {*count.sorts} == {True}


@pytest.mark.parametrize("scale", [5000, 1e-6])
def test_the_length_of_a_half_precision_token_neither_overflows_nor_vanishes(scale):
    """A length of 5000 * sqrt(320) is no number of float16, nor is the square of 1e-6; a token of zeros has none."""
    metric = random_tokens((8, 8), channels=320, batch=1)
    metric[:, 9] = 0
    half = (metric * scale).half()
    same = (match(half, (8, 8), 0.5).index == match(half.double(), (8, 8), 0.5).index).float().mean()
    assert same > 0.9, "but for the rounding of close scores"


def test_unit_vectors_have_the_dtype_that_is_asked_for():
    tokens = random_tokens((4, 4), dtype=torch.float32)
    assert unit(tokens).dtype == torch.float32
    assert unit(tokens, torch.float16).dtype == torch.float16


@pytest.mark.parametrize(
    ("device", "on", "dtype"),
    [("cuda", "cuda", torch.float16), ("cuda", "none", None), ("cpu", "cpu", None), ("mps", "cpu", None)],
)
def test_only_a_gpu_multiplies_in_autocasts_own_dtype(device, on, dtype):
    with AUTOCAST[on](), _without_autocast(torch.device(device)) as found:
        assert found == dtype
