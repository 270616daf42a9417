"""The session on UNets of ldm and diffusers: what holds for both, and what is of ldm alone."""

from __future__ import annotations

import gc
import math
import weakref
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from ldm.modules.diffusionmodules.openaimodel import UNetModel
from tomesd.merge import bipartite_soft_matching_random2d

from tests.models import (
    LatentDiffusion,
    assert_close,
    assert_differs,
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
from todo_core import Settings, SettingsError, apply_patch, patched, remove_patch

LATENT = noise(2, 4, 16, 8)
GRID = (16, 8)  # of level 1 in the layout of SD1.5, at this latent
METHODS = ["downsample", "similarity", "cluster"]
TARGETS = ["keys/values", "all"]
BOTH_LEVELS = {"factor_1": 2, "factor_2": 2, "ratio_1": 0.5, "ratio_2": 0.5}


# what is computed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "factors"),
    [("nearest", (2, 3)), ("nearest-exact", (3, 2)), ("bilinear", (2, 2)), ("bicubic", (3, 3)), ("area", (2, 3))],
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
            use_plain_attention(monkeypatch, attention, interpolated(grid, target, mode))
    assert_close(ours, any_model(latent))
    assert_differs(ours, plain)


def by_max(attention, x):
    """The largest value of each cell of tokens."""
    grid = x.movedim(2, 1).reshape(len(x), -1, *GRID)
    return plain_attention(attention, x, F.max_pool2d(grid, 2).flatten(2).movedim(1, 2), lambda tokens: tokens)


def by_tomesd(ratio):
    def attend(attention, x):
        h, w = GRID
        merge, _unmerge = bipartite_soft_matching_random2d(x, w, h, 2, 2, int(h * w * ratio), no_rand=True)
        return plain_attention(attention, x, merge(x), lambda tokens: tokens)

    return attend


def by_fewer_queries(attention, x):
    """Their results are spread."""
    few = interpolated(GRID, (8, 4), "nearest-exact")(x)
    return interpolated((8, 4), GRID, "nearest-exact")(plain_attention(attention, few, few, lambda tokens: tokens))


NAIVE = [({"resample": "max", "factor_1": 2}, by_max)]
NAIVE += [({"method": "similarity", "ratio_1": each, "random": False}, by_tomesd(each)) for each in (0.3, 0.75)]
NAIVE += [({"target": "all", "resample": "nearest-exact", "phase": "fixed", "factor_1": 2}, by_fewer_queries)]


@pytest.mark.parametrize(("settings", "attend"), NAIVE)
def test_a_reduction_equals_attention_written_out(sd1, settings, attend, monkeypatch):
    with patched(sd1.unet, **settings):
        ours = sd1(LATENT)
    for attention in sd1.attentions(1).values():
        forward = lambda x, *_, attention=attention, **__: attend(attention, x)  # noqa: E731
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
    """All rows keep the same tokens, and neighbouring blocks others."""
    session = apply_patch(ldm_sd1.unet, factor_1=2)
    steps = [kept_tokens(ldm_sd1, session, step) for step in range(4)]
    for blocks in steps:
        assert all(torch.equal(*rows) for rows in blocks)
        assert not any(torch.equal(one, other) for one, other in pairwise(blocks))
    for block in zip(*steps, strict=True):
        assert sorted(torch.cat([rows[0] for rows in block]).tolist()) == list(range(16 * 8))


def test_a_fixed_position_is_the_same_in_every_block_and_step(ldm_sd1):
    session = apply_patch(ldm_sd1.unet, factor_1=2, phase="fixed")
    kept = [block for step in range(3) for block in kept_tokens(ldm_sd1, session, step)]
    assert all(torch.equal(block, kept[0]) for block in kept)


# which attentions ---------------------------------------------------------------------------------------------------

# layout, latent, settings, then (queries, keys) of levels 1 and 2
PAIRS = [
    ("sd1", (16, 8), {"factor_1": 2, "factor_2": 3, "phase": "fixed"}, (128, 32), (32, 2)),
    ("sd1", (16, 8), {"method": "similarity", "target": "all", "ratio_1": 0.25}, (96, 96), (32, 32)),
    ("sd1", (16, 8), {"method": "cluster", "target": "all", "ratio_1": 0.25}, (96, 96), (32, 32)),
    ("sdxl", (16, 24), {"factor_1": 2, "factor_2": 1}, (96, 24), (24, 24)),
]
PAIRS = [(f"{library}_{layout}", *case) for library in ("ldm", "diffusers") for layout, *case in PAIRS]
ODD = {"factor_1": 2, "ratio_1": 0.3, "factor_2": 2, "ratio_2": 0.5, "phase": "fixed"}  # 11 x 9 and 6 x 5 tokens
for method, first, second in (("downsample", 20, 6), ("similarity", 70, 15), ("cluster", 69, 15)):
    case = "diffusers_sdxl", (21, 18), ODD | {"method": method}
    PAIRS += [(*case, (99, first), (30, second))]
    PAIRS += [(*case[:2], case[2] | {"target": "all"}, (first, first), (second, second))]


@pytest.mark.parametrize(("name", "size", "settings", "first", "second"), PAIRS)
def test_the_queries_and_keys_of_each_level(request, name, size, settings, first, second):
    small, latent = request.getfixturevalue(name), noise(2, 4, *size)
    plain = small(latent)
    with patched(small.unet, **settings), lengths(small) as seen:
        ours = small(latent)
    assert [keys_of(small, level, seen) for level in (1, 2)] == [{first}, {second}]
    deeper = [(q, k) for name, q, k in seen if not {name} & {*small.attentions(1), *small.attentions(2)}]
    assert len(deeper) == (4 if "sd1" in name else 0)
    assert all(q == k for q, k in deeper)
    assert ours.isfinite().all()
    assert_differs(ours, plain)


def test_a_moving_position_keeps_whole_rows_and_columns_and_at_most_the_planned_keys(sd1):
    """8 x 4 tokens and stride 3: rows 0, 3, 6 or 1, 4, 7 or 2, 5; columns 0, 3 or 1 or 2."""
    with patched(sd1.unet, factor_1=1, factor_2=3) as session:
        for step in range(9):
            session.begin_step(step, 9, (0, 0))
            with lengths(sd1) as seen:
                sd1(LATENT)
            assert {keys for _, keys in keys_of(sd1, 2, seen)} <= {3 * 2, 3 * 1, 2 * 2, 2 * 1}
    assert session.plan.levels[1].keys == 3 * 2


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


# the window ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "acting"),
    [
        ({"window": "noise", "end": 0.8}, [999, 801, 800, 500, 201]),
        ({"window": "noise", "start": 0.8}, [200, 199, 0]),
        ({"window": "noise", "start": 0.2, "end": 0.8}, [800, 500, 201]),
        ({"window": "steps", "end": 0.8}, [999, 801, 800, 500, 201]),  # nobody knows the number of steps
    ],
)
def test_the_window_by_the_noise_level(sd1, window, acting):
    """Outside it, the result is that of the plain model."""
    timesteps = [999.0, 801.0, 800.0, 500.0, 201.0, 200.0, 199.0, 0.0]
    with patched(sd1.unet, **BOTH_LEVELS, **window):
        ours = [sd1(LATENT, timestep) for timestep in timesteps]
    pairs = zip(timesteps, ours, strict=True)
    assert [timestep for timestep, output in pairs if not torch.equal(output, sd1(LATENT, timestep))] == acting


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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("settings", [*NOTHING, {"method": "none"}])
def test_settings_that_take_nothing_away_change_no_bit(sd1, settings, target):
    plain = sd1(LATENT)
    with patched(sd1.unet, target=target, crossattn=True, mlp=True, **settings):
        assert torch.equal(sd1(LATENT), plain)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", METHODS)
