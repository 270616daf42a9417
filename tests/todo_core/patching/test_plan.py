"""What the plan says will happen, and why nothing will where nothing will."""

import functools
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from ldm.modules.diffusionmodules.openaimodel import UNetModel

import todo_core.patching.planning
from tests import models
from tests.models import LatentDiffusion, diffusers_unet, full_layout, ldm_unet, noise, shallow_ldm_unet
from tests.naive import examples
from todo_core import Settings, TokenGrid, patched
from todo_core.course import Course, Scale
from todo_core.hosts import Host, detect
from todo_core.patching.facts import HELD, Pass
from todo_core.patching.planning import make_plan
from todo_core.patching.time.prediction import Hold
from todo_core.patching.time.prediction_plan import NAMES
from todo_core.patching.what_ran import nothing_to_reduce
from todo_core.reason import Reason


def course_of(weights, **told):
    """What a sampler tells of steps of these weights; the noise falls as in ten steps of DPM++ 2M Karras."""
    count = len(weights)
    falling = (Scale.of(0.67**step, predicts_v=True) for step in range(count))
    return Course((1.0,) * count, told.pop("scales", (*falling,)), (*weights,), **told)


def pass_of(size, steps, **facts):
    """One of so many steps, all alike."""
    told = {name: facts.pop(name) for name in ("holds", "growth", "scales") if name in facts}
    return Pass(size, steps, **{"course": steps and course_of((0.125,) * steps, **told)} | facts)


def plan(model, height, width=None, steps=None, **settings):
    told = {name: settings.pop(name) for name in ("holds", "scales", "course", "is_asked") if name in settings}
    host = model if isinstance(model, Host) else detect(model)
    return make_plan(Settings(**settings), host, pass_of(TokenGrid(height, width or height), steps, **told))


@functools.cache
def sd1_unet():
    """The whole layout of SD1.5 with its text width, by which it is known."""
    return ldm_unet(num_res_blocks=2, channel_mult=[1, 2, 4, 4], context_dim=768)


def sgm_unet():
    unet = ldm_unet(channel_mult=[1, 2, 4], attention_resolutions=[4, 2])
    unet.__class__ = type("UNetModel", (UNetModel,), {"__module__": "sgm.modules.diffusionmodules.openaimodel"})
    return unet


HEAVY_FIRST = (0.22, 0.19, 0.16, 0.13, 0.09, 0.07, 0.05, 0.03, 0.02, 0.04)


# auto ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "size", "factor"),
    [
        # the table of docs/method.md
        *(("SD 1.5", (side, side), 2 if side > 76 else 1) for side in (64, 76, 77, 1024)),
        *(("SD 1.5", size, 2) for size in ((128, 64), (64, 96), (135, 240), (180, 320))),
        ("SD 1.5", (64, 80), 1),  # it counts tokens
        *(("SDXL", (side, side), 2 if side > 128 else 1) for side in (128, 160, 192, 256, 512, 1024)),
    ],
)
def test_auto_reduces_level_1_by_2_above_the_trained_size(layout, size, factor):
    levels, first = plan(full_layout(layout), *size).levels, TokenGrid(*size).halved(layout == "SDXL")
    assert [(level.grid, level.amount or 1) for level in levels] == [(first, factor), (first.halved(1), 1)]
    assert [level.target_grid for level in levels if level.reduces] == [first.strided(2)] * (factor - 1)


FEW = "auto predicts nothing in fewer than 6 steps, and the sampler makes"
TRAINED, TRAINED_XL = (f"this model was trained at {side} x {side}" for side in (512, 1024))
RATIOS = "the ratio of level 1 is 0; the ratio of level 2 is 0"
SHORT = "whole steps need 6 or more steps, and the sampler makes"
NO_STEPS, NO_SCHEDULE = (f"auto needs to know the {what}" for what in ("number of steps", "noise schedule"))
LEVEL_2 = "the factor of level 1 is 1; auto reduces only level 1 at this size"
NO_PART = "target is all, but attn, crossattn and mlp are off"
SMALL = "a grid of 4 x 4 is too small to lose a token; the ratio of level 2 is 0"
FACTOR_2, RATIO_HALF = "Set Factor, level 1 to 2", "Set Ratio, level 1 to 0.5"
BY_2 = "Set Interval to 2"
OFF = {"interval": 1}
UNCLEAR = {"scales": (Scale(1.0, 1.0),)}  # of a model whose input is not known


