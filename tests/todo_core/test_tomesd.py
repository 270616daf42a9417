"""``todo_core.tomesd`` beside the real tomesd 0.1.3."""

import functools
import inspect

import pytest
import tomesd
import torch

from tests.models import SMALL, LatentDiffusion, hook_count, noise
from todo_core import SettingsError, remove_patch
from todo_core import tomesd as ours

ONLY_CROSS, ONLY_MLP = ({"merge_attn": False, part: True} for part in ("merge_crossattn", "merge_mlp"))
LATENT = noise(2, 4, 16, 16)


@functools.cache
def theirs(name):
    """A copy for tomesd, which leaves attributes behind."""
    return SMALL[name]().copy()


def by_tomesd(small, latent=LATENT, **arguments):
    name = next(name for name, build in SMALL.items() if build() is small)
    small = theirs(name)
    model = LatentDiffusion(small.unet) if name.startswith("ldm") else small.unet
    tomesd.apply_patch(model, **arguments)
    try:
        return small(latent)
    finally:
        tomesd.remove_patch(model)


def by_us(small, latent=LATENT, **arguments):
    ours.apply_patch(small.unet, **arguments)
    try:
        return small(latent)
    finally:
        ours.remove_patch(small.unet)


@pytest.mark.parametrize("max_downsample", [1, 2])
@pytest.mark.parametrize(
    ("part", "ratio", "size", "cell"),
    [
        ({}, 0.25, (16, 16), {}),
        (ONLY_CROSS, 0.75, (24, 16), {}),
        (ONLY_MLP, 0.6, (8, 24), {"sx": 2, "sy": 4}),
        ({"merge_crossattn": True, "merge_mlp": True}, 0.6, (24, 16), {"sx": 4}),
    ],
    ids=["attn", "crossattn", "mlp", "all three"],
)
def test_the_result_is_tomesds(sd1, ratio, size, cell, part, max_downsample):
    latent = noise(2, 4, *size)
    arguments = {"ratio": ratio, "max_downsample": max_downsample, "use_rand": False} | part | cell
    expected = by_tomesd(sd1, latent, **arguments)
    torch.testing.assert_close(by_us(sd1, latent, **arguments), expected, atol=1e-5, rtol=0)
    assert (expected - sd1(latent)).abs().max() > 0.01, "a reduction this weak proves nothing"


def test_an_sdxl_layout_is_merged_at_its_second_level_alone(sdxl):
    arguments, plain = {"ratio": 0.5, "max_downsample": 2, "use_rand": False}, sdxl(LATENT)
    expected = by_tomesd(sdxl, **arguments)
    torch.testing.assert_close(by_us(sdxl, **arguments), expected, atol=1e-5, rtol=0)
    assert (expected - plain).abs().max() > 0.01
    assert torch.equal(by_tomesd(sdxl, use_rand=False), plain)
    assert torch.equal(by_us(sdxl, use_rand=False), plain)
    assert torch.equal(by_us(sdxl, use_rand=True, merge_mlp=True), plain)


def test_the_signatures_are_tomesds():
    for name in ("apply_patch", "remove_patch"):
        parameters = inspect.signature(getattr(ours, name)).parameters.values()
        expected = inspect.signature(getattr(tomesd, name)).parameters.values()
        assert [(p.name, p.default, p.kind) for p in parameters] == [(p.name, p.default, p.kind) for p in expected]


def test_both_functions_return_the_model_they_were_given_and_the_librarys_removes_the_patch(ldm_sd1):
    model = LatentDiffusion(ldm_sd1.unet)
    for remove in (ours.remove_patch, remove_patch):
        assert ours.apply_patch(model) is model
        assert hook_count(model) > 0
        assert remove(model) is model
        assert hook_count(model) == 0


@pytest.mark.parametrize("values", [*({"max_downsample": n} for n in (0, 3, 4, 8)), {"ratio": 0.8}])
def test_deeper_levels_and_a_ratio_beyond_the_cell_are_refused_by_name(ldm_sd1, values):
    with pytest.raises(SettingsError, match=next(iter(values))):
        ours.apply_patch(ldm_sd1.unet, **values)
    assert hook_count(ldm_sd1.unet) == 0