def test_a_patch_changes_no_weight_and_no_class_and_after_removal_the_model_is_what_it_was(any_model, method, target):
    latent, unet = noise(2, 4, 16, 16), any_model.unet
    plain, before = any_model(latent), snapshot(unet)
    weights = {name: tensor.clone() for name, tensor in unet.state_dict().items()}
    apply_patch(unet, method=method, target=target, crossattn=True, mlp=True, **BOTH_LEVELS)
    assert_differs(any_model(latent), plain)
    assert [kind for kind, *_ in snapshot(unet).values()] == [kind for kind, *_ in before.values()]
    for after_removal in (False, True):
        assert list(unet.state_dict()) == list(weights)
        assert all(torch.equal(unet.state_dict()[name], tensor) for name, tensor in weights.items())
        assert (snapshot(unet) == before) == after_removal
        remove_patch(unet)
    assert torch.equal(any_model(latent), plain)


def test_a_second_patch_takes_the_place_of_the_first_and_is_removed_once(sd1):
    plain, before = sd1(LATENT), snapshot(sd1.unet)
    apply_patch(sd1.unet, factor_1=4, target="all", method="cluster")
    session = apply_patch(sd1.unet, factor_1=2)
    with lengths(sd1) as seen:
        sd1(LATENT)
    assert keys_of(sd1, 1, seen) == {(16 * 8, 8 * 4)}
    for _ in range(2):
        assert remove_patch(sd1.unet) is sd1.unet
        assert snapshot(sd1.unet) == before
        session.remove()
    assert torch.equal(sd1(LATENT), plain)


