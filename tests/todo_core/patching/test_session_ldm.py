"""The session on UNets of ldm and diffusers: what holds for both, and what is of ldm alone."""

import gc
import math
import weakref
from functools import partial
from itertools import chain, pairwise

import pytest
import torch
import torch.nn.functional as F
from ldm.modules.diffusionmodules.openaimodel import UNetModel

from tests.models import assert_close, assert_differs, keys_of, ldm_unet, lengths, noise, snapshot, words
from tests.naive import interpolated
from todo_core import Settings, SettingsError, apply_patch, patched, remove_patch
from todo_core.patching.steps import rows_of

LATENT = noise(2, 4, 16, 8)
METHODS = ["downsample", "similarity", "cluster"]
TARGETS = ["keys/values", "all"]
BOTH_LEVELS = {"factor_1": 2, "factor_2": 2, "ratio_1": 0.5, "ratio_2": 0.5}


def self_attention(attention, shorten):
    """A forward that applies ``shorten`` to the projected keys and values."""

    def forward(x, **_):
        q, k, v = attention.to_q(x), shorten(attention.to_k(x)), shorten(attention.to_v(x))
        q, k, v = (t.unflatten(2, (attention.heads, -1)).transpose(1, 2) for t in (q, k, v))
        return attention.to_out[0](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    return forward


@pytest.mark.parametrize(
    ("any_model", "mode", "factors"),
    [
        ("ldm_sd1", "nearest", (2, 3)),
        ("ldm_sd2", "nearest-exact", (3, 2)),
        ("ldm_sdxl", "bilinear", (2, 2)),
        ("diffusers_sd1", "bicubic", (3, 3)),
        ("diffusers_sd2", "area", (2, 3)),
        ("diffusers_sdxl", "nearest-exact", (2, 3)),
    ],
    indirect=["any_model"],
)
def test_downsample_equals_resampling_the_projected_keys_and_values(any_model, mode, factors, monkeypatch):
    """At both levels of every layout; diffusers takes odd sizes."""
    size = (16, 24) if isinstance(any_model.unet, UNetModel) else (17, 23)
    latent, settings = noise(2, 4, *size), dict(zip(("factor_1", "factor_2"), factors, strict=True))
    plain = any_model(latent)
    with patched(any_model.unet, resample=mode, phase="fixed", **settings), lengths(any_model) as seen:
        ours = any_model(latent)
    for level, factor in enumerate(factors, 1):
        grid = [-(-side // 2 ** (any_model.halvings + level - 1)) for side in size]
        target = [side // factor for side in grid]
        assert keys_of(any_model, level, seen) == {(math.prod(grid), math.prod(target))}
        for attention in any_model.attentions(level).values():
            shorten = partial(interpolated, size=grid, target=target, mode=mode)
            monkeypatch.setitem(vars(attention), "forward", self_attention(attention, shorten))
    assert_close(ours, any_model(latent))
    assert_differs(ours, plain)


def test_every_token_serves_as_a_key_of_every_block_within_four_steps(ldm_sd1, monkeypatch):
    """All rows keep the same tokens, and neighbouring blocks others."""
    kept = []
    for block in ldm_sd1.blocks(1):  # tokens that tell their number, and are not attended to
        monkeypatch.setitem(vars(block.norm1), "forward", lambda x: torch.arange(128.0)[:, None].expand_as(x))
        monkeypatch.setitem(vars(block.attn1), "forward", lambda x, context=None: kept.append(context) or 0 * x)
    with patched(ldm_sd1.unet, factor_1=2, start=0) as session:
        for step in range(4):
            session.begin_step(step, 10, rows_of([1, 2]))
            ldm_sd1(LATENT)
    assert all(torch.equal(*rows) for rows in kept)
    steps = [[rows[0, :, 0].tolist() for rows in kept[i : i + 3]] for i in range(0, 12, 3)]
    assert all(one != other for blocks in steps for one, other in pairwise(blocks))
    assert steps[0][1:] == steps[1][:2], "a block further is a step further"
    for block in zip(*steps, strict=True):
        assert sorted(chain.from_iterable(block)) == list(range(16 * 8))


@pytest.mark.parametrize("positional", [3, 2, 1, 0])
@pytest.mark.parametrize("order", [1, -1], ids=["keywords in order", "the other way round"])
def test_however_the_call_is_written_it_is_reduced(sd1, positional, order):
    is_ldm = isinstance(sd1.unet, UNetModel)
    names = ("x", "timesteps", "context") if is_ldm else ("sample", "timestep", "encoder_hidden_states")
    values = LATENT, torch.full((2,), 500.0), [words(2)] * 2 if is_ldm else words(2)
    keywords = [*zip(names, values, strict=True)][positional:]
    with patched(sd1.unet, factor_1=2), lengths(sd1) as seen, torch.no_grad():
        sd1.unet(*values[:positional], **dict(keywords[::order]))
    assert keys_of(sd1, 1, seen) == {(16 * 8, 8 * 4)}


def test_a_second_patch_takes_the_place_of_the_first_and_is_removed_once(sd1):
    """The hooks of others stay. A patch changes no class."""
    small = sd1.copy()
    small.unet.register_forward_hook(lambda *_: None)
    small.blocks(1)[0].attn1.register_forward_pre_hook(lambda *_: None)
    plain, before, weights = small(LATENT), snapshot(small.unet), [*small.unet.state_dict()]
    apply_patch(small.unet, factor_1=4, target="all", method="cluster")
    session = apply_patch(small.unet, factor_1=2, interval=1)
    assert [kind for kind, *_ in snapshot(small.unet).values()] == [kind for kind, *_ in before.values()]
    assert not any("forward" in vars(module) for module in small.unet.modules()), "whatever forward a host puts on runs"
    assert [*small.unet.state_dict()] == weights
    with pytest.raises(SettingsError):
        apply_patch(small.unet, Settings(factor_1=4), start=0.9, end=0.5)
    with lengths(small) as seen:
        small(LATENT)
    assert keys_of(small, 1, seen) == {(16 * 8, 8 * 4)}
    for _ in range(2):
        assert remove_patch(small.unet) is small.unet
        assert snapshot(small.unet) == before
        session.remove()
    assert torch.equal(small(LATENT), plain)


def test_a_model_that_is_dropped_with_its_patch_on_is_freed():
    unet = ldm_unet()
    apply_patch(unet)
    alive = weakref.ref(unet)
    del unet
    gc.collect()
    assert alive() is None


# randomness and batches ---------------------------------------------------------------------------------------------

SEEDS = [11, 22, 33]
# in double precision: where two tokens are equally alike, rounding would choose which of them is merged
IMAGES, COND, UNCOND = noise(3, 4, 16, 8, seed=5).double(), words(3, seed=6).double(), words(3, seed=7).double()
RANDOM = {"random": True, "phase": "rotate", **BOTH_LEVELS}
SIMILARITY = {"method": "similarity", **RANDOM}


def joint_step(small, session, images=(0, 1, 2)):
    """One step of these images with their cond and uncond rows in one call, in the order of the WebUI."""
    rows = list(images)
    session.begin_step(4, 10, rows_of([SEEDS[i] for i in rows] * 2))
    return small(torch.cat([IMAGES[rows]] * 2), text=torch.cat([COND[rows], UNCOND[rows]]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("sd1_double", "method"),
    [*(("ldm_sd1", method) for method in METHODS), ("diffusers_sd1", "similarity")],
    indirect=["sd1_double"],
)
def test_an_image_does_not_depend_on_its_batch_its_parts_or_what_ran_before(sd1_double, method, target):
    """Nothing is taken from torch's generator."""
    session = apply_patch(sd1_double.unet, method=method, target=target, **RANDOM)
    before = torch.get_rng_state()
    batch = joint_step(sd1_double, session)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    for i in range(3):
        assert_close(batch[[i, i + 3]], joint_step(sd1_double, session, [i]))
    session.begin_step(5, 10, rows_of([1, 2]))
    sd1_double(noise(2, 4, 16, 8).double(), text=COND[:2])
    images, text = torch.cat([IMAGES] * 2), torch.cat([COND, UNCOND])
    session.begin_step(4, 10, rows_of(SEEDS * 2))
    parts = zip(images.split((2, 1, 3)), text.split((2, 1, 3)), strict=True)
    assert_close(torch.cat([sd1_double(some, text=theirs) for some, theirs in parts]), batch)


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_the_seed_is_that_of_the_settings_else_that_of_the_host_else_0(ldm_sd1, seed):
    with patched(ldm_sd1.unet, seed=seed, start=0, **SIMILARITY) as session:
        bare = ldm_sd1(LATENT)
        session.begin_step(0, 10, rows_of([11, 22]))
        assert torch.equal(ldm_sd1(LATENT), bare) == (seed is not None)
    with patched(ldm_sd1.unet, start=0, **SIMILARITY) as session:
        session.begin_step(0, 10, rows_of([seed or 0] * 2))
        assert torch.equal(ldm_sd1(LATENT), bare)