@pytest.mark.parametrize(
    ("layout", "side", "settings", "steps", "reason", "advice"),
    [
        ("SD 1.5", 64, {}, 20, f"{TRAINED}; {Reason.UNKNOWN}", FACTOR_2),
        ("SD 1.5", 64, {}, 5, f"{TRAINED}; {FEW} 5", FACTOR_2),
        ("SD 1.5", 64, {"factor_1": 1, "factor_2": 1}, 20, str(Reason.UNKNOWN), ""),  # the user wants all tokens
        ("SD 1.5", 64, {"predict": "whole", "factor_1": 1, "factor_2": 1}, 5, f"{SHORT} 5", ""),
        ("SD 1.5", 64, OFF | {"method": "similarity", "ratio_1": 0}, 20, RATIOS, RATIO_HALF),
        ("SD 1.5", 128, OFF | {"factor_1": 1}, 20, LEVEL_2, ""),
        ("SD 1.5", 128, OFF | {"target": "all", "attn": False}, 20, NO_PART, ""),
        ("SD 1.5", 4, OFF | {"method": "similarity", "ratio_1": 0.01}, 20, SMALL, RATIO_HALF),
        ("SDXL", 128, OFF, 20, TRAINED_XL, FACTOR_2),  # the user wants nothing predicted
        ("SDXL", 128, {}, 5, f"{TRAINED_XL}; {FEW} 5", FACTOR_2),  # it may be a part of a pass, as by SplitSigmas
        ("SDXL", 128, {"course": None, "is_asked": True}, 5, f"{TRAINED_XL}; {Reason.UNKNOWN}", FACTOR_2),
        ("SDXL", 128, {}, None, f"{TRAINED_XL}; {NO_STEPS}", BY_2),
        ("SDXL", 128, {"method": "none", "interval": 3}, 20, "the method is none", ""),
        ("SDXL", 128, OFF | {"method": "none", "afterwards": "similarity", "end": 0.7}, 20, "the method is none", ""),
    ],
)
def test_a_plan_that_reduces_nothing_says_why_and_what_would_help_most(layout, side, settings, steps, reason, advice):
    is_noisy = settings.get("predict") != "whole"
    made = plan(full_layout(layout), side, steps=steps, holds=is_noisy, **UNCLEAR, **settings)
    pixels = side * 8
    assert not made.reduces
    assert made.at(0.5) == ()
    assert not made.predicts
    assert all((level.keys, level.target_grid) == (level.grid.tokens, None) for level in made.levels)
    line = f"nothing to reduce at {pixels} x {pixels}: {reason}"
    assert str(nothing_to_reduce(made)) == (f"{line}. {advice}" if advice else line)


# predictions ----------------------------------------------------------------------------------------------------------

LITTLE, GROWS, UNKNOWN = Reason.TOO_LITTLE, Reason.GROWS, Reason.UNKNOWN
DEEP_NEED, WHOLE_NEED = (partial(Reason.TOO_FEW_STEPS, NAMES[part]) for part in ("deep", "whole"))
ALTERNATES, SPLIT, INTERVAL_1 = Reason.ALTERNATES, Reason.SPLIT, Reason.INTERVAL_1
BY_WHOLE = {"predict": "whole", "interval": 2}
STEADY, NOISE = {}, {"holds": True}
KARRAS = {"course": course_of((0.44, 0.44, 0.29, 0.2, 0.14, 0.1, 0.07, 0.05, 0.03, 0.03))}
LIGHT = {"course": course_of((0.02,) * 10)}
HEAVY = {"course": course_of((3.0, 2.0, 1.5, 1.2, 0.9, 0.7, 0.5, 0.4, 0.3, 0.2))}
NOBODY = {"course": None}  # tells what the sampler does
VIDEO, ONLY, DONE = Reason.VIDEO, Reason.LAYERS_ALONE, Reason.WHOLE_INSTEAD
NO_STEPS, NO_SCHEDULE = Reason.STEPS_UNKNOWN, Reason.SCHEDULE_UNKNOWN


