"""What the hooks make of the ways in which others call, wrap and replace attentions and blocks."""

from __future__ import annotations

import dataclasses
import types
from contextlib import contextmanager

import pytest
import tomesd
import torch
import torch.nn.functional as F

import todo_core.reduction
from tests.models import (
    LatentDiffusion,
    assert_close,
    assert_differs,
    hook_count,
    interpolated,
    keys_of,
    lengths,
    noise,
    snapshot,
    use_plain_attention,
)
from todo_core import Session, patched
from todo_core.hosts import detect
from todo_core.patching.hooks.module_calls import Forward

SIZE = (16, 8)
TOKENS = 16 * 8
LATENT = noise(2, 4, *SIZE)
FIXED = {"factor_1": 2, "phase": "fixed"}
TARGETS = ["keys/values", "all"]
METHODS = ["downsample", "similarity", "cluster"]


def replace_self_attention(monkeypatch, small, attend):
    """Replace ``_forward`` on each block of level 1, as ControlNet does; ``attend(block, x_norm)`` makes its output."""

    def _forward(self, x, context=None):
        x = attend(self, self.norm1(x)) + x
        x = self.attn2(self.norm2(x), context=context) + x
        return self.ff(self.norm3(x)) + x

    for block in small.blocks(1):
        # not setattr: its undo would leave the method on the shared model's instance
        monkeypatch.setitem(vars(block), "_forward", types.MethodType(_forward, block))


def assert_left_whole(small, reason, **settings):
    """The patch changes no bit and says why, once for several calls."""
    plain = small(LATENT)
    with patched(small.unet, **(FIXED | settings)) as session:
        assert torch.equal(small(LATENT), plain)
        small(LATENT, 400.0)
    assert len(session.record.notes) == 1
    assert reason in session.record.notes[0]
    assert session.record.levels == {}


# contexts -----------------------------------------------------------------------------------------------------------


def row_by_row(*contexts):
    """Self-attention with each row in a call of its own."""
    return lambda block, x: torch.cat([block.attn1(row, *(of(row) for of in contexts)) for row in x.split(1)])


WAYS = {
    "context": lambda block, x: block.attn1(x, x),
    "context by keyword": lambda block, x: block.attn1(x, context=x),
    "keywords": lambda block, x: block.attn1(x=x, context=None),
    "input alone": lambda block, x: block.attn1(x),
    "row by row": row_by_row(),
    # with the input as its own bank, twice the same keys stand in the sum: the result is that without a bank
    "one bank": lambda block, x: block.attn1(x, torch.cat([x] * 2, 1)),
    "two banks": lambda block, x: block.attn1(x, torch.cat([x] * 3, 1)),
    "row by row with a bank": row_by_row(lambda row: torch.cat([row] * 2, 1)),
}
KEYS = [FIXED, {"method": "similarity", "random": True}, {"method": "cluster"}]


@pytest.mark.parametrize(
    ("way", "settings"),
    [(way, settings) for way in WAYS for settings in KEYS] + [(way, FIXED | {"target": "all"}) for way in [*WAYS][:4]],
)
def test_however_self_attention_is_called_it_is_reduced_alike(ldm_sd1_double, way, settings, monkeypatch):
    """Each grid by itself, with the seed of its image."""
    latent, text = noise(3, 4, *SIZE).double(), noise(3, 7, 32).double()

    def reduced():
        with patched(ldm_sd1_double.unet, **settings) as session:
            session.begin_step(0, 10, [11, 22, 33])
            made = ldm_sd1_double(latent, text=text)
        assert session.record.levels
        assert session.record.notes == []
        return made

    stock = reduced()
    replace_self_attention(monkeypatch, ldm_sd1_double, WAYS[way])
    torch.testing.assert_close(reduced(), stock, atol=1e-9, rtol=0)


def with_banks(count):
    """ControlNet's reference: the tokens of other images stand behind the image's own."""
    banks = [noise(2, TOKENS, 32, seed=seed) for seed in range(count)]
    return lambda block, x: block.attn1(x, context=torch.cat([x, *banks], dim=1))


