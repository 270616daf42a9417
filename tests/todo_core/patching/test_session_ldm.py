"""The session on ldm's own UNets; with the fixture ``sd1`` or ``sdxl``, on those of diffusers too."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from ldm.modules.diffusionmodules.openaimodel import UNetModel
from tomesd.merge import bipartite_soft_matching_random2d
from torch import nn

from tests.models import (
    LatentDiffusion,
    hook_count,
    interpolated,
    keys_of,
    ldm_unet,
    lengths,
    noise,
    plain_attention,
    snapshot,
    use_plain_attention,
    words,
)
from todo_core import Settings, SettingsError, UnsupportedModelError, apply_patch, patched, remove_patch

LATENT = noise(2, 4, 16, 8)
GRIDS = {1: (16, 8), 2: (8, 4)}  # of the layout of SD1.5, at this latent
MODES = ["nearest", "nearest-exact", "bilinear", "bicubic", "area"]
METHODS = ["downsample", "similarity", "cluster"]
BOTH_LEVELS = {"factor_1": 2, "factor_2": 2, "ratio_1": 0.5, "ratio_2": 0.5}


def shrunk(size, factor):
    return tuple(int(side / factor) for side in size)


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def assert_differs(actual, expected):
    assert (actual - expected).abs().max() > 0.01


def only(level, factor):
    return {f"factor_{n}": factor if n == level else 1 for n in (1, 2)}


# what is computed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("factor", [2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_downsample_equals_resampling_the_projected_keys_and_values(sd1, mode, factor, level, monkeypatch):
    plain = sd1(LATENT)
    with patched(sd1.unet, resample=mode, phase="fixed", **only(level, factor)):
        ours = sd1(LATENT)
    shorten = interpolated(GRIDS[level], shrunk(GRIDS[level], factor), mode)
    for attention in sd1.attentions(level).values():
        use_plain_attention(monkeypatch, attention, shorten)
    assert_close(ours, sd1(LATENT))
    assert_differs(ours, plain)


@pytest.mark.parametrize("mode", ["nearest-exact", "bilinear"])
def test_both_levels_of_every_layout_equal_the_naive_reference(any_model, mode, monkeypatch):
    latent = noise(2, 4, 16, 24)
    with patched(any_model.unet, resample=mode, phase="fixed", factor_1=2, factor_2=2):
        ours = any_model(latent)
    for level in (1, 2):
        size = shrunk((16, 24), 2 ** (any_model.halvings + level - 1))
        for attention in any_model.attentions(level).values():
            use_plain_attention(monkeypatch, attention, interpolated(size, shrunk(size, 2), mode))
    assert_close(ours, any_model(latent))


def test_max_keeps_the_largest_value_of_each_cell_of_tokens(sd1, monkeypatch):
    with patched(sd1.unet, resample="max", factor_1=2):
        ours = sd1(LATENT)
    for attention in sd1.attentions(1).values():

        def forward(x, context=None, encoder_hidden_states=None, attention=attention, **_):
            grid = x.movedim(2, 1).reshape(len(x), -1, *GRIDS[1])
            return plain_attention(attention, x, F.max_pool2d(grid, 2).flatten(2).movedim(1, 2), lambda tokens: tokens)

        monkeypatch.setitem(vars(attention), "forward", forward)
    assert_close(ours, sd1(LATENT))


@pytest.mark.parametrize("ratio", [0.3, 0.75])
def test_similarity_on_keys_equals_attention_to_tokens_that_tomesd_merged(sd1, ratio, monkeypatch):
    with patched(sd1.unet, method="similarity", ratio_1=ratio, random=False):
        ours = sd1(LATENT)
    h, w = GRIDS[1]
    for attention in sd1.attentions(1).values():

        def forward(x, context=None, encoder_hidden_states=None, attention=attention, **_):
            merge, _unmerge = bipartite_soft_matching_random2d(x, w, h, 2, 2, int(h * w * ratio), no_rand=True)
            return plain_attention(attention, x, merge(x), lambda tokens: tokens)

        monkeypatch.setitem(vars(attention), "forward", forward)
    assert_close(ours, sd1(LATENT))


def test_downsample_of_all_computes_fewer_queries_and_spreads_their_results(sd1, monkeypatch):
    with patched(sd1.unet, target="all", resample="nearest-exact", phase="fixed", factor_1=2):
        ours = sd1(LATENT)
    h, w = GRIDS[1]
    for attention in sd1.attentions(1).values():

        def forward(x, context=None, encoder_hidden_states=None, attention=attention, **_):
            few = interpolated((h, w), (h // 2, w // 2), "nearest-exact")(x)
            result = plain_attention(attention, few, few, lambda tokens: tokens)
            return interpolated((h // 2, w // 2), (h, w), "nearest-exact")(result)

        monkeypatch.setitem(vars(attention), "forward", forward)
    assert_close(ours, sd1(LATENT))


EXACT = "donot_use_mm_for_euclid_dist"


def kept_tokens(small, session, step):
    """Of each block at level 1, which tokens of each row its keys are: (rows, keys)."""
    found, x = [], {}
    handles = []
    for attention in small.attentions(1).values():
        handles.append(attention.to_q.register_forward_pre_hook(lambda _, args: x.update(q=args[0])))
        handles.append(
            attention.to_k.register_forward_pre_hook(
                lambda _, args: found.append(torch.cdist(args[0], x["q"], compute_mode=EXACT).min(dim=2))
            )
        )
    session.begin_step(step, 10, [1, 2])
    small(LATENT)
    for handle in handles:
        handle.remove()
    assert all(nearest.values.max() < 1e-3 for nearest in found), "a key that is none of the tokens"
    return [nearest.indices for nearest in found]


def test_every_token_serves_as_a_key_of_every_block_within_four_steps(ldm_sd1):
    session = apply_patch(ldm_sd1.unet, factor_1=2)
    steps = [kept_tokens(ldm_sd1, session, step) for step in range(4)]
    for block in zip(*steps, strict=True):
        for row in (0, 1):
            kept = torch.cat([indices[row] for indices in block])
            assert sorted(kept.tolist()) == list(range(16 * 8))


def test_all_rows_keep_the_same_tokens_and_neighbouring_blocks_others(ldm_sd1):
    blocks = kept_tokens(ldm_sd1, apply_patch(ldm_sd1.unet, factor_1=2), 3)
    assert all(torch.equal(block[0], block[1]) for block in blocks)
    assert not any(torch.equal(one, other) for one, other in zip(blocks, blocks[1:], strict=False))


def test_a_fixed_position_is_the_same_in_every_block_and_step(ldm_sd1):
    session = apply_patch(ldm_sd1.unet, factor_1=2, phase="fixed")
    kept = [block for step in range(3) for block in kept_tokens(ldm_sd1, session, step)]
    assert all(torch.equal(block, kept[0]) for block in kept)


# which attentions ---------------------------------------------------------------------------------------------------


def test_queries_stay_whole_and_only_the_two_levels_lose_keys(sd1):
    with patched(sd1.unet, factor_1=2, factor_2=3, phase="fixed"), lengths(sd1) as seen:
        sd1(LATENT)
    assert keys_of(sd1, 1, seen) == {(16 * 8, 8 * 4)}
    assert keys_of(sd1, 2, seen) == {(8 * 4, 2 * 1)}
    deeper = [(q, k) for name, q, k in seen if name not in sd1.attentions(1) and name not in sd1.attentions(2)]
    assert len(deeper) == 4
    assert all(q == k for q, k in deeper)


def test_a_moving_position_keeps_whole_rows_and_columns_and_at_most_the_planned_keys(sd1):
    """8 x 4 tokens and stride 3: rows 0, 3, 6 or 1, 4, 7 or 2, 5; columns 0, 3 or 1 or 2."""
    with patched(sd1.unet, factor_1=1, factor_2=3) as session:
        for step in range(9):
            session.begin_step(step, 9, (0, 0))
            with lengths(sd1) as seen:
                sd1(LATENT)
            assert {keys for _, keys in keys_of(sd1, 2, seen)} <= {3 * 2, 3 * 1, 2 * 2, 2 * 1}
    assert session.plan.levels[1].keys == 3 * 2


def test_of_sdxl_the_first_level_is_at_half_the_latent(sdxl):
    with patched(sdxl.unet, factor_1=2, factor_2=1), lengths(sdxl) as seen:
        sdxl(noise(2, 4, 16, 24))
    assert keys_of(sdxl, 1, seen) == {(8 * 12, 4 * 6)}
    assert keys_of(sdxl, 2, seen) == {(4 * 6, 4 * 6)}


@pytest.mark.parametrize("method", ["similarity", "cluster"])
def test_target_all_shortens_the_queries_too(sd1, method):
    with patched(sd1.unet, method=method, target="all", ratio_1=0.25), lengths(sd1) as seen:
        sd1(LATENT)
    assert keys_of(sd1, 1, seen) == {(16 * 8 * 3 // 4,) * 2}
    assert keys_of(sd1, 2, seen) == {(8 * 4,) * 2}


def test_the_wrapper_of_latent_diffusion_is_the_same_model(ldm_sd1):
    model = LatentDiffusion(ldm_sd1.unet)
    with patched(model, factor_1=2, phase="fixed"):
        wrapped = ldm_sd1(LATENT)
    with patched(ldm_sd1.unet, factor_1=2, phase="fixed"):
        assert torch.equal(ldm_sd1(LATENT), wrapped)


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_without_steps_from_a_host_the_seed_is_that_of_the_settings_or_0(ldm_sd1, seed):
    with patched(ldm_sd1.unet, method="similarity", ratio_1=0.5, seed=seed):
        counted = ldm_sd1(LATENT)
    with patched(ldm_sd1.unet, method="similarity", ratio_1=0.5) as session:
        session.begin_step(0, 20, [seed or 0] * len(LATENT))
        assert torch.equal(ldm_sd1(LATENT), counted)
        session.begin_step(0, 20, [1] * len(LATENT))
        assert not torch.equal(ldm_sd1(LATENT), counted)


def test_the_plan_follows_the_size_that_a_call_shows(ldm_sd1):
    session = apply_patch(ldm_sd1.unet, factor_1=2)
    assert session.plan.size.size == (32, 32)  # what the model says it was trained at
    for size in ((16, 8), (16, 16)):
        with lengths(ldm_sd1) as seen:
            ldm_sd1(noise(1, 4, *size))
        tokens = size[0] * size[1]
        assert keys_of(ldm_sd1, 1, seen) == {(tokens, tokens // 4)}
        assert session.plan.size.size == size
        assert session.plan.levels[0].keys == tokens // 4


def test_the_record_tells_what_ran(ldm_sd1):
    session = apply_patch(ldm_sd1.unet, factor_1=2)
    assert (session.record.levels, session.record.steps) == ({}, set())
    for step in (2, 3):
        session.begin_step(step, 10, [0, 0])
        ldm_sd1(LATENT)
    assert set(session.record.levels) == {1}
    assert session.record.levels[1].keys == 8 * 4
    assert session.record.steps == {2, 3}
    assert session.record.notes == []


@pytest.mark.parametrize("context", ["positional", "keyword", "all keywords", "keywords in another order"])
def test_however_the_call_is_written_it_is_reduced(ldm_sd1, context):
    t, text = torch.full((2,), 500.0), [words(2)] * 2
    unet = ldm_sd1.unet
    with patched(unet, factor_1=2), lengths(ldm_sd1) as seen, torch.no_grad():
        if context == "positional":
            unet(LATENT, t, text)
        elif context == "keyword":
            unet(LATENT, timesteps=t, context=text)
        elif context == "all keywords":
            unet(x=LATENT, timesteps=t, context=text)
        else:
            unet(timesteps=t, context=text, x=LATENT)
    assert keys_of(ldm_sd1, 1, seen) == {(16 * 8, 8 * 4)}


# the window ---------------------------------------------------------------------------------------------------------


def acting_timesteps(small, timesteps, **settings):
    acting = []
    with patched(small.unet, factor_1=2, **settings):
        for timestep in timesteps:
            with lengths(small) as seen:
                small(LATENT, timestep)
            acting += [timestep] if keys_of(small, 1, seen) == {(16 * 8, 8 * 4)} else []
            assert keys_of(small, 1, seen) <= {(16 * 8, 8 * 4), (16 * 8, 16 * 8)}
    return acting


TIMESTEPS = [999.0, 801.0, 800.0, 500.0, 201.0, 200.0, 199.0, 0.0]


def test_an_end_of_08_acts_above_noise_level_200(sd1):
    assert acting_timesteps(sd1, TIMESTEPS, window="noise", end=0.8) == [999, 801, 800, 500, 201]


def test_a_start_of_08_acts_up_to_noise_level_200(sd1):
    assert acting_timesteps(sd1, TIMESTEPS, window="noise", start=0.8) == [200, 199, 0]


def test_start_and_end_together_cut_out_the_middle(sd1):
    assert acting_timesteps(sd1, TIMESTEPS, window="noise", start=0.2, end=0.8) == [800, 500, 201]


def test_without_a_known_number_of_steps_the_noise_level_must_tell(ldm_sd1):
    assert acting_timesteps(ldm_sd1, TIMESTEPS, window="steps", end=0.8) == [999, 801, 800, 500, 201]


def test_outside_the_window_the_result_is_that_of_the_plain_model(sd1):
    plain = sd1(LATENT, 100.0)
    with patched(sd1.unet, window="noise", end=0.8, **BOTH_LEVELS):
        assert torch.equal(sd1(LATENT, 100.0), plain)
        assert_differs(sd1(LATENT, 300.0), sd1(LATENT, 100.0))


@pytest.mark.parametrize("afterwards", METHODS)
def test_another_method_takes_over_past_the_end(sd1, afterwards):
    plain = {t: sd1(LATENT, t) for t in (500.0, 100.0)}
    settings = {"window": "noise", "phase": "fixed", "random": False, **BOTH_LEVELS}
    with patched(sd1.unet, method=afterwards, **settings):
        expected = sd1(LATENT, 100.0)
    with patched(sd1.unet, method="downsample", end=0.8, afterwards=afterwards, **settings):
        late, early = sd1(LATENT, 100.0), sd1(LATENT, 500.0)
    with patched(sd1.unet, method="downsample", **settings):
        assert torch.equal(early, sd1(LATENT, 500.0))
    assert torch.equal(late, expected)
    assert_differs(late, plain[100.0])
    assert_differs(early, plain[500.0])


def test_a_host_that_tells_its_steps_is_followed_whatever_the_timestep(ldm_sd1):
    session = apply_patch(ldm_sd1.unet, factor_1=2, start=0.2, end=0.7)
    acting = []
    for step in range(10):
        session.begin_step(step, 10, [0, 0])
        with lengths(ldm_sd1) as seen:
            ldm_sd1(LATENT, 37.0)
        acting += [step] if keys_of(ldm_sd1, 1, seen) == {(16 * 8, 8 * 4)} else []
        assert session.acts_in_step() == (step in acting)
    assert acting == [2, 3, 4, 5, 6]


# on and off ---------------------------------------------------------------------------------------------------------

NOTHING = [{"factor_1": 1}, {"method": "similarity", "ratio_1": 0}, {"method": "cluster", "ratio_1": 0}]


@pytest.mark.parametrize("target", ["keys/values", "all"])
@pytest.mark.parametrize("settings", [*NOTHING, {"method": "none"}])
def test_settings_that_take_nothing_away_change_no_bit(any_model, settings, target):
    latent = noise(2, 4, 16, 16)
    plain = any_model(latent)
    with patched(any_model.unet, target=target, crossattn=True, mlp=True, **settings):
        assert torch.equal(any_model(latent), plain)


@pytest.mark.parametrize("target", ["keys/values", "all"])
@pytest.mark.parametrize("method", METHODS)
def test_after_removal_the_model_is_what_it_was(any_model, method, target):
    latent = noise(2, 4, 16, 16)
    plain, before = any_model(latent), snapshot(any_model.unet)
    weights = {name: tensor.clone() for name, tensor in any_model.unet.state_dict().items()}
    apply_patch(any_model.unet, method=method, target=target, crossattn=True, mlp=True, **BOTH_LEVELS)
    assert_differs(any_model(latent), plain)
    assert snapshot(any_model.unet) != before
    remove_patch(any_model.unet)
    assert snapshot(any_model.unet) == before
    assert torch.equal(any_model(latent), plain)
    after = any_model.unet.state_dict()
    assert list(after) == list(weights)
    assert all(torch.equal(after[name], tensor) for name, tensor in weights.items())


def test_the_patch_adds_no_weights_and_changes_no_class(any_model):
    before = {name: type(module) for name, module in any_model.unet.named_modules()}
    keys = list(any_model.unet.state_dict())
    with patched(any_model.unet, target="all", mlp=True):
        assert {name: type(module) for name, module in any_model.unet.named_modules()} == before
        assert list(any_model.unet.state_dict()) == keys


def test_patched_twice_and_removed_once_leaves_nothing(sd1):
    plain, before = sd1(LATENT), snapshot(sd1.unet)
    apply_patch(sd1.unet, factor_1=2)
    apply_patch(sd1.unet, target="all", method="cluster")
    remove_patch(sd1.unet)
    assert snapshot(sd1.unet) == before
    assert torch.equal(sd1(LATENT), plain)


def test_a_second_patch_takes_the_place_of_the_first(sd1):
    apply_patch(sd1.unet, factor_1=4)
    apply_patch(sd1.unet, factor_1=2)
    with lengths(sd1) as seen:
        sd1(LATENT)
    assert keys_of(sd1, 1, seen) == {(16 * 8, 8 * 4)}


def test_removing_is_idempotent_and_returns_the_model(sd1):
    before = snapshot(sd1.unet)
    assert remove_patch(sd1.unet) is sd1.unet
    session = apply_patch(sd1.unet)
    for _ in range(2):
        assert remove_patch(sd1.unet) is sd1.unet
        session.remove()
    assert snapshot(sd1.unet) == before


def test_a_patch_put_on_the_wrapper_comes_off_the_unet(ldm_sd1):
    apply_patch(LatentDiffusion(ldm_sd1.unet))
    remove_patch(ldm_sd1.unet)
    assert hook_count(ldm_sd1.unet) == 0


def test_the_hooks_of_others_stay(ldm_sd1):
    calls = []
    mine = ldm_sd1.unet.register_forward_hook(lambda *_: calls.append("unet"))
    theirs = next(iter(ldm_sd1.attentions(1).values())).register_forward_pre_hook(lambda *_: calls.append("attention"))
    apply_patch(ldm_sd1.unet)
    remove_patch(ldm_sd1.unet)
    ldm_sd1(LATENT)
    mine.remove()
    theirs.remove()
    assert calls == ["attention", "unet"]


def test_a_session_that_was_removed_can_be_attached_again(sd1):
    session = apply_patch(sd1.unet, factor_1=2, phase="fixed")
    first = sd1(LATENT)
    session.remove()
    plain = sd1(LATENT)
    session.attach()
    second = sd1(LATENT)
    session.remove()
    assert torch.equal(first, second)
    assert_differs(first, plain)


def test_an_exception_in_the_block_takes_the_patch_off(sd1):
    before = snapshot(sd1.unet)
    with pytest.raises(KeyError, match="mine"), patched(sd1.unet, factor_1=2):
        assert {}["mine"] or hook_count(sd1.unet)
    assert snapshot(sd1.unet) == before


@pytest.mark.parametrize("target", ["keys/values", "all"])
def test_an_exception_inside_the_unet_takes_the_patch_off(sd1, target):
    plain, before = sd1(LATENT), snapshot(sd1.unet)
    with pytest.raises(RuntimeError), patched(sd1.unet, target=target, crossattn=True, factor_1=2):
        sd1(LATENT, text=noise(2, 7, 33))
    assert snapshot(sd1.unet) == before
    assert torch.equal(sd1(LATENT), plain)


@pytest.mark.parametrize("target", ["keys/values", "all"])
def test_after_an_exception_inside_the_unet_nothing_is_armed(sd1, target):
    attention = next(iter(sd1.attentions(1).values()))
    tokens = noise(2, 16 * 8, attention.to_q.in_features)
    plain = attention(tokens)
    with patched(sd1.unet, target=target, crossattn=True, factor_1=2):
        with pytest.raises(RuntimeError):
            sd1(LATENT, text=noise(2, 7, 33))
        assert torch.equal(attention(tokens), plain), "a module called by itself was reduced"


@pytest.mark.parametrize("target", ["keys/values", "all"])
def test_after_an_exception_inside_the_unet_the_next_call_is_as_ever(sd1, target):
    settings = {"target": target, "crossattn": True, "mlp": True, "factor_1": 2, "phase": "fixed"}
    with patched(sd1.unet, **settings):
        expected = sd1(LATENT)
    with patched(sd1.unet, **settings):
        with pytest.raises(RuntimeError):
            sd1(LATENT, text=noise(2, 7, 33))
        assert torch.equal(sd1(LATENT), expected)
    with patched(sd1.unet, **settings):
        assert torch.equal(sd1(LATENT), expected)


def test_modules_called_outside_a_unet_call_are_left_alone(ldm_sd1):
    block = ldm_sd1.blocks(1)[0]
    tokens, text = noise(2, 16 * 8, block.norm1.normalized_shape[0]), words(2)
    with torch.no_grad():
        plain = block(tokens, context=text)
        for target in ("keys/values", "all"):
            with patched(ldm_sd1.unet, target=target, mlp=True, crossattn=True, factor_1=2):
                ldm_sd1(LATENT)
                assert torch.equal(block(tokens, context=text), plain)


def test_patched_within_patched_ends_without_a_patch(ldm_sd1):
    before = snapshot(ldm_sd1.unet)
    with patched(ldm_sd1.unet, factor_1=2), patched(ldm_sd1.unet, factor_1=4), lengths(ldm_sd1) as seen:
        ldm_sd1(LATENT)
    assert keys_of(ldm_sd1, 1, seen) == {(16 * 8, 4 * 2)}
    assert snapshot(ldm_sd1.unet) == before


def test_two_models_do_not_interfere(ldm_sd1):
    other = ldm_sd1.copy()
    plain = ldm_sd1(LATENT)
    apply_patch(ldm_sd1.unet, factor_1=2, phase="fixed")
    reduced = ldm_sd1(LATENT)
    assert torch.equal(other(LATENT), plain)
    apply_patch(other.unet, factor_1=4, phase="fixed")
    with lengths(ldm_sd1) as first, lengths(other) as second:
        assert torch.equal(ldm_sd1(LATENT), reduced)
        other(LATENT)
    assert keys_of(ldm_sd1, 1, first) == {(16 * 8, 8 * 4)}
    assert keys_of(other, 1, second) == {(16 * 8, 4 * 2)}
    remove_patch(other.unet)
    assert torch.equal(other(LATENT), plain)
    assert torch.equal(ldm_sd1(LATENT), reduced)


def test_a_model_that_is_dropped_with_its_patch_on_is_freed():
    unet = ldm_unet()
    apply_patch(unet)
    alive = weakref.ref(unet)
    del unet
    gc.collect()
    assert alive() is None


# refusals -----------------------------------------------------------------------------------------------------------


def test_a_module_that_is_no_unet_is_refused_by_name():
    model = nn.Linear(2, 2)
    before = snapshot(model)
    for refused in (apply_patch, remove_patch):
        with pytest.raises(UnsupportedModelError, match="Linear"):
            refused(model)
    assert snapshot(model) == before


def test_a_unet_without_spatial_transformers_is_refused_by_name():
    config = {"attention_resolutions": [2, 1], "channel_mult": [1, 2], "num_res_blocks": 1, "num_heads": 4}
    unet = UNetModel(8, 4, 32, 4, **config)
    before = snapshot(unet)
    for model in (unet, LatentDiffusion(unet)):
        with pytest.raises(UnsupportedModelError, match="UNetModel.*self-attention"):
            apply_patch(model)
    assert snapshot(unet) == before


@pytest.mark.parametrize("wrong", [{"factor_1": 0.5}, {"no_such_setting": 1}, {"start": 0.9, "end": 0.5}])
def test_impossible_settings_leave_the_patch_that_is_there(sd1, wrong):
    apply_patch(sd1.unet, factor_1=2, phase="fixed")
    before, expected = snapshot(sd1.unet), sd1(LATENT)
    with pytest.raises(SettingsError):
        apply_patch(sd1.unet, **wrong)
    with pytest.raises(SettingsError):
        apply_patch(sd1.unet, Settings(factor_1=4), **wrong)
    assert snapshot(sd1.unet) == before
    assert torch.equal(sd1(LATENT), expected)


def test_keywords_override_the_settings_they_are_given_with(ldm_sd1):
    session = apply_patch(ldm_sd1.unet, Settings(factor_1=4, resample="area"), factor_1=2)
    assert (session.settings.factor_1, session.settings.resample) == (2.0, "area")


# randomness and batches ---------------------------------------------------------------------------------------------

SEEDS = [11, 22, 33]
# in double precision: where two tokens are equally alike, rounding would choose which of them is merged
IMAGES, COND, UNCOND = noise(3, 4, 16, 8, seed=5).double(), words(3, seed=6).double(), words(3, seed=7).double()
RANDOM = {"random": True, "phase": "rotate", **BOTH_LEVELS}


def joint_step(small, session, images=(0, 1, 2), seeds=None):
    """One step of these images with their cond and uncond rows in one call, in the order of the WebUI."""
    rows = list(images)
    session.begin_step(4, 10, (seeds or [SEEDS[i] for i in rows]) * 2)
    return small(torch.cat([IMAGES[rows]] * 2), text=torch.cat([COND[rows], UNCOND[rows]]))


@pytest.mark.parametrize("target", ["keys/values", "all"])
@pytest.mark.parametrize("method", METHODS)
def test_an_image_does_not_depend_on_its_batch(sd1_double, method, target):
    session = apply_patch(sd1_double.unet, method=method, target=target, **RANDOM)
    batch = joint_step(sd1_double, session)
    for i in range(3):
        assert_close(batch[[i, i + 3]], joint_step(sd1_double, session, [i]))


@pytest.mark.parametrize("target", ["keys/values", "all"])
@pytest.mark.parametrize("method", METHODS)
def test_cond_and_uncond_in_calls_of_their_own_give_the_same(sd1_double, method, target):
    session = apply_patch(sd1_double.unet, method=method, target=target, **RANDOM)
    batch = joint_step(sd1_double, session)
    session.begin_step(4, 10, SEEDS * 2)
    split = [sd1_double(IMAGES, text=text) for text in (COND, UNCOND)]
    assert_close(torch.cat(split), batch)


def test_a_batch_split_anywhere_takes_its_own_seeds(sd1_double):
    session = apply_patch(sd1_double.unet, method="similarity", **RANDOM)
    batch = joint_step(sd1_double, session)
    images, text = torch.cat([IMAGES] * 2), torch.cat([COND, UNCOND])
    session.begin_step(4, 10, SEEDS * 2)
    parts = [sd1_double(images[rows], text=text[rows]) for rows in (slice(0, 2), slice(2, 3), slice(3, 6))]
    assert_close(torch.cat(parts), batch)


@pytest.mark.parametrize("target", ["keys/values", "all"])
def test_an_image_depends_on_its_own_seed_and_no_other(sd1_double, target):
    session = apply_patch(sd1_double.unet, method="similarity", target=target, **RANDOM)
    batch, changed = joint_step(sd1_double, session), joint_step(sd1_double, session, seeds=[11, 99, 33])
    assert_close(changed[[0, 2, 3, 5]], batch[[0, 2, 3, 5]])
    for row in (1, 4):
        assert_differs(changed[row], batch[row])


def test_cond_and_uncond_of_an_image_share_their_draws(sd1_double):
    session = apply_patch(sd1_double.unet, method="similarity", **RANDOM)
    session.begin_step(0, 10, [11, 22, 11, 22])
    rows = sd1_double(IMAGES[[0, 0, 0, 0]], text=COND[[0, 0, 0, 0]])
    assert_close(rows[0], rows[2])
    assert_close(rows[1], rows[3])
    assert_differs(rows[0], rows[1])


@pytest.mark.parametrize("method", METHODS)
def test_a_step_does_not_depend_on_what_ran_before(sd1_double, method):
    session = apply_patch(sd1_double.unet, method=method, **RANDOM)
    first = joint_step(sd1_double, session)
    session.begin_step(5, 10, [1, 2])
    sd1_double(noise(2, 4, 16, 8).double(), text=COND[:2])
    torch.manual_seed(123)
    assert torch.equal(joint_step(sd1_double, session), first)


def test_the_step_moves_the_draws_on(sd1_double):
    session = apply_patch(sd1_double.unet, method="similarity", **RANDOM)
    steps = []
    for number in (0, 1):
        session.begin_step(number, 10, [11, 11])
        steps.append(sd1_double(IMAGES[:2], text=COND[:2]))
    assert_differs(*steps)


def test_nothing_is_taken_from_torchs_own_generator(sd1_double):
    session = apply_patch(sd1_double.unet, method="similarity", **RANDOM)
    before = torch.get_rng_state()
    joint_step(sd1_double, session)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_bare_session_draws_one_pattern_for_all_rows(sd1_double):
    with patched(sd1_double.unet, method="similarity", seed=5, **RANDOM):
        one = sd1_double(IMAGES[[0, 0]], text=COND[[0, 0]])
    with patched(sd1_double.unet, method="similarity", seed=6, **RANDOM):
        other = sd1_double(IMAGES[[0, 0]], text=COND[[0, 0]])
    assert_close(one[0], one[1])
    assert_differs(one, other)


def test_a_seed_in_the_settings_comes_before_the_images_own(sd1_double):
    session = apply_patch(sd1_double.unet, method="similarity", seed=5, **RANDOM)
    session.begin_step(0, 10, [11, 22])
    rows = sd1_double(IMAGES[[0, 0]], text=COND[[0, 0]])
    assert_close(rows[0], rows[1])


def test_a_bare_session_takes_a_new_timestep_for_a_new_step_and_begins_anew_when_it_rises(sd1_double):
    with patched(sd1_double.unet, **RANDOM) as session:
        calls = [(t, sd1_double(IMAGES, t, COND)) for t in (900.0, 900.0, 500.0, 100.0, 900.0)]
        steps = set(session.record.steps)
    assert steps == {0, 1, 2}
    assert torch.equal(calls[0][1], calls[1][1]), "cond and uncond of one step have one phase"
    assert torch.equal(calls[0][1], calls[4][1])
    with patched(sd1_double.unet, **RANDOM):
        as_first = sd1_double(IMAGES, 500.0, COND)
    assert_differs(as_first, calls[2][1])