def test_the_wrapper_of_latent_diffusion_is_the_same_model(ldm_sd1):
    with patched(LatentDiffusion(ldm_sd1.unet), factor_1=2, phase="fixed"):
        wrapped = ldm_sd1(LATENT)
    with patched(ldm_sd1.unet, factor_1=2, phase="fixed"):
        assert torch.equal(ldm_sd1(LATENT), wrapped)
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


@pytest.mark.parametrize("target", TARGETS)
def test_an_exception_inside_the_unet_leaves_nothing_armed_and_takes_the_patch_off(sd1, target):
    """The next call on the same patch is as ever."""
    plain, before, attention = sd1(LATENT), snapshot(sd1.unet), next(iter(sd1.attentions(1).values()))
    tokens = noise(2, 16 * 8, attention.to_q.in_features)
    alone = attention(tokens)
    settings = {"target": target, "crossattn": True, "mlp": True, "factor_1": 2, "phase": "fixed"}
    fail = lambda: sd1(LATENT, text=noise(2, 7, 33))  # noqa: E731
    with patched(sd1.unet, **settings):
        expected = sd1(LATENT)
        with pytest.raises(RuntimeError):
            fail()
        assert torch.equal(attention(tokens), alone), "a module called by itself was reduced"
        assert torch.equal(sd1(LATENT), expected)
    with pytest.raises(RuntimeError), patched(sd1.unet, **settings):
        fail()
    assert snapshot(sd1.unet) == before
    assert torch.equal(sd1(LATENT), plain)
    with patched(sd1.unet, **settings):
        assert torch.equal(sd1(LATENT), expected)


def test_modules_called_outside_a_unet_call_are_left_alone(ldm_sd1):
    block = ldm_sd1.blocks(1)[0]
    tokens, text = noise(2, 16 * 8, block.norm1.normalized_shape[0]), words(2)
    with torch.no_grad():
        plain = block(tokens, context=text)
        for target in TARGETS:
            with patched(ldm_sd1.unet, target=target, mlp=True, crossattn=True, factor_1=2):
                ldm_sd1(LATENT)
                assert torch.equal(block(tokens, context=text), plain)


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