def joined(has_context):
    """StyleAlign hands over (1, b*n, c): each image looks at the tokens of all."""

    def attend(block, x):
        shared = x.reshape(1, -1, x.shape[-1])
        return block.attn1(shared, context=shared if has_context else None).reshape(x.shape)

    return attend


@pytest.mark.parametrize(
    ("attend", "mode", "pair"),
    [
        (with_banks(1), "area", (TOKENS, 2 * 32)),
        (with_banks(2), "nearest-exact", (TOKENS, 3 * 32)),
        (joined(False), "nearest-exact", (2 * TOKENS, 2 * 32)),
        (joined(True), "nearest-exact", (2 * TOKENS, 2 * 32)),
    ],
)
def test_each_whole_grid_of_the_keys_is_reduced(ldm_sd1, attend, mode, pair, monkeypatch):
    replace_self_attention(monkeypatch, ldm_sd1, attend)
    plain = ldm_sd1(LATENT)
    with patched(ldm_sd1.unet, resample=mode, **FIXED) as session, lengths(ldm_sd1) as seen:
        ours = ldm_sd1(LATENT)
    assert keys_of(ldm_sd1, 1, seen) == {pair}
    assert session.record.notes == []
    for attention in ldm_sd1.attentions(1).values():
        use_plain_attention(monkeypatch, attention, interpolated(SIZE, (8, 4), mode))
    assert_close(ours, ldm_sd1(LATENT))
    assert_differs(ours, plain)


@pytest.mark.parametrize(
    ("tokens", "context", "mask", "why"),
    [
        ((2, 128, 32), None, "by keyword", "it has a mask"),
        ((2, 128, 32), None, "by place", "it has a mask"),
        ((2, 127, 32), None, None, "its keys are not whole grids of 128 tokens"),
        ((2, 128, 32), (2, 192, 32), None, "its keys are not whole grids of 128 tokens"),
        ((2, 128, 32), (2, 256, 33), None, "its keys are not whole grids of 128 tokens"),
        ((2, 128, 32), (256, 32), None, "its keys are not whole grids of 128 tokens"),
        ((2, 128, 32), (2, 128, 2, 32), None, "its keys are not whole grids of 128 tokens"),
        ((2, 128, 32), (1, 256, 32), None, "its keys come from another source"),
        ((2, 128, 32), (2, 128, 32), None, "its keys come from another source"),
        ((1, 256, 32), (1, 256, 32), None, "its keys come from another source"),  # beside joined rows
    ],
)
def test_of_any_other_context_the_attention_gets_what_it_was_given(ldm_sd1, tokens, context, mask, why, monkeypatch):
    x, seen = noise(*tokens), []
    given = None if context is None else noise(*context)
    masks = {None: ((), {}), "by keyword": ((), {"mask": x > 0}), "by place": ((x > 0,), {})}[mask]
    for attention in ldm_sd1.attentions(1).values():
        monkeypatch.setitem(vars(attention), "forward", lambda x, context=None, mask=None: seen.append(context))
    replace_self_attention(
        monkeypatch, ldm_sd1, lambda block, own: block.attn1(x, given, *masks[0], **masks[1]) or torch.zeros_like(own)
    )
    with patched(ldm_sd1.unet, **FIXED) as session:
        ldm_sd1(LATENT)
    assert len(seen) == 3
    assert all(each is given for each in seen)
    assert session.record.notes == [f"a layer at level 1 is not reduced: {why}"]
    assert session.record.levels == {}


@pytest.mark.parametrize(
    ("attend", "reason"),
    [
        (joined(False), f"its input is not a grid of {TOKENS} tokens"),
        (row_by_row(), f"its input is not a grid of {TOKENS} tokens"),
        (lambda block, x: block.attn1(x, mask=x[..., 0] > 0), "it has a mask"),
        (lambda block, x: block.attn1(x, None, x[..., 0] > 0), "it has a mask"),
    ],
)
def test_target_all_leaves_an_attention_whole_that_sees_more_than_its_rows(ldm_sd1, attend, reason, monkeypatch):
    replace_self_attention(monkeypatch, ldm_sd1, attend)
    assert_left_whole(ldm_sd1, reason, target="all")


