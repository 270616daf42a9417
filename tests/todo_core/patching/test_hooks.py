"""What the hooks make of the ways in which others call, wrap and replace attentions and blocks."""

from __future__ import annotations

import dataclasses
import types

import ldm.modules.attention
import pytest
import tomesd
import torch
import torch.nn.functional as F

import todo_core.reduction
from tests.models import (
    LatentDiffusion,
    hook_count,
    interpolated,
    keys_of,
    lengths,
    noise,
    snapshot,
    use_plain_attention,
)
from todo_core import Session, patched
from todo_core.hosts import Site, detect
from todo_core.patching.hooks.module_calls import Forward
from todo_core.patching.hooks.module_hooks import ModuleHooks
from todo_core.patching.hooks.running_calls import RunningCalls
from todo_core.patching.record import Record

SIZE = (16, 8)
TOKENS = 16 * 8
LATENT = noise(2, 4, *SIZE)
HALVED = interpolated(SIZE, (8, 4), "nearest-exact")
FIXED = {"factor_1": 2, "phase": "fixed"}
TARGETS = ["keys/values", "all"]


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def assert_differs(actual, expected):
    assert (actual - expected).abs().max() > 0.01


def replace_self_attention(monkeypatch, small, attend):
    """Replace ``_forward`` on each block of level 1, as ControlNet does; ``attend(block, x_norm)`` makes its output."""

    def _forward(self, x, context=None):
        x = attend(self, self.norm1(x)) + x
        x = self.attn2(self.norm2(x), context=context) + x
        return self.ff(self.norm3(x)) + x

    for block in small.blocks(1):
        # not setattr: its undo would leave the method on the shared model's instance
        monkeypatch.setitem(vars(block), "_forward", types.MethodType(_forward, block))


def use_naive(monkeypatch, small, shorten=HALVED):
    for attention in small.attentions(1).values():
        use_plain_attention(monkeypatch, attention, shorten)


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


@pytest.mark.parametrize("target", TARGETS)
def test_a_context_that_is_the_input_itself_is_self_attention(ldm_sd1, target, monkeypatch):
    with patched(ldm_sd1.unet, target=target, **FIXED):
        stock = ldm_sd1(LATENT)
    replace_self_attention(monkeypatch, ldm_sd1, lambda block, x: block.attn1(x, context=x))
    with patched(ldm_sd1.unet, target=target, **FIXED) as session, lengths(ldm_sd1) as seen:
        assert torch.equal(ldm_sd1(LATENT), stock)
    assert keys_of(ldm_sd1, 1, seen) == {(32 if target == "all" else TOKENS, 32)}
    assert session.record.notes == []


@pytest.mark.parametrize("call", ["positional context", "keywords", "input alone"])
@pytest.mark.parametrize("target", TARGETS)
def test_however_attention_is_called_it_is_reduced(ldm_sd1, target, call, monkeypatch):
    with patched(ldm_sd1.unet, target=target, **FIXED):
        stock = ldm_sd1(LATENT)

    def attend(block, x):
        if call == "positional context":
            return block.attn1(x, x)
        return block.attn1(x=x, context=None) if call == "keywords" else block.attn1(x)

    replace_self_attention(monkeypatch, ldm_sd1, attend)
    with patched(ldm_sd1.unet, target=target, **FIXED):
        assert torch.equal(ldm_sd1(LATENT), stock)


@pytest.mark.parametrize("banks", [1, 2])
@pytest.mark.parametrize("mode", ["nearest-exact", "area"])
def test_each_whole_grid_of_a_reference_bank_is_reduced(ldm_sd1, banks, mode, monkeypatch):
    def attend(block, x):
        bank = [noise(*x.shape, seed=seed) for seed in range(banks)]
        return block.attn1(x, context=torch.cat([x, *bank], dim=1))

    replace_self_attention(monkeypatch, ldm_sd1, attend)
    plain = ldm_sd1(LATENT)
    with patched(ldm_sd1.unet, resample=mode, **FIXED) as session, lengths(ldm_sd1) as seen:
        ours = ldm_sd1(LATENT)
    assert keys_of(ldm_sd1, 1, seen) == {(TOKENS, 32 * (1 + banks))}
    assert session.record.notes == []
    use_naive(monkeypatch, ldm_sd1, interpolated(SIZE, (8, 4), mode))
    assert_close(ours, ldm_sd1(LATENT))
    assert_differs(ours, plain)


