"""``todo_core.tomesd`` beside the real tomesd 0.1.3."""

from __future__ import annotations

import functools
import inspect

import pytest
import tomesd
import torch

from tests.models import SMALL, LatentDiffusion, Small, diffusers_sdxl, hook_count, ldm_sdxl, lengths, noise
from todo_core import SettingsError, remove_patch
from todo_core import tomesd as ours

PARTS = {
    "attn": {},
    "crossattn": {"merge_attn": False, "merge_crossattn": True},
    "mlp": {"merge_attn": False, "merge_mlp": True},
    "all three": {"merge_crossattn": True, "merge_mlp": True},
}
LATENT = noise(2, 4, 16, 16)


@functools.cache
def theirs(name: str) -> Small:
    """A copy for tomesd, which leaves attributes behind."""
    return SMALL[name]().copy()


def by_tomesd(name: str, latent=LATENT, **arguments):
    small = theirs(name)
    model = LatentDiffusion(small.unet) if name.startswith("ldm") else small.unet
    tomesd.apply_patch(model, **arguments)
    try:
        return small(latent)
    finally:
        tomesd.remove_patch(model)


def by_us(small: Small, latent=LATENT, **arguments):
    ours.apply_patch(small.unet, **arguments)
    try:
        return small(latent)
    finally:
        ours.remove_patch(small.unet)


@functools.cache
def baseline(name: str) -> torch.Tensor:
    return SMALL[name]()(LATENT)


def name_of(small: Small) -> str:
    return next(name for name, build in SMALL.items() if build() is small)


@pytest.mark.parametrize("max_downsample", [1, 2])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.75])
def test_the_result_is_tomesds(sd1, ratio, part, max_downsample):
    arguments = {"ratio": ratio, "max_downsample": max_downsample, "use_rand": False} | PARTS[part]
    expected = by_tomesd(name_of(sd1), **arguments)
    torch.testing.assert_close(by_us(sd1, **arguments), expected, atol=1e-5, rtol=0)
    assert (expected - baseline(name_of(sd1))).abs().max() > 0.01, "a reduction this weak proves nothing"


@pytest.mark.parametrize("size", [(8, 24), (24, 16)])
@pytest.mark.parametrize("cell", [{"sx": 2, "sy": 4}, {"sx": 4, "sy": 2}])
def test_the_result_is_tomesds_on_oblong_grids_and_cells(sd1, size, cell):
    latent = noise(2, 4, *size)
    arguments = {"ratio": 0.6, "use_rand": False, **cell}
    expected = by_tomesd(name_of(sd1), latent, **arguments)
    torch.testing.assert_close(by_us(sd1, latent, **arguments), expected, atol=1e-5, rtol=0)


def test_the_result_is_tomesds_at_the_second_level_of_sdxl(sdxl):
    arguments = {"ratio": 0.5, "max_downsample": 2, "use_rand": False}
    expected = by_tomesd(name_of(sdxl), **arguments)
    torch.testing.assert_close(by_us(sdxl, **arguments), expected, atol=1e-5, rtol=0)
    assert (expected - sdxl(LATENT)).abs().max() > 0.01


def test_the_two_levels_of_max_downsample_differ(sd1):
    one, two = (by_us(sd1, max_downsample=n, use_rand=False) for n in (1, 2))
    assert (one - two).abs().max() > 0.01


def test_the_signatures_are_tomesds():
    for name in ("apply_patch", "remove_patch"):
        parameters = inspect.signature(getattr(ours, name)).parameters.values()
        expected = inspect.signature(getattr(tomesd, name)).parameters.values()
        assert [(p.name, p.default, p.kind) for p in parameters] == [(p.name, p.default, p.kind) for p in expected]


def test_both_functions_return_the_model_they_were_given(ldm_sd1):
    model = LatentDiffusion(ldm_sd1.unet)
    assert ours.apply_patch(model) is model
    assert hook_count(model) > 0
    assert ours.remove_patch(model) is model
    assert hook_count(model) == 0


@pytest.mark.parametrize("build", [ldm_sdxl, diffusers_sdxl])
def test_max_downsample_1_does_nothing_on_an_sdxl_layout(build):
    small = build()
    plain = small(LATENT)
    assert torch.equal(by_tomesd(build.__name__, use_rand=False), plain)
    assert torch.equal(by_us(small, use_rand=False), plain)
    assert torch.equal(by_us(small, use_rand=True, merge_mlp=True), plain)


@pytest.mark.parametrize("size", [(10, 14), (9, 15)])
def test_odd_grids_keep_the_share_of_tokens_that_was_asked_for(diffusers_sd1, size):
    ours.apply_patch(diffusers_sd1.unet, ratio=0.5)
    with lengths(diffusers_sd1) as seen:
        diffusers_sd1(noise(2, 4, *size))
    tokens = size[0] * size[1]
    kept = tokens - tokens // 2
    assert [s[1:] for s in seen if s[0] in diffusers_sd1.attentions(1)] == [(kept, kept)] * 3


def test_random_destinations_repeat_and_differ_from_the_fixed_ones(sd1):
    first, second, fixed = (by_us(sd1, use_rand=use_rand) for use_rand in (True, True, False))
    assert torch.equal(first, second)
    assert (first - fixed).abs().max() > 0.01


@pytest.mark.parametrize("max_downsample", [0, 3, 4, 8])
def test_deeper_levels_are_refused_by_name(ldm_sd1, max_downsample):
    with pytest.raises(SettingsError, match="max_downsample"):
        ours.apply_patch(ldm_sd1.unet, max_downsample=max_downsample)
    assert hook_count(ldm_sd1.unet) == 0


def test_a_ratio_beyond_the_cell_is_refused(ldm_sd1):
    with pytest.raises(SettingsError, match="ratio"):
        ours.apply_patch(ldm_sd1.unet, ratio=0.8)
    assert hook_count(ldm_sd1.unet) == 0


def test_the_patch_is_the_same_one_as_the_librarys(ldm_sd1):
    ours.apply_patch(ldm_sd1.unet)
    remove_patch(ldm_sd1.unet)
    assert hook_count(ldm_sd1.unet) == 0