@pytest.mark.parametrize("target", TARGETS)
def test_a_mask_for_the_attention_of_diffusers_is_left_alone_too(diffusers_sd1, target):
    mask = noise(2, 1, TOKENS, seed=9)
    attentions = diffusers_sd1.attentions(1).values()
    add_mask = lambda _, args, kwargs: (args, {**kwargs, "attention_mask": mask})  # noqa: E731
    handles = [attention.register_forward_pre_hook(add_mask, with_kwargs=True) for attention in attentions]
    try:
        assert_left_whole(diffusers_sd1, "mask", target=target)
    finally:
        for handle in handles:
            handle.remove()


# others' patches ----------------------------------------------------------------------------------------------------


def tiled(attention):
    """HyperTile's wrapper: attention within the upper and the lower half, each for itself."""
    forward = attention.forward

    def wrapper(x, context=None, mask=None):
        tiles = x.unflatten(1, (2, -1)).flatten(0, 1)
        return forward(tiles, context, mask).unflatten(0, (-1, 2)).flatten(1, 2)

    return wrapper


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("wrap", "params"),
    [
        (tiled, {"enabled": True, "tile_size": 128, "depth": -2}),  # 4 tokens: the grid is small
        (None, {"enabled": True, "tile_size": 1024, "depth": 0}),  # a tile as large as the image
        (None, {"enabled": False}),
    ],
)
def test_attention_that_hypertile_splits_is_left_whole_and_noted(ldm_sd1, target, wrap, params, monkeypatch):
    for attention in ldm_sd1.attentions(1).values():
        monkeypatch.setattr(attention, "__webui_hypertile_params", types.SimpleNamespace(**params), raising=False)
        monkeypatch.setitem(vars(attention), "forward", wrap(attention) if wrap else attention.forward)
    if wrap:
        assert_left_whole(ldm_sd1, "HyperTile", target=target)
        return
    with patched(ldm_sd1.unet, target=target, **FIXED) as session, lengths(ldm_sd1) as seen:
        ldm_sd1(LATENT)
    assert keys_of(ldm_sd1, 1, seen) == {(TOKENS if target == "keys/values" else 32, 32)}
    assert session.record.notes == []


@contextmanager
def around_transformers(small, before, after):
    """Others change the grid inside the UNet, for the transformers of level 1 alone."""
    names = {name.split(".transformer_blocks")[0] for name in small.attentions(1)}
    handles = []
    for transformer in map(small.unet.get_submodule, names):
        handles.append(transformer.register_forward_pre_hook(lambda _, args: (before(args[0]), *args[1:])))
        handles.append(transformer.register_forward_hook(lambda _, args, output: after(output)))
    yield
    for handle in handles:
        handle.remove()


def deep_shrink(small):
    """Kohya's: the transformer sees another grid than the latent's size foretells."""
    return around_transformers(small, lambda x: F.avg_pool2d(x, 2), lambda x: F.interpolate(x, scale_factor=2))


@pytest.mark.parametrize("target", TARGETS)
def test_a_grid_that_others_shrink_inside_the_unet_is_planned_as_it_is_seen(ldm_sd1, target):
    with (
        deep_shrink(ldm_sd1),
        patched(ldm_sd1.unet, target=target, **FIXED) as session,
        lengths(ldm_sd1) as seen,
    ):
        assert ldm_sd1(LATENT).shape == LATENT.shape
    assert keys_of(ldm_sd1, 1, seen) == {(8 if target == "all" else 32, 8)}
    assert session.record.levels[1].grid.size == (8, 4)
    assert session.record.levels[1].target_grid.size == (4, 2)
    assert session.record.notes == []


def test_a_grid_turned_inside_the_unet_is_planned_anew(ldm_sd1):
    """It has as many tokens as the one that was planned."""
    turn = lambda x: x.transpose(2, 3).contiguous()  # noqa: E731
    with around_transformers(ldm_sd1, turn, turn), patched(ldm_sd1.unet, factor_1=2) as session:
        ldm_sd1(LATENT)
    assert {plan.grid.size for plan in session.record.ran_in} == {SIZE[::-1]}