@pytest.mark.parametrize(
    ("layout", "settings", "steps", "facts", "whole", "deep", "note"),
    [
        # auto: both, each where it can be
        ("SDXL", {}, 6, STEADY, None, None, ""),
        ("SD 1.5", {}, 6, STEADY, None, LITTLE, ""),
        ("SDXL", {}, 10, NOISE, None, None, ""),
        ("SDXL", {}, 10, NOISE | UNCLEAR, UNKNOWN, None, ""),
        ("SD 1.5", {}, 6, STEADY | UNCLEAR, None, LITTLE, ""),
        ("SDXL", {}, 10, NOBODY, NO_SCHEDULE, NO_SCHEDULE, ""),
        ("SDXL", {}, 10, NOBODY | {"disagrees": True}, Reason.DISAGREES, Reason.DISAGREES, ""),
        ("SDXL", {}, 15, {"growth": 3.1}, GROWS, None, ""),
        ("SDXL", {}, 14, {"growth": 1.7}, GROWS, GROWS, ""),
        ("SDXL", {}, 14, {"course": course_of((1.0,) * 7 + (0.33,) * 7, growth=2.0)}, None, None, ""),
        ("SDXL", {}, 14, {"course": course_of((1.0,) * 7 + (0.33,) * 7, growth=3.1)}, GROWS, GROWS, ""),
        ("SDXL", {}, 15, {"growth": 4.1}, GROWS, GROWS, ""),
        ("SDXL", {}, 10, {"is_split": True}, SPLIT, SPLIT, SPLIT),
        ("SDXL", {}, 5, STEADY, WHOLE_NEED(6, 5), DEEP_NEED(6, 5), ""),
        ("SDXL", {}, 5, NOBODY | {"is_asked": True}, UNKNOWN, UNKNOWN, ""),  # DPM adaptive chooses its own number
        ("SDXL", {}, None, NOBODY, NO_STEPS, NO_STEPS, ""),
        ("SDXL", {}, 6, STEADY | {"holder": "ControlNet"}, HELD["ControlNet"], None, ""),
        ("SDXL", {}, 10, STEADY | {"is_video": True}, VIDEO, None, ""),
        ("SDXL", {}, 8, STEADY | {"alternates": True}, ALTERNATES, ALTERNATES, ""),
        ("SDXL", {"interval": 1}, 16, STEADY, INTERVAL_1, INTERVAL_1, ""),
        # deep transformers by name, and by a number
        ("SDXL", {"predict": "deep"}, 6, STEADY, ONLY, None, ""),
        ("SD 1.5", {"interval": 2}, 4, STEADY, ONLY, None, ""),
        ("SD 1.5", {"interval": 2}, 3, STEADY, ONLY, DEEP_NEED(4, 3), DEEP_NEED(4, 3)),
        ("SD 1.5", {"predict": "deep"}, 6, STEADY, ONLY, LITTLE, LITTLE),
        ("SD 1.5", {"interval": 3}, None, {}, ONLY, None, ""),
        # whole steps by name, and where they cannot be, deep transformers
        ("SDXL", {"predict": "whole"}, 6, STEADY, None, DONE, ""),
        ("SDXL", {"predict": "whole"}, 5, STEADY, WHOLE_NEED(6, 5), DEEP_NEED(6, 5), WHOLE_NEED(6, 5)),
        ("SDXL", {"predict": "whole", "interval": 4}, 5, {}, None, DONE, ""),
        ("SDXL", {"predict": "whole", "interval": 4}, 4, {}, WHOLE_NEED(5, 4), None, WHOLE_NEED(5, 4)),
        ("SDXL", BY_WHOLE, 4, NOISE, None, DONE, ""),
        ("SDXL", BY_WHOLE, 14, {"growth": 1.7}, None, DONE, ""),  # auto does not
        ("SDXL", BY_WHOLE, 16, NOISE | UNCLEAR, UNKNOWN, None, UNKNOWN),
        ("SDXL", BY_WHOLE, None, NOISE | {"holder": "pipeline"}, HELD["pipeline"], None, HELD["pipeline"]),
        ("SD 1.5", {"predict": "whole"}, 20, NOISE | UNCLEAR, UNKNOWN, LITTLE, UNKNOWN),
    ],
)
def test_what_is_predicted_and_why_not_where_it_was_asked_for(layout, settings, steps, facts, whole, deep, note):
    settings, size = Settings(**({"tolerance": 0.04} | settings)), TokenGrid(160, 160)
    made = make_plan(settings, full_layout(layout), pass_of(size, steps, **facts))
    assert made.settings is settings
    assert (made.whole.why, made.deep.why) == (whole, deep)
    assert made.note == ((Reason.UNPREDICTED if deep else Reason.DEEP_INSTEAD)(note) if note else None)
    tolerances = (0.04, 0.01) if settings.predict == "auto" else (0.04, 0.04)
    for part, tolerance, first in zip(made.parts.values(), tolerances, (3, 2), strict=True):
        if part.predicts and settings.interval == "auto":
            assert (part.tolerance, part.computed_first) == (pytest.approx(tolerance), 2 if part.way is Hold else 3)
            assert f"computed as the error asks, tolerance {tolerance:g}" in str(made)
        elif part.predicts:
            first = 2 if part.way is Hold else first
            assert (part.tolerance, part.computed_first, part.interval) == (None, first, settings.interval)
            assert f"{NAMES[part.part]}, computed in 1 of {settings.interval} steps" in str(made)
        elif settings.interval != 1:
            assert f"{NAMES[part.part]}, not predicted: {part.why}" in str(made)