@pytest.mark.parametrize("method", ["similarity", "cluster"])
def test_the_other_methods_reduce_each_grid_of_a_bank_by_itself(ldm_sd1, method, monkeypatch):
    """With the input as its own bank, twice the same keys stand in the sum: the result is that without a bank."""
    settings = {"method": method, "ratio_1": 0.5}
    with patched(ldm_sd1.unet, **settings):
        without = ldm_sd1(LATENT)
    replace_self_attention(monkeypatch, ldm_sd1, lambda block, x: block.attn1(x, context=torch.cat([x, x], dim=1)))
    with patched(ldm_sd1.unet, **settings), lengths(ldm_sd1) as seen:
        assert_close(ldm_sd1(LATENT), without)
    assert keys_of(ldm_sd1, 1, seen) == {(TOKENS, 2 * TOKENS // 2)}


@pytest.mark.parametrize("banks", [1, 2])
def test_each_grid_of_a_bank_draws_from_the_seed_of_the_image_it_stands_by(ldm_sd1_double, banks, monkeypatch):
    latent, text = LATENT.double(), noise(2, 7, 32).double()

    def reduced():
        with patched(ldm_sd1_double.unet, method="similarity", random=True, ratio_1=0.5) as session:
            session.begin_step(0, 10, [11, 22])
            return ldm_sd1_double(latent, text=text)

    without = reduced()
    replace_self_attention(
        monkeypatch, ldm_sd1_double, lambda block, x: block.attn1(x, torch.cat([x] * (1 + banks), 1))
    )
    assert_close(reduced(), without)


@pytest.mark.parametrize("context", ["None", "itself"])
def test_images_that_share_their_attention_are_reduced_grid_by_grid(ldm_sd1, context, monkeypatch):
    """StyleAlign hands over (1, b*n, c): each image looks at the tokens of all."""

    def attend(block, x):
        shared = x.reshape(1, -1, x.shape[-1])
        return block.attn1(shared, context=shared if context == "itself" else None).reshape(x.shape)

    replace_self_attention(monkeypatch, ldm_sd1, attend)
    plain = ldm_sd1(LATENT)
    with patched(ldm_sd1.unet, **FIXED) as session, lengths(ldm_sd1) as seen:
        ours = ldm_sd1(LATENT)
    assert keys_of(ldm_sd1, 1, seen) == {(2 * TOKENS, 2 * 32)}
    assert session.record.notes == []
    use_naive(monkeypatch, ldm_sd1)
    assert_close(ours, ldm_sd1(LATENT))
    assert_differs(ours, plain)


@pytest.mark.parametrize("method", ["downsample", "similarity", "cluster"])
def test_shared_attention_under_target_all_gives_an_output(ldm_sd1, method, monkeypatch):
    def attend(block, x):
        return block.attn1(x.reshape(1, -1, x.shape[-1])).reshape(x.shape)

    replace_self_attention(monkeypatch, ldm_sd1, attend)
    plain = ldm_sd1(LATENT)
    with patched(ldm_sd1.unet, method=method, target="all", **FIXED) as session:
        assert torch.equal(ldm_sd1(LATENT), plain)
    assert len(session.record.notes) == 1


FOREIGN = {
    "a part of the input": lambda x: x[:, :-3],
    "as many tokens of another image": lambda x: x.flip(0),
    "a copy": lambda x: x.clone(),
    "a grid and a half": lambda x: torch.cat([x, x[:, : TOKENS // 2]], dim=1),
    "one row for all": lambda x: x[:1].expand(2, -1, -1).contiguous(),
}


@pytest.mark.parametrize("context", FOREIGN)
def test_any_other_context_is_left_alone_and_noted_once(ldm_sd1, context, monkeypatch):
    replace_self_attention(monkeypatch, ldm_sd1, lambda block, x: block.attn1(x, context=FOREIGN[context](x)))
    assert_left_whole(ldm_sd1, "level 1 is not reduced: its keys")


def mask_of(x):
    return noise(*x.shape[:2], seed=9) > 0


MASKED = {
    "by keyword": lambda block, x: block.attn1(x, mask=mask_of(x)),
    "by place": lambda block, x: block.attn1(x, None, mask_of(x)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", MASKED)
def test_masked_attention_is_left_alone(ldm_sd1, mask, target, monkeypatch):
    replace_self_attention(monkeypatch, ldm_sd1, MASKED[mask])
    masked = ldm_sd1(LATENT)
    assert_left_whole(ldm_sd1, "mask", target=target)
    replace_self_attention(monkeypatch, ldm_sd1, lambda block, x: block.attn1(x))
    assert_differs(masked, ldm_sd1(LATENT))


@pytest.mark.parametrize("target", TARGETS)
def test_a_mask_for_the_attention_of_diffusers_is_left_alone_too(diffusers_sd1, target):
    mask = noise(2, 1, TOKENS, seed=9)

    def add_mask(module, args, kwargs):
        return args, {**kwargs, "attention_mask": mask}

    unmasked = diffusers_sd1(LATENT)
    attentions = diffusers_sd1.attentions(1).values()
    handles = [attention.register_forward_pre_hook(add_mask, with_kwargs=True) for attention in attentions]
    try:
        assert_differs(diffusers_sd1(LATENT), unmasked)
        assert_left_whole(diffusers_sd1, "mask", target=target)
    finally:
        for handle in handles:
            handle.remove()


def test_cross_attention_is_never_reduced_by_keys_and_values(sd1):
    name, block = next((n, b) for n, b in sd1.unet.named_modules() if n.endswith("transformer_blocks.0"))
    keys = []
    handle = block.attn2.to_k.register_forward_pre_hook(lambda _, args: keys.append(args[0].shape[1]))
    with patched(sd1.unet, **FIXED):
        sd1(LATENT)
    handle.remove()
    assert keys == [7]


@pytest.mark.parametrize("part", ["attn1", "attn2", "ff"])
def test_target_all_shortens_the_modules_that_are_chosen_and_no_other(sd1, part):
    chosen = {"attn": part == "attn1", "crossattn": part == "attn2", "mlp": part == "ff"}
    block = sd1.blocks(1)[0]
    seen = {}
    handles = [
        first.register_forward_pre_hook(lambda _, args, n=name: seen.update({n: args[0].shape[1]}))
        for name, first in (("attn1", block.attn1.to_q), ("attn2", block.attn2.to_q), ("ff", block.ff.net[0]))
    ]
    with patched(sd1.unet, target="all", method="similarity", ratio_1=0.25, **chosen):
        sd1(LATENT)
    for handle in handles:
        handle.remove()
    assert seen == {name: 96 if name == part else TOKENS for name in ("attn1", "attn2", "ff")}


# others' patches ----------------------------------------------------------------------------------------------------


def tiled(attention):
    """HyperTile's wrapper: attention within the upper and the lower half, each for itself."""
    forward = attention.forward

    def wrapper(x, context=None, mask=None):
        tiles = x.unflatten(1, (2, -1)).flatten(0, 1)
        return forward(tiles, context, mask).unflatten(0, (-1, 2)).flatten(1, 2)

    return wrapper


@pytest.mark.parametrize("target", TARGETS)
def test_attention_that_hypertile_splits_is_left_whole_and_noted(ldm_sd1, target, monkeypatch):
    for attention in ldm_sd1.attentions(1).values():
        params = types.SimpleNamespace(enabled=True, tile_size=128, depth=-2)  # 4 tokens: the grid is small
        monkeypatch.setattr(attention, "__webui_hypertile_params", params, raising=False)
        monkeypatch.setitem(vars(attention), "forward", tiled(attention))
    assert_left_whole(ldm_sd1, "HyperTile", target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_tiles_as_large_as_the_image_are_no_obstacle(ldm_sd1, target, monkeypatch):
    for attention in ldm_sd1.attentions(1).values():
        params = types.SimpleNamespace(enabled=True, tile_size=1024, depth=0)
        monkeypatch.setattr(attention, "__webui_hypertile_params", params, raising=False)
        monkeypatch.setitem(vars(attention), "forward", attention.forward)
    with patched(ldm_sd1.unet, target=target, **FIXED) as session, lengths(ldm_sd1) as seen:
        ldm_sd1(LATENT)
    assert keys_of(ldm_sd1, 1, seen) == {(TOKENS if target == "keys/values" else 32, 32)}
    assert session.record.notes == []


def test_once_hypertile_is_off_attention_is_reduced(ldm_sd1, monkeypatch):
    for attention in ldm_sd1.attentions(1).values():
        params = types.SimpleNamespace(enabled=False)
        monkeypatch.setattr(attention, "__webui_hypertile_params", params, raising=False)
    with patched(ldm_sd1.unet, **FIXED) as session, lengths(ldm_sd1) as seen:
        ldm_sd1(LATENT)
    assert keys_of(ldm_sd1, 1, seen) == {(TOKENS, 32)}
    assert session.record.notes == []


@pytest.mark.parametrize("target", TARGETS)
def test_a_grid_that_others_shrink_inside_the_unet_is_planned_as_it_is_seen(ldm_sd1, target):
    """Kohya's deep shrink and its like: the transformer sees another grid than the latent's size foretells."""
    names = {name.split(".transformer_blocks")[0] for name in ldm_sd1.attentions(1)}
    handles = []
    for transformer in map(ldm_sd1.unet.get_submodule, names):
        handles.append(transformer.register_forward_pre_hook(lambda _, args: (F.avg_pool2d(args[0], 2), *args[1:])))
        handles.append(transformer.register_forward_hook(lambda _, args, out: F.interpolate(out, scale_factor=2)))
    with patched(ldm_sd1.unet, target=target, **FIXED) as session, lengths(ldm_sd1) as seen:
        assert ldm_sd1(LATENT).shape == LATENT.shape
    for handle in handles:
        handle.remove()
    assert keys_of(ldm_sd1, 1, seen) == {(8 if target == "all" else 32, 8)}
    assert session.record.levels[1].grid.size == (8, 4)
    assert session.record.levels[1].target_grid.size == (4, 2)
    assert session.record.notes == []


def row_by_row(layers):
    """The layers of a part of the UNet, called for each row alone."""
    forward = layers.forward

    def each(x, emb, context=None):
        rows = [slice(i, i + 1) for i in range(len(x))]
        return torch.cat([forward(x[row], emb[row], [text[row] for text in context]) for row in rows])

    return each


@pytest.mark.parametrize("method", ["downsample", "similarity", "cluster"])
def test_a_block_that_runs_row_by_row_reduces_each_row_by_its_own_input(ldm_sd1_double, method, monkeypatch):
    latent, text = LATENT.double(), noise(2, 7, 32).double()
    settings = {"target": "all", "mlp": True, "method": method, "random": False, "ratio_1": 0.5, **FIXED}
    with patched(ldm_sd1_double.unet, **settings):
        together = ldm_sd1_double(latent, text=text)

    for name in ldm_sd1_double.attentions(1):
        layers = ldm_sd1_double.unet.get_submodule(name.rsplit(".", 4)[0])
        monkeypatch.setitem(vars(layers), "forward", row_by_row(layers))
    with patched(ldm_sd1_double.unet, **settings):
        assert_close(ldm_sd1_double(latent, text=text), together)


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


def test_an_attention_swapped_in_at_class_level_after_patching_is_run(ldm_sd1, monkeypatch):
    calls = []
    forward = ldm.modules.attention.CrossAttention.forward

    def other(self, x, context=None, mask=None):
        calls.append((x.shape[1], x.shape[1] if context is None else context.shape[1]))
        return 1.5 * forward(self, x, context, mask)

    with patched(ldm_sd1.unet, **FIXED):
        before = ldm_sd1(LATENT)
        monkeypatch.setattr(ldm.modules.attention.CrossAttention, "forward", other)
        swapped = ldm_sd1(LATENT)
    assert calls.count((TOKENS, 32)) == 3
    assert len(calls) == 2 * len(ldm_sd1.all_attentions())
    assert_differs(swapped, before)
    assert ldm.modules.attention.CrossAttention.forward is other


def test_hooks_of_others_on_the_same_attention_compose(ldm_sd1):
    seen = []
    attention = next(iter(ldm_sd1.attentions(1).values()))
    with patched(ldm_sd1.unet, **FIXED):
        handle = attention.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(kwargs["context"].shape[1]), with_kwargs=True
        )
        ldm_sd1(LATENT)
        handle.remove()
    assert seen == [32]


# errors -------------------------------------------------------------------------------------------------------------


class Broken(Exception):
    """Raised inside a hook."""


def boom(*_, **__):
    raise Broken


BREAKS = [
    ("keys/values", "downsample", "stride"),
    ("all", "downsample", "stride"),
    ("keys/values", "similarity", "match"),
    ("all", "similarity", "random_draws"),
    ("keys/values", "cluster", "cluster"),
]


@pytest.mark.parametrize(("target", "method", "function"), BREAKS)
def test_with_on_error_the_call_runs_without_reduction_bit_for_bit(sd1, target, method, function, monkeypatch):
    plain = sd1(LATENT)
    settings = todo_core.Settings(target=target, method=method, crossattn=True, mlp=True, factor_1=2)
    errors = []
    session = Session(detect(sd1.unet), settings, on_error=errors.append).attach()
    monkeypatch.setattr(todo_core.reduction, function, boom)
    try:
        assert torch.equal(sd1(LATENT), plain)
        assert [type(error) for error in errors] == [Broken]
        sd1(LATENT)
        assert len(errors) == 2, "the next call tries again"
        monkeypatch.undo()
        assert_differs(sd1(LATENT), plain)
        assert len(errors) == 2
    finally:
        session.remove()


@pytest.mark.parametrize(("target", "method", "function"), BREAKS)
def test_without_on_error_it_is_raised_and_nothing_stays(sd1, target, method, function, monkeypatch):
    plain, before = sd1(LATENT), snapshot(sd1.unet)
    monkeypatch.setattr(todo_core.reduction, function, boom)
    settings = {"target": target, "method": method, "crossattn": True, "mlp": True, "factor_1": 2}
    with pytest.raises(Broken), patched(sd1.unet, **settings):
        sd1(LATENT)
    assert snapshot(sd1.unet) == before
    assert torch.equal(sd1(LATENT), plain)


def test_an_error_in_planning_a_new_size_goes_to_on_error_too(ldm_sd1, monkeypatch):
    plain = ldm_sd1(LATENT)
    errors = []
    session = Session(detect(ldm_sd1.unet), todo_core.Settings(factor_1=2), on_error=errors.append).attach()
    monkeypatch.setattr(todo_core.patching.session, "make_plan", boom)
    try:
        assert torch.equal(ldm_sd1(LATENT), plain)
    finally:
        session.remove()
    assert [type(error) for error in errors] == [Broken]


def test_an_error_of_the_models_own_is_not_taken_for_ours(ldm_sd1):
    errors = []
    session = Session(detect(ldm_sd1.unet), todo_core.Settings(factor_1=2), on_error=errors.append).attach()
    try:
        with pytest.raises(RuntimeError):
            ldm_sd1(LATENT, text=noise(2, 7, 33))
    finally:
        session.remove()
    assert errors == []
    assert hook_count(ldm_sd1.unet) == 0


# what the keys are made of -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "context", "mask", "grids"),
    [
        ((2, 12, 8), None, False, (2, 12, 8)),
        ((2, 12, 8), "itself", False, (2, 12, 8)),
        ((1, 24, 8), None, False, (2, 12, 8)),
        ((2, 12, 8), (2, 36, 8), False, (6, 12, 8)),
        ((2, 12, 8), None, True, "mask"),
        ((2, 11, 8), None, False, "whole grids"),
        ((2, 12, 8), (2, 24, 9), False, "whole grids"),
        ((2, 12, 8), (24, 8), False, "whole grids"),
        ((2, 12, 8), (2, 12, 2, 8), False, "whole grids"),
        ((2, 12, 8), (1, 24, 8), False, "another source"),
        ((2, 12, 8), (2, 12, 8), False, "another source"),
    ],
)
def test_keys_are_whole_grids_of_the_same_rows(ldm_sd1, tokens, context, mask, grids):
    with patched(ldm_sd1.unet, factor_1=2) as session:
        x = noise(*tokens)
        given = x if context == "itself" else None if context is None else noise(*context)
        found = session._sites[0]._key_grids(x, given, 12, "it has a mask" if mask else "")
        if isinstance(grids, str):
            assert found is None
            assert grids in session.record.notes[0]
        else:
            assert found.shape == grids
            assert session.record.notes == []


def test_a_second_attach_puts_no_second_hooks(sd1):
    session = Session(detect(sd1.unet), todo_core.Settings(target="all", factor_1=2)).attach()
    count = hook_count(sd1.unet)
    assert hook_count(session.attach().host.unet) == count
    session.remove()
    session.remove()
    assert hook_count(sd1.unet) == 0


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


@pytest.mark.parametrize("when", ["between blocks", "after an interrupt"])
def test_a_module_of_a_block_that_does_not_run_is_left_alone(ldm_sd1, when):
    """Others may call it within the UNet call, or after one that was interrupted."""
    block, seen = ldm_sd1.blocks(1)[0], []

    def call_alone(*_):
        with lengths(ldm_sd1) as found:
            block.attn1(noise(2, TOKENS, 32))
        seen.extend(found)

    def stop(*_):
        raise KeyboardInterrupt

    with patched(ldm_sd1.unet, target="all", factor_1=2):
        if when == "between blocks":
            handle = block.register_forward_hook(call_alone)
            ldm_sd1(LATENT)
        else:
            handle = block.attn1.to_q.register_forward_pre_hook(stop)
            with pytest.raises(KeyboardInterrupt):
                ldm_sd1(LATENT)
            handle.remove()
            call_alone()
        handle.remove()
    assert [pair[1:] for pair in seen] == [(TOKENS, TOKENS)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_block_called_alone_after_an_interrupt_is_left_alone(ldm_sd1, target):
    block = ldm_sd1.blocks(1)[0]

    def stop(*_):
        raise KeyboardInterrupt

    with patched(ldm_sd1.unet, target=target, factor_1=2):
        handle = block.attn1.to_q.register_forward_pre_hook(stop)
        with pytest.raises(KeyboardInterrupt):
            ldm_sd1(LATENT)
        handle.remove()
        with lengths(ldm_sd1) as seen:
            block(noise(2, TOKENS, 32), context=noise(2, 7, 32))
    assert [pair[1:] for pair in seen] == [(TOKENS, TOKENS)]


def test_a_grid_turned_inside_the_unet_is_planned_anew(ldm_sd1):
    """It has as many tokens as the one that was planned."""
    layers = ldm_sd1.unet.get_submodule(next(iter(ldm_sd1.attentions(1))).rsplit(".", 3)[0])
    turn = lambda _, args: (args[0].transpose(2, 3).contiguous(), *args[1:])  # noqa: E731
    handles = [
        layers.register_forward_pre_hook(turn),
        layers.register_forward_hook(lambda _, args, output: output.transpose(2, 3)),
    ]
    with patched(ldm_sd1.unet, factor_1=2) as session:
        ldm_sd1(LATENT)
    for handle in handles:
        handle.remove()
    assert {plan.grid.size for plan in session.record.ran_in} == {SIZE, SIZE[::-1]}


def test_a_module_that_sees_some_rows_of_its_block_is_left_whole(ldm_sd1, monkeypatch):
    rows = lambda block, x: torch.cat([block.attn1(row) for row in x.split(1)])  # noqa: E731
    replace_self_attention(monkeypatch, ldm_sd1, rows)
    plain = ldm_sd1(LATENT)
    with patched(ldm_sd1.unet, target="all", **FIXED) as session:
        assert torch.equal(ldm_sd1(LATENT), plain)
    assert session.record.notes == [f"a layer at level 1 is not reduced: its input is not a grid of {TOKENS} tokens"]


def test_a_block_without_cross_attention_is_hooked_at_what_it_has(ldm_sd1):
    block = torch.nn.Module()
    block.attn1, block.attn2, block.ff = torch.nn.Linear(1, 1), None, torch.nn.Linear(1, 1)
    settings, unet = todo_core.Settings(target="all", crossattn=True, mlp=True), ldm_sd1.unet
    site = Site(1, 0, torch.nn.Module(), block)
    hooks = ModuleHooks(site, RunningCalls(detect(unet), settings, Record(), None)).attach()
    assert len(hooks) == 6
    for hook in hooks:
        hook.remove()


# what is noted ------------------------------------------------------------------------------------------------------


def test_a_call_that_fails_before_its_first_block_is_not_told_to_have_reduced_nothing(ldm_sd1):
    first = ldm_sd1.unet.input_blocks[0]
    handle = first.register_forward_pre_hook(lambda *_: 1 / 0)
    with patched(ldm_sd1.unet, factor_1=2) as session:
        with pytest.raises(ZeroDivisionError):
            ldm_sd1(LATENT)
        handle.remove()
    assert session.record.notes == []


def test_the_note_of_a_call_that_reduced_nothing_has_the_reason_of_its_grid(ldm_sd1):
    """Kohya's Deep Shrink leaves a grid at which auto does nothing."""
    layers = {ldm_sd1.unet.get_submodule(name.rsplit(".", 3)[0]) for name in ldm_sd1.attentions(1)}

    def shrink(_, args):
        return torch.nn.functional.interpolate(args[0], scale_factor=0.5), *args[1:]

    def grow(_, args, output):
        return torch.nn.functional.interpolate(output, scale_factor=2)

    handles = [layer.register_forward_pre_hook(shrink) for layer in layers]
    handles += [layer.register_forward_hook(grow) for layer in layers]
    host = detect(ldm_sd1.unet)
    session = Session(dataclasses.replace(host, trained_side=8), todo_core.Settings(factor_2=1)).attach()
    ldm_sd1(noise(1, 4, 16, 16))
    session.remove()
    for handle in handles:
        handle.remove()
    assert len(session.record.notes) == 1
    assert "trained at 64 x 64" in session.record.notes[0]


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