def test_the_note_of_a_call_that_reduced_nothing_has_the_reason_of_its_grid(ldm_sd1):
    """Deep shrink leaves a grid at which auto does nothing."""
    host = dataclasses.replace(detect(ldm_sd1.unet), trained_side=8)
    with deep_shrink(ldm_sd1):
        session = Session(host, todo_core.Settings(factor_2=1)).attach()
        ldm_sd1(noise(1, 4, 16, 16))
    session.remove()
    assert len(session.record.notes) == 1
    assert "trained at 64 x 64" in session.record.notes[0]


@pytest.mark.parametrize("first", ["tomesd first", "tomesd second"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["ldm_sd1", "diffusers_sd1"])
def test_beside_tomesds_own_patch_there_is_an_output_and_no_error(request, name, target, first):
    small = request.getfixturevalue(name).copy()
    model = LatentDiffusion(small.unet) if name == "ldm_sd1" else small.unet
    settings = {"target": target, "mlp": True, **FIXED}

    def with_tomesd():
        tomesd.apply_patch(model, ratio=0.5, use_rand=False)
        return small(LATENT)

    alone = with_tomesd()
    if first == "tomesd first":
        with patched(small.unet, **settings) as session:
            ours = small(LATENT)
    else:
        tomesd.remove_patch(model)
        with patched(small.unet, **settings) as session:
            ours = with_tomesd()
    assert "is not reduced" in session.record.notes[0]
    assert ours.isfinite().all()
    if target == "keys/values":
        assert torch.equal(ours, alone)
    assert torch.equal(small(LATENT), alone)


# errors -------------------------------------------------------------------------------------------------------------


class Broken(Exception):
    """Raised inside a hook."""


def boom(*_, **__):
    raise Broken


@pytest.mark.parametrize(
    ("target", "method", "where", "function"),
    [
        ("keys/values", "downsample", todo_core.reduction, "stride"),
        ("all", "downsample", todo_core.reduction, "stride"),
        ("keys/values", "similarity", todo_core.reduction, "match"),
        ("all", "similarity", todo_core.reduction, "random_draws"),
        ("keys/values", "cluster", todo_core.reduction, "cluster"),
        ("keys/values", "downsample", todo_core.patching.session, "make_plan"),
    ],
)
def test_an_error_of_ours_is_raised_and_nothing_stays_or_with_on_error_the_call_runs_without_reduction(
    sd1, target, method, where, function, monkeypatch
):
    plain, before, errors = sd1(LATENT), snapshot(sd1.unet), []
    settings = todo_core.Settings(target=target, method=method, crossattn=True, mlp=True, factor_1=2)
    session = Session(detect(sd1.unet), settings, on_error=errors.append).attach()
    count = hook_count(sd1.unet)
    try:
        monkeypatch.setattr(where, function, boom)
        assert torch.equal(sd1(LATENT), plain)
        assert [type(error) for error in errors] == [Broken]
        sd1(LATENT)
        assert len(errors) == 2, "the next call tries again"
        monkeypatch.undo()
        assert_differs(sd1(LATENT), plain)
        with pytest.raises(RuntimeError):  # the model's own
            sd1(LATENT, text=noise(2, 7, 33))
        assert len(errors) == 2
        assert session.attach().is_attached
        assert hook_count(sd1.unet) == count
    finally:
        session.remove()
        session.remove()
    assert torch.equal(sd1(LATENT), plain)
    monkeypatch.setattr(where, function, boom)
    with pytest.raises(Broken), patched(sd1.unet, settings):
        sd1(LATENT)
    assert snapshot(sd1.unet) == before


# what only one line of the hooks sees to ---------------------------------------------------------------------------


def key_tokens(small, call):
    """What the first block of level 1 makes its keys of, in one call."""
    seen = []
    handle = small.blocks(1)[0].attn1.to_k.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    try:
        call()
    finally:
        handle.remove()
    return seen[0]


def test_grids_joined_to_one_row_draw_from_the_seeds_of_their_images(ldm_sd1, monkeypatch):
    """As StyleAlign joins them."""

    def tokens():
        with patched(ldm_sd1.unet, method="similarity", random=True) as session:
            session.begin_step(0, 10, [11, 22])
            return key_tokens(ldm_sd1, lambda: ldm_sd1(LATENT))

    apart = tokens()
    shared = lambda block, x: block.attn1(x.reshape(1, -1, x.shape[-1])).reshape(x.shape)  # noqa: E731
    replace_self_attention(monkeypatch, ldm_sd1, shared)
    assert torch.equal(tokens().reshape(apart.shape), apart)


def test_a_module_of_a_block_that_does_not_run_is_left_alone(ldm_sd1):
    """Others may call it between two blocks of the UNet's call."""
    block, seen = ldm_sd1.blocks(1)[0], []

    def call_alone(*_):
        with lengths(ldm_sd1) as found:
            block.attn1(noise(2, TOKENS, 32))
        seen.extend(found)

    with patched(ldm_sd1.unet, target="all", factor_1=2):
        handle = block.register_forward_hook(call_alone)
        ldm_sd1(LATENT)
        handle.remove()
    assert [pair[1:] for pair in seen] == [(TOKENS, TOKENS)]


def test_a_block_without_cross_attention_is_reduced_at_what_it_has(diffusers_sd1):
    small = diffusers_sd1.copy()
    for block in small.blocks(1):
        block.attn2 = None
    settings = {"target": "all", "crossattn": True, "mlp": True}
    with patched(small.unet, **settings, **FIXED) as session, lengths(small) as seen:
        small(LATENT)
    assert keys_of(small, 1, seen) == {(32, 32)}
    assert session.record.notes == []


# what is noted ------------------------------------------------------------------------------------------------------


def test_a_call_that_fails_before_its_first_block_is_not_told_to_have_reduced_nothing(ldm_sd1):
    first = ldm_sd1.unet.input_blocks[0]
    handle = first.register_forward_pre_hook(lambda *_: 1 / 0)
    with patched(ldm_sd1.unet, factor_1=2) as session:
        with pytest.raises(ZeroDivisionError):
            ldm_sd1(LATENT)
        handle.remove()
    assert session.record.notes == []


def test_conflicts_are_noted_where_only_the_method_afterwards_reduces(diffusers_sd1):
    small = diffusers_sd1.copy()
    small.unet.fuse_qkv_projections()
    settings = {"factor_1": 1, "factor_2": 1, "end": 0.5}
    with patched(small.unet, **settings) as session:
        assert session.record.notes == []
    with patched(small.unet, afterwards="cluster", **settings) as session:
        assert len(session.record.notes) == 1


def test_sessions_and_records_read_well(ldm_sd1):
    with patched(ldm_sd1.unet, factor_1=2) as session:
        assert "attached to UNetModel; level 1: 32 x 32, 1,024 tokens -> 256 by downsample" in repr(session)
        assert repr(session.record) == "<Record: nothing was reduced yet>"
        ldm_sd1(LATENT)
        session.record.note("a note")
        assert repr(session.record) == "<Record: level 1 by downsample in 1 steps; a note>"
    assert "not attached" in repr(session)
    assert "\n" not in repr(session)


def test_replicas_are_told_that_images_may_swap_their_seeds(ldm_sd1):
    for seeds, notes in (([5, 5], 0), ([5, 6], 1)):
        with patched(ldm_sd1.unet, method="similarity") as session:
            session.begin_step(0, 4, seeds)
            replica = ldm_sd1.unet._replicate_for_data_parallel()
            for name, child in ldm_sd1.unet.named_children():
                replica._modules[name] = child
            with torch.no_grad():
                replica(LATENT, torch.full((2,), 500.0), [noise(2, 7, 32)] * 2)
        assert len(session.record.notes) == notes


def test_a_forward_that_is_off_runs_the_modules_own_also_under_another_one():
    """Another extension may have put its forward over ours: that one goes on calling ours."""
    module, x, learned = torch.nn.Linear(2, 3), torch.randn(4, 2), []
    expected = module(x)
    instead = iter([None, expected + 1])
    ours = Forward(lambda *_: next(instead), lambda *call: learned.append(call), is_single=True).on(module)
    module.forward = lambda *args, below=module.forward: below(*args)
    assert torch.equal(module(x), expected)
    assert torch.equal(module(x), expected + 1)
    ours.remove()
    assert torch.equal(module(x), expected)
    assert len(learned) == 1
    ((args, kwargs, output),) = learned
    assert args == (x,)
    assert kwargs == {}
    assert torch.equal(output, expected)