@pytest.mark.parametrize(
    ("noise", "settings", "computed"),
    [
        ((1.0, 0.6, 0.4, 0.3, 0.23, 0.029), {}, {4, 5}),  # ComfyUI's normal: its long step is the last but one
        ((1.0, 0.6, 0.4, 0.3, 0.23, 0.2), {}, {5}),
        ((1.0, 0.6, 0.4, 0.3, 0.23, 0.029), {"interval": 2, "predict": "whole"}, {5}),  # by hand it always acts
    ],
)
def test_the_long_step_at_the_end_is_computed(noise, settings, computed):
    facts = Pass(TokenGrid(160, 160), 6, Course.of_noise((*noise, 0.0)))
    whole = make_plan(Settings(**settings), full_layout("SDXL"), facts).whole
    assert {step for step in range(3, 6) if whole.computes(step, 6, [0, 1, step - 1], gap=2)} == computed


@pytest.mark.parametrize("side", [16, 640])
def test_auto_predicts_layers_below_level_1_of_sdxl_and_none_of_sd_1_5(side):
    assert plan(full_layout("SDXL"), side, steps=10, factor_1=1).deep.predicts
    assert plan(full_layout("SD 1.5"), side, steps=10, factor_1=1).deep.why is LITTLE


@pytest.mark.parametrize(
    ("layout", "pixels", "settings", "facts", "reduced"),
    [
        ("SDXL", 1536, {}, KARRAS, False),
        ("SDXL", 2048, {}, KARRAS, False),
        ("SD 1.5", 768, {}, KARRAS, False),
        ("SD 1.5", 1024, {}, KARRAS, True),  # two of ten whole steps would save less
        ("SD 1.5", 1024, {}, LIGHT, False),  # six of ten save more
        ("SD 1.5", 1536, {}, STEADY, True),
        ("SD 1.5", 1024, {"tolerance": 0.05}, KARRAS, False),  # they move the image farther
        ("SD 1.5", 1024, {"predict": "whole"}, KARRAS, False),
        ("SDXL", 1536, {}, NOISE, False),  # deep layers are predicted
        ("SDXL", 1536, {"predict": "deep"}, STEADY, False),
        ("SD 1.5", 768, {}, NOISE, True),  # a held image is no line
        ("SDXL", 1536, {"interval": 1}, STEADY, True),
        ("SDXL", 1536, {"factor_1": 2}, STEADY, True),  # by hand it always acts
        ("SDXL", 1536, {"method": "similarity"}, STEADY, True),
    ],
)
def test_tokens_are_reduced_where_they_save_more_or_no_line_is_continued(layout, pixels, settings, facts, reduced):
    size = TokenGrid(pixels // 8, pixels // 8)
    facts = pass_of(size, 10, **facts)
    made = make_plan(Settings(**settings), full_layout(layout), facts)
    assert bool(made.reduced) == made.levels[0].reduces == reduced
    shares = {"SDXL": {1536: 10, 2048: 15}, "SD 1.5": {768: 20, 1024: 28}}
    if not reduced:
        share = shares[layout][pixels]
        assert str(made.why_all_tokens) == f"fewer would save {share} % of the pass at {pixels} x {pixels}"
        assert made.levels[0].keys == made.levels[0].grid.tokens
    assert reduced or made.why_all_tokens


@pytest.mark.parametrize(
    ("told", "settings", "window", "share"),
    [
        (KARRAS, {}, (0, 1), 28),
        (KARRAS, {"start": 0.1, "end": 0.95}, (0.1, 0.95), 24),
        (HEAVY, {}, (0.5, 1), 14),
    ],
)
def test_fewer_tokens_alone_leave_predictions_a_part_of_the_tolerance(told, settings, window, share):
    host, facts = full_layout("SD 1.5"), Pass(TokenGrid(128, 128), 10, **told)
    balanced, fast = (make_plan(Settings(tolerance=each, **settings), host, facts) for each in (0.08, 0.16))
    assert str(balanced.whole.why) == f"fewer tokens save {share} % of the pass at 1024 x 1024"
    assert fast.whole.predicts
    assert fast.whole.tolerance == pytest.approx(0.08)
    for plan_of in (balanced, fast):
        assert (plan_of.start, plan_of.end) == window
        assert plan_of.reduced


@pytest.mark.parametrize(
    ("size", "growth", "holder", "why", "window"),
    [
        (96, 1, None, None, (0.3, 1)),  # beside held images
        (80, 1, None, None, (0.7, 1)),  # they would save too little
        (128, 1, "ControlNet", Reason.CONTROLNET, (0.3, 1)),  # alone
        (96, 1, "ControlNet", Reason.CONTROLNET, (0.7, 1)),
        (128, 3.1, None, Reason.GROWS, (0.7, 1)),  # the sampler multiplies their error too
    ],
)
def test_fewer_tokens_act_in_more_steps_beside_held_images_and_where_nothing_is_predicted(
    size, growth, holder, why, window
):
    weights = (3.9, 2.0, 1.0, 0.6, 0.4, 0.3, 0.2, 0.2, 0.2, 0.03)  # Euler a
    facts = Pass(TokenGrid(size, size), 10, course_of(weights, holds=True, growth=growth), holder=holder)
    made = make_plan(Settings(), full_layout("SD 1.5"), facts)
    assert (made.whole.why, made.start, made.end) == (why, *window)
    assert why or made.whole.tolerance == pytest.approx(0.08 if made.start > 0.3 else 0.04)


@pytest.mark.parametrize(
    ("settings", "steps", "known", "window"),
    [
        ({}, 10, HEAVY_FIRST, (0.3, 1)),
        ({"tolerance": 0.04}, 10, HEAVY_FIRST, (0.5, 1)),
        ({"tolerance": 0.13}, 10, HEAVY_FIRST, (0.1, 1)),
        ({}, 10, HEAVY_FIRST[::-1], (0, 0.7)),
        ({"start": 0}, 10, HEAVY_FIRST[::-1], (0, 0.7)),
        ({"start": 0.2}, 10, HEAVY_FIRST, (0.2, 1)),
        ({"start": 0.8}, 10, HEAVY_FIRST[::-1], (0.8, 1)),  # it acts all the same
        ({"end": 0.2}, 10, HEAVY_FIRST, (0, 0.2)),
        ({}, 10, None, (0.3, 1)),
        ({"end": 0.8}, 10, None, (0.3, 0.8)),
        ({}, 1, (1,), (0, 1)),
        ({}, None, None, (0, 1)),
        ({"window": "noise", "end": 0.8}, 10, HEAVY_FIRST, (0, 0.8)),
    ],
)
def test_the_steps_that_weigh_most_keep_all_tokens(settings, steps, known, window):
    facts = Pass(TokenGrid(96, 96), steps, known and course_of(known))
    made = make_plan(Settings(**settings), full_layout("SD 1.5"), facts)
    assert (made.start, made.end) == pytest.approx(window)


def test_models_of_which_nothing_can_be_predicted_say_so(diffusers_sdxl, monkeypatch):
    """A ControlNet has a session of its own, with the UNet's settings."""
    monkeypatch.setattr(todo_core.patching.planning, "WORTH_PREDICTING", 0)
    facts = pass_of(TokenGrid(128, 128), 10)
    host = replace(detect(diffusers_sdxl.unet), network="ControlNet")
    made = make_plan(Settings(**BY_WHOLE), host, facts)
    assert (made.whole.why, made.deep.why) == (Reason.NOT_THE_UNET, DONE)
    types = {"down_block_types": ("CrossAttnDownBlock2D",), "up_block_types": ("CrossAttnUpBlock2D",)}
    one_level = diffusers_unet(block_out_channels=(32,), mid_block_type=None, **types)
    why = make_plan(Settings(interval=2), detect(one_level), facts).deep.why
    assert why is Reason.NOTHING_DEEP
    auto, by_two = (Settings(interval=interval) for interval in ("auto", 2))
    assert make_plan(auto, detect(diffusers_sdxl.unet), facts).deep.predicts
    compiled = diffusers_sdxl.copy().unet
    next(m for m in compiled.modules() if type(m).__name__ == "BasicTransformerBlock").compile(backend="eager")
    assert make_plan(auto, detect(compiled), facts).deep.why is Reason.COMPILED
    for settings, predicts in ((auto, False), (by_two, True)):
        with patched(compiled, settings) as session:
            assert {"forward" in vars(m) for m in session.host.deep_transformers} == {predicts}


# the size a model was trained at ------------------------------------------------------------------------------------


SD2 = {"context_dim": 1024}


@pytest.mark.parametrize(
    ("build", "side"),
    [
        (lambda: ldm_unet(context_dim=768), 64),  # the text's width tells SD1 and SD2
        (lambda: ldm_unet(**SD2), 64),
        (lambda: LatentDiffusion(ldm_unet(**SD2), parameterization="v"), 96),  # the SD2 of 768 pixels
        (lambda: LatentDiffusion(ldm_unet(**SD2), parameterization="eps"), 64),
        (lambda: LatentDiffusion(sgm_unet()), 128),  # sgm means SDXL
        (lambda: ldm_unet(image_size=40), 40),  # any other says its own
        (lambda: LatentDiffusion(ldm_unet(image_size=40), image_size=24), 24),
        (lambda: models.diffusers_sd1().unet, 64),
        (lambda: models.diffusers_sd2().unet, 96),
        (lambda: models.diffusers_sdxl().unet, 128),
        (lambda: diffusers_unet(sample_size=[48, 64]), 48),
    ],
)
def test_the_size_that_a_model_was_trained_at(build, side):
    host = detect(build())
    assert (host.network, host.trained_side, host.depth) == ("UNet", side, int(side == 128))
    assert [host.level(level).trained_side * 2 ** (host.depth + level - 1) for level in (1, 2)] == [side, side]


# levels -------------------------------------------------------------------------------------------------------------


def test_levels_are_those_of_the_layout_and_ranks_count_their_blocks_in_running_order(any_model):
    host, order = detect(any_model.unet), []
    with ExitStack() as stack:
        for site in host.sites:
            stack.enter_context(site.block.register_forward_pre_hook(lambda block, args: order.append(block)))
        any_model(noise(1, 4, 16, 16))
    assert [id(site.block) for site in host.sites] == [id(block) for block in order]
    for level in (1, 2):
        ranks, blocks = zip(*((site.rank, id(site.block)) for site in host.sites if site.level == level), strict=True)
        assert ranks == (*range(host.level(level).blocks),)
        assert {*blocks} == {id(block) for block in any_model.blocks(level)}
    assert host.depth == any_model.halvings
    assert plan(any_model.unet, 64).levels[0].grid == TokenGrid(64, 64).halved(any_model.halvings)


def test_resblocks_that_resample_count_as_one_level():
    blocks = [site.level for site in detect(ldm_unet(resblock_updown=True)).sites]
    assert blocks == [site.level for site in detect(models.ldm_sd1().unet).sites]


def test_a_level_without_attention_says_so():
    made = plan(ldm_unet(attention_resolutions=[1], channel_mult=[1, 2, 2]), 64, factor_1=2, factor_2=2)
    first, second = made.levels
    assert first.reduces
    assert (first.blocks, second.blocks) == (3, 0)
    assert str(second.why) == "this model has no attention at level 2"
    assert str(second.why) in str(made)


def test_blocks_that_only_look_at_the_text_are_no_level():
    unet = ldm_unet(disable_self_attentions=[True, False, False, False])
    host = detect(unet)
    assert host.depth == 1
    assert all(not site.block.disable_self_attn for site in host.sites)


# reasons and text ---------------------------------------------------------------------------------------------------


def test_the_plan_reads_as_a_sentence_for_each_level_and_for_what_comes_past_the_end():
    text = str(plan(sd1_unet(), 128, factor_1=2, factor_2=1, interval=1))
    assert text.splitlines() == [
        "level 1: 128 x 128, 16,384 tokens -> 4,096 by downsample (64 x 64), 5 blocks",
        "level 2: 64 x 64, 4,096 tokens, not reduced: the factor of level 2 is 1",
    ]
    text = str(plan(sd1_unet(), 64, factor_1=2, end=0.6, afterwards="similarity", ratio_1=0.25))
    assert "past 0.6: level 1: 64 x 64, 4,096 tokens -> 3,072 by similarity, 5 blocks" in text.splitlines()


@pytest.mark.parametrize(("ratio", "keys"), [(0.45, 9), (0.99, 1)])
def test_cluster_rounds_its_number_of_keys_to_the_nearest_but_keeps_one(ratio, keys):
    assert plan(sd1_unet(), 4, method="cluster", ratio_1=ratio).levels[0].keys == keys  # of 16 * 0.55 = 8.8


@examples(100)
@given(
    st.integers(1, 150),
    st.integers(0, 10),
    st.integers(0, 10),
    st.integers(-2, 2),
    st.sampled_from(["none", "cluster"]),
)
def test_the_window_takes_the_steps_whose_share_lies_in_it(steps, start, end, rounding, afterwards):
    """In floats too: 0.1 + 0.2 is a little more than 3 / 10. From the end on, the method afterwards acts."""
    assume(start < end)
    near_start, near_end = (min(max(0, each / 10 + rounding * 1e-16), 1) for each in (start, end))
    settings = {"factor_1": 2, "factor_2": 1, "ratio_1": 0.5, "ratio_2": 0, "afterwards": afterwards}
    made = plan(sd1_unet(), 64, start=near_start, end=near_end, **settings)
    past_end = [afterwards] if afterwards != "none" else []
    for step in range(steps):
        inside = ["downsample"] if 10 * step >= start * steps else []
        expected = past_end if 10 * step >= end * steps else inside
        assert [level.method for level in made.at(step / steps)] == expected, step
    assert [level.method for level in made.at(1.0)] == (past_end if near_end < 1 else ["downsample"])
    assert not made.at(start / 10 - 1e-4)


def test_a_quantised_model_has_the_trained_side_of_its_family():
    """torch's quantised layers hide their weight behind a method."""
    unet = shallow_ldm_unet(context_dim=768)
    quantised = torch.ao.quantization.quantize_dynamic(unet, {torch.nn.Linear}, dtype=torch.qint8)
    assert type(detect(quantised).sites[0].block.attn2.to_k) is not torch.nn.Linear
    assert detect(quantised).trained_side == detect(unet).trained_side == 64
