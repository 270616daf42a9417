"""The search by rounded scores, on inputs made to mislead it: no best destination is lost, and every term is needed."""

from __future__ import annotations

import pytest
import torch

from todo_core.reduction import match, nearest_destination, rounded_search
from todo_core.reduction.rounded_search import RoundedSearch
from todo_core.reduction.scores import BLOCK, highest_scores

CHANNELS = 256
ULP = 2.0**-11  # distance of the bfloat16 numbers from 1/16 on
ALMOST_HALF = 0.499


def aligned(positive: int, *, up: bool) -> torch.Tensor:
    """Components of about 1/16 of both signs, all of which bfloat16 rounds in one direction, by almost half an ulp.

    The rounding errors add up to the largest that the inequality of Cauchy and Schwarz allows.
    """
    low, high = 1 / 16 + ALMOST_HALF * ULP, 1 / 16 + (1 - ALMOST_HALF) * ULP
    plus, minus = (high, low) if up else (low, high)
    return torch.cat([torch.full((positive,), plus), torch.full((CHANNELS - positive,), -minus)]).double()


def with_mean_zero(pair: torch.Tensor) -> torch.Tensor:
    """As many destinations as a block has: the pair, its opposites, and zeros."""
    return torch.cat([pair, -pair, torch.zeros(BLOCK - 4, pair.shape[1])]).float()


def assert_best_is_a_candidate(sources: torch.Tensor, destinations: torch.Tensor, what: object) -> None:
    best = (sources.double() @ destinations.double().T).argmax(1)
    row, which = RoundedSearch(destinations)._candidates(sources)
    found = set(zip(row.tolist(), which.tolist(), strict=True))
    assert all(pair in found for pair in enumerate(best.tolist()) if pair[0] in row), what
    values, index = highest_scores(sources, destinations)
    searched = RoundedSearch(destinations).search(sources)
    if searched:
        assert searched[0].equal(values), what
        assert searched[1].equal(index), what


@pytest.mark.parametrize("positive", [131, 192])
@pytest.mark.parametrize("gap", [2e-4, 1e-3])
def test_rounding_of_the_destinations_loses_no_best_one(positive, gap):
    """The best one is rounded down everywhere, the next one up: its rounded score is higher by twice the bound."""
    sources = torch.full((16, CHANNELS), 1 / 16)
    for shift in torch.arange(0, 0.03, 0.0005).tolist():
        pair = torch.stack([aligned(positive, up=False), aligned(positive, up=True)])
        lead = (sources[0].double() @ (pair[0] - pair[1])).item()
        pair[1, 0] += 16 * lead - gap  # the second is now worse by gap / 16
        pair[:, 2] += shift
        assert_best_is_a_candidate(sources, with_mean_zero(pair), shift)


def test_rounding_of_the_source_loses_no_best_destination():
    """The source's errors point to one destination and away from the other; both are exact in bfloat16."""
    for positive in (131, 140, 192):
        for up in (False, True):
            source = aligned(positive, up=up)
            error = (source.float().bfloat16().double() - source).sign() / 16
            pair = torch.stack([source.sign() / 16, source.sign() / 16])
            flipped = slice(0, 8)
            pair[0, flipped], pair[1, flipped] = -error[flipped], error[flipped]
            pair[0, 8:16], pair[1, 8:16] = error[8:16], -error[8:16]
            assert_best_is_a_candidate(source.float().expand(16, -1).contiguous(), with_mean_zero(pair), positive)


@pytest.mark.parametrize("channels", [8, 128, 1280])
def test_the_threshold_allows_for_every_error_of_the_derivation(channels):
    generator = torch.Generator().manual_seed(channels)
    destinations, sources = (
        torch.nn.functional.normalize(torch.randn(64, channels, generator=generator)) for _ in range(2)
    )
    centred = destinations.double() - destinations.double().mean(0)
    longest, lost = centred.norm(dim=1).max(), (centred - centred.bfloat16().double()).norm(dim=1).max()
    search, eps = RoundedSearch(destinations), torch.finfo(torch.float32).eps
    for exact in (False, True):  # sources that bfloat16 holds exactly have no error of their own
        x = sources.bfloat16().float() if exact else sources
        rounded = x.bfloat16()
        for highest in (0.9, 0.3, 0.05):
            score = torch.full((64,), highest).bfloat16().float()
            threshold = search._threshold(x, rounded, score).view(torch.bfloat16).double()
            wide, back = x.double(), rounded.double()
            error = (wide - back).norm(dim=1) * longest + back.norm(dim=1) * lost
            error = error + 1.51 * channels * eps * wide.norm(dim=1)
            allowed = score.double() * (1 - 2**-8) - 2 * error
            is_set = threshold.isfinite()
            assert is_set.any() or highest < 0.1 or channels > 1000
            nearest = 1 + 2**-8  # the threshold itself is rounded to bfloat16
            assert (threshold <= allowed * nearest)[is_set].all()


def test_a_threshold_near_zero_or_below_has_no_candidates():
    """Bits of negative numbers do not sort like the numbers."""
    search = RoundedSearch(torch.zeros(BLOCK, CHANNELS))
    sources = torch.zeros(3, CHANNELS)
    bits = search._threshold(sources, sources.bfloat16(), torch.tensor([-0.5, 9e-5, 2e-4]))
    assert bits.view(torch.bfloat16).isinf().tolist() == [True, True, False]


def test_sources_in_doubt_are_scored_beside_at_least_fifteen_others(monkeypatch):
    """A product of fewer rows may be summed in another order, and end in other last bits."""
    generator = torch.Generator().manual_seed(0)
    destinations = torch.nn.functional.normalize(torch.randn(BLOCK, CHANNELS, generator=generator))
    sources = torch.nn.functional.normalize(destinations[:40] + 0.01 * torch.randn(40, CHANNELS, generator=generator))
    sources[30] = 0  # like nothing, so in doubt
    rows = []

    def counted(again, candidates):
        rows.append(len(again))
        return highest_scores(again, candidates)

    monkeypatch.setattr(rounded_search, "highest_scores", counted)
    values, found = RoundedSearch(destinations).search(sources)
    assert rows == [17]
    expected = highest_scores(sources, destinations)
    assert values.equal(expected[0])
    assert found.equal(expected[1])


@pytest.mark.parametrize("rounding", [False, True])
@pytest.mark.parametrize("reach", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_search_is_no_part_of_a_gradient(monkeypatch, rounding, reach, dtype):
    monkeypatch.setattr(nearest_destination, "rounding_pays", lambda destinations: rounding)
    tokens = torch.randn(2, 64, 8, dtype=dtype, requires_grad=True)
    found = match(tokens, (8, 8), 0.5, reach=reach)
    merged = found.merge(tokens)
    merged.sum().backward()
    assert tokens.grad is not None
    sizes = torch.stack([index.bincount()[index] for index in found.index])
    torch.testing.assert_close(tokens.grad, (1 / sizes.to(dtype))[..., None].expand_as(tokens))