@pytest.mark.parametrize("wrong", [{"factor_1": 0.5}, {"no_such_setting": 1}, {"start": 0.9, "end": 0.5}])
def test_impossible_settings_leave_the_patch_that_is_there(sd1, wrong):
    apply_patch(sd1.unet, factor_1=2, phase="fixed")
    before, expected = snapshot(sd1.unet), sd1(LATENT)
    for settings in (None, Settings(factor_1=4)):
        with pytest.raises(SettingsError):
            apply_patch(sd1.unet, settings, **wrong)
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
SIMILARITY = {"method": "similarity", **RANDOM}


def joint_step(small, session, images=(0, 1, 2), seeds=None):
    """One step of these images with their cond and uncond rows in one call, in the order of the WebUI."""
    rows = list(images)
    session.begin_step(4, 10, (seeds or [SEEDS[i] for i in rows]) * 2)
    return small(torch.cat([IMAGES[rows]] * 2), text=torch.cat([COND[rows], UNCOND[rows]]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", METHODS)
def test_an_image_does_not_depend_on_its_batch_nor_on_how_that_is_split(sd1_double, method, target):
    session = apply_patch(sd1_double.unet, method=method, target=target, **RANDOM)
    batch = joint_step(sd1_double, session)
    for i in range(3):
        assert_close(batch[[i, i + 3]], joint_step(sd1_double, session, [i]))
    images, text = torch.cat([IMAGES] * 2), torch.cat([COND, UNCOND])
    for sizes in ((3, 3), (2, 1, 3)):
        session.begin_step(4, 10, SEEDS * 2)
        parts = zip(images.split(sizes), text.split(sizes), strict=True)
        assert_close(torch.cat([sd1_double(some, text=theirs) for some, theirs in parts]), batch)


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_depends_on_its_own_seed_and_no_other(sd1_double, target):
    session = apply_patch(sd1_double.unet, target=target, **SIMILARITY)
    batch, changed = joint_step(sd1_double, session), joint_step(sd1_double, session, seeds=[11, 99, 33])
    assert_close(changed[[0, 2, 3, 5]], batch[[0, 2, 3, 5]])
    for row in (1, 4):
        assert_differs(changed[row], batch[row])


def test_cond_and_uncond_of_an_image_share_their_draws_and_the_step_moves_them_on(sd1_double):
    session = apply_patch(sd1_double.unet, **SIMILARITY)
    first, second = [], []
    for step, rows in enumerate((first, second)):
        session.begin_step(step, 10, [11, 22, 11, 22])
        rows += sd1_double(IMAGES[[0, 0, 0, 0]], text=COND[[0, 0, 0, 0]])
    assert_close(first[0], first[2])
    assert_close(first[1], first[3])
    assert_differs(first[0], first[1])
    assert_differs(first[0], second[0])


@pytest.mark.parametrize("method", METHODS)
def test_a_step_depends_on_nothing_that_ran_before_and_takes_nothing_from_torchs_generator(sd1_double, method):
    session = apply_patch(sd1_double.unet, method=method, **RANDOM)
    before = torch.get_rng_state()
    first = joint_step(sd1_double, session)
    assert torch.equal(torch.get_rng_state(), before)
    session.begin_step(5, 10, [1, 2])
    sd1_double(noise(2, 4, 16, 8).double(), text=COND[:2])
    torch.manual_seed(123)
    assert torch.equal(joint_step(sd1_double, session), first)


@pytest.mark.parametrize("told", [False, True], ids=["a bare session", "where the host tells the images' own"])
def test_a_seed_in_the_settings_is_that_of_all_rows(sd1_double, told):
    outputs = []
    for seed in (5, 6):
        with patched(sd1_double.unet, seed=seed, **SIMILARITY) as session:
            if told:
                session.begin_step(0, 10, [11, 22])
            outputs.append(sd1_double(IMAGES[[0, 0]], text=COND[[0, 0]]))
        assert_close(outputs[-1][0], outputs[-1][1])
    assert_differs(*outputs)


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
