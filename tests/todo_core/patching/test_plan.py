"""What the plan says will happen, and why nothing will where nothing will."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from ldm.modules.diffusionmodules.openaimodel import UNetModel

from tests.models import (
    LatentDiffusion,
    diffusers_sd1,
    diffusers_sd2,
    diffusers_sdxl,
    diffusers_unet,
    full_layout,
    ldm_sd1,
    ldm_unet,
    noise,
    shallow_ldm_unet,
)
from todo_core import Settings, TokenGrid
from todo_core.hosts import detect
from todo_core.patching.plan import Pass, make_plan


def plan(model, height, width=None, steps=None, **settings):
    return make_plan(Settings(**settings), detect(model), Pass(TokenGrid(height, width or height), steps))


@functools.cache
def sd1_unet():
    """The whole layout of SD1.5 with its text width, by which it is known."""
    return ldm_unet(num_res_blocks=2, channel_mult=[1, 2, 4, 4], context_dim=768)


class SgmUnet(UNetModel):
    """ldm's UNet under sgm's name."""


SgmUnet.__module__ = "sgm.modules.diffusionmodules.openaimodel"


def sgm_unet():
    config = {"attention_resolutions": [4, 2], "channel_mult": [1, 2, 4], "num_res_blocks": 2}
    return SgmUnet(32, 4, 32, 4, **config, num_heads=8, use_spatial_transformer=True, context_dim=32, legacy=False)


# auto ---------------------------------------------------------------------------------------------------------------


# the table of docs/method.md
AUTO = [
    (64, 1, 1),
    (76, 1, 1),
    (77, 2, 1),
    (96, 2, 1),
    (128, 2, 1),
    (192, 2, 1),
    (1024, 2, 1),
]


@pytest.mark.parametrize(("side", "first", "second"), AUTO)
def test_auto_takes_whole_factors_by_the_size(side, first, second):
    levels = plan(sd1_unet(), side).levels
    assert [level.amount or 1 for level in levels] == [first, second]
    assert [level.target_grid for level in levels if level.reduces] == [
        level.grid.strided(factor) for level, factor in zip(levels, (first, second), strict=True) if factor > 1
    ]


@pytest.mark.parametrize(
    ("height", "width", "factor"), [(128, 64, 2), (64, 96, 2), (64, 80, 1), (135, 240, 2), (180, 320, 2)]
)
def test_auto_counts_tokens_where_the_image_is_oblong(height, width, factor):
    assert (plan(sd1_unet(), height, width).levels[0].amount or 1) == factor


@pytest.mark.parametrize("side", [64, 48])
def test_auto_leaves_alone_what_is_not_above_the_trained_size_and_says_so(side):
    made = plan(sd1_unet(), side)
    assert not made.reduces
    level = made.levels[0]
    assert (level.keys, level.target_grid) == (side * side, None)
    assert level.why == made.reason == "this model was trained at 512 x 512"
    pixels = side * 8
    assert made.nothing_to_reduce == f"nothing to reduce at {pixels} x {pixels}: {level.why}. Set Factor, level 1 to 2."


def test_auto_says_why_level_2_stays_whole_where_level_1_does_not():
    first, second = plan(sd1_unet(), 128).levels
    assert first.reduces
    assert second.why == "auto reduces only level 1 at this size"


XL_AUTO = [(128, 1, 1), (160, 2, 1), (192, 2, 1), (256, 2, 1), (384, 2, 1), (512, 2, 1), (1024, 2, 1)]


@pytest.mark.parametrize(("side", "first", "second"), XL_AUTO)
def test_auto_of_sdxl_counts_from_the_grids_of_its_own_levels(side, first, second):
    levels = plan(diffusers_sdxl().unet, side).levels
    expected = [(side // 2, first), (side // 4, second)]
    assert [(level.grid.height, level.amount or 1) for level in levels] == expected


@pytest.mark.parametrize(
    ("layout", "settings", "steps", "advice"),
    [
        ("SD 1.5", {}, 20, "Set Factor, level 1 to 2"),
        ("SD 1.5", {"predict": "whole", "factor_1": 1, "factor_2": 1}, 5, "Set Factor, level 1 to 2"),
        ("SD 1.5", {"method": "similarity", "ratio_1": 0}, 20, "Set Ratio, level 1 to 0.5"),
        ("SDXL", {"interval": 1}, 20, "Set Interval to auto"),
        ("SDXL", {}, 5, "Set Interval to 2"),
        ("SDXL", {}, None, "Set Interval to 2"),
        ("SDXL", {"interval": 1}, 4, "Set Interval to 2"),
        ("SDXL", {}, 3, "Set Factor, level 1 to 2"),
        ("SDXL", {"method": "none"}, 20, ""),
    ],
)
def test_a_plan_that_reduces_nothing_names_what_would_help_most(layout, settings, steps, advice):
    side = 128 if layout == "SDXL" else 64
    made = plan(full_layout(layout), side, steps=steps, **settings)
    assert not made.reduces
    assert made.advice == advice
    assert made.nothing_to_reduce.endswith(f"{made.reason}. {advice}." if advice else f"{made.reason}.")


def test_the_reason_says_why_whole_steps_are_not_predicted():
    made = plan(full_layout("SD 1.5"), 128, steps=5, predict="whole", factor_1=1)
    assert made.reason.startswith("whole steps need 6 or more steps: nothing is predicted; the factor of level 1 is 1")


# the size a model was trained at ------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [768, 1024])
def test_a_text_width_of_sd1_or_sd2_means_64(width):
    assert detect(ldm_unet(context_dim=width)).trained_side == 64


def test_v_prediction_means_the_sd2_of_768_pixels():
    unet = ldm_unet(context_dim=1024)
    assert detect(LatentDiffusion(unet, parameterization="v")).trained_side == 96
    assert detect(LatentDiffusion(unet, parameterization="eps")).trained_side == 64


def test_sgm_means_sdxl():
    host = detect(LatentDiffusion(sgm_unet()))
    assert (host.network, host.trained_side, host.depth) == ("UNet", 128, 1)


def test_any_other_ldm_model_says_its_own_size():
    assert detect(ldm_unet(image_size=40)).trained_side == 40
    assert detect(LatentDiffusion(ldm_unet(image_size=40), image_size=24)).trained_side == 24


@pytest.mark.parametrize(("build", "side"), [(diffusers_sd1, 64), (diffusers_sd2, 96), (diffusers_sdxl, 128)])
def test_diffusers_says_it_in_the_config(build, side):
    assert detect(build().unet).trained_side == side


def test_diffusers_may_say_it_as_height_and_width():
    assert detect(diffusers_unet(sample_size=[48, 64])).trained_side == 48


def test_the_side_halves_with_each_level():
    host = detect(diffusers_sdxl().unet)
    assert [host.trained_side_at(level) for level in (1, 2)] == [64, 32]


# levels -------------------------------------------------------------------------------------------------------------


def test_levels_are_those_of_the_layout(any_model):
    host = detect(any_model.unet)
    for level in (1, 2):
        found = [site.block for site in host.sites if site.level == level]
        assert {id(block) for block in found} == {id(block) for block in any_model.blocks(level)}
        assert host.blocks(level) == len(any_model.blocks(level))
    assert host.depth == any_model.halvings
    assert plan(any_model.unet, 64).levels[0].grid == TokenGrid(64, 64).halved(any_model.halvings)


def test_ranks_count_the_blocks_of_a_level_in_running_order(any_model):
    order = []
    host = detect(any_model.unet)
    handles = [s.block.register_forward_pre_hook(lambda block, args: order.append(block)) for s in host.sites]
    any_model(noise(1, 4, 16, 16))
    for handle in handles:
        handle.remove()
    assert [id(site.block) for site in host.sites] == [id(block) for block in order]
    for level in (1, 2):
        ranks = [site.rank for site in host.sites if site.level == level]
        assert ranks == list(range(len(any_model.blocks(level))))


def test_resblocks_that_resample_count_as_one_level():
    blocks = [site.level for site in detect(ldm_unet(resblock_updown=True)).sites]
    assert blocks == [site.level for site in detect(ldm_sd1().unet).sites]


def test_a_level_without_attention_says_so():
    made = plan(ldm_unet(attention_resolutions=[1], channel_mult=[1, 2, 2]), 64, factor_1=2, factor_2=2)
    first, second = made.levels
    assert first.reduces
    assert (first.blocks, second.blocks) == (3, 0)
    assert second.why == "this model has no attention at level 2"
    assert second.why in str(made)


def test_blocks_that_only_look_at_the_text_are_no_level():
    unet = ldm_unet(disable_self_attentions=[True, False, False, False])
    host = detect(unet)
    assert host.depth == 1
    assert all(not site.block.disable_self_attn for site in host.sites)


# reasons and text ---------------------------------------------------------------------------------------------------


def test_the_plan_reads_as_a_sentence_for_each_level():
    text = str(plan(sd1_unet(), 128, factor_1=2, factor_2=1, interval=1))
    assert text.splitlines() == [
        "level 1: 128 x 128, 16,384 tokens -> 4,096 by downsample (64 x 64), 5 blocks",
        "level 2: 64 x 64, 4,096 tokens, not reduced: the factor of level 2 is 1",
    ]


def test_the_plan_says_what_comes_past_the_end():
    text = str(plan(sd1_unet(), 64, factor_1=2, end=0.6, afterwards="similarity", ratio_1=0.25))
    assert "past 0.6: level 1: 64 x 64, 4,096 tokens -> 3,072 by similarity, 5 blocks" in text.splitlines()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"method": "none"}, "the method is none"),
        ({"factor_1": 1}, "the factor of level 1 is 1; auto reduces only level 1 at this size"),
        ({"factor_1": 1, "factor_2": 1}, "the factor of level 1 is 1; the factor of level 2 is 1"),
        ({"method": "similarity", "ratio_1": 0}, "the ratio of level 1 is 0; the ratio of level 2 is 0"),
        ({"method": "cluster", "ratio_1": 0}, "the ratio of level 1 is 0; the ratio of level 2 is 0"),
        ({"target": "all", "attn": False, "factor_1": 2}, "target is all, but attn, cross"),
    ],
)
def test_a_plan_that_does_nothing_says_why(settings, reason):
    made = plan(sd1_unet(), 128, interval=1, **settings)
    assert not made.reduces
    assert made.at(0.5) == ()
    assert made.reason.startswith(reason)
    assert made.deep.why == ("the method is none" if settings == {"method": "none"} else "the interval is 1")


def test_a_grid_too_small_to_lose_a_token_says_so():
    made = plan(sd1_unet(), 8, method="similarity", ratio_1=0.01)
    assert not made.reduces
    assert "too small" in made.levels[0].why


def test_cluster_rounds_its_number_of_keys_to_the_nearest():
    assert plan(sd1_unet(), 4, method="cluster", ratio_1=0.45).levels[0].keys == 9  # of 16 * 0.55 = 8.8


@pytest.mark.parametrize("steps", [3, 7, 10, 20, 30, 150])
def test_the_window_takes_the_steps_whose_share_lies_in_it(steps):
    made = plan(sd1_unet(), 64, factor_1=2, start=0.2, end=0.7)
    acting = [step for step in range(steps) if made.at(step / steps)]
    assert acting == [step for step in range(steps) if 2 * steps <= 10 * step < 7 * steps]


def test_a_window_computed_in_floats_is_taken_as_it_is_meant():
    """0.1 + 0.2 is a little more than 3 / 10, and 0.7 + 1e-16 than 7 / 10."""
    late = plan(sd1_unet(), 64, factor_1=2, start=0.1 + 0.2)
    assert late.at(3 / 10)
    early = plan(sd1_unet(), 64, factor_1=2, end=math.nextafter(0.7, 1))
    assert not early.at(7 / 10)
    assert early.at(0.6999)
    assert not late.at(0.2999)


def test_an_end_of_1_takes_the_last_step_too():
    made = plan(sd1_unet(), 64, factor_1=2)
    assert made.at(1.0) == made.levels[:1]


def test_the_method_that_takes_over_acts_from_the_end_on():
    made = plan(sd1_unet(), 64, factor_1=2, start=0.2, end=0.7, afterwards="cluster", ratio_1=0.5)
    methods = [[level.method for level in made.at(step / 10)] for step in range(10)]
    assert methods == [[]] * 2 + [["downsample"]] * 5 + [["cluster"]] * 3


@pytest.mark.parametrize("size", [(65, 97), (33, 20), (7, 5)])
def test_odd_grids_round_as_the_convolutions_do(size):
    made = plan(sd1_unet(), *size, factor_1=2, factor_2=2)
    assert [level.grid.size for level in made.levels] == [size, (-(-size[0] // 2), -(-size[1] // 2))]
    assert [level.target_grid for level in made.levels] == [level.grid.strided(2) for level in made.levels]
    fixed = plan(sd1_unet(), *size, factor_1=2, factor_2=2, phase="fixed")
    assert [level.target_grid for level in fixed.levels] == [level.grid.reduced(2) for level in fixed.levels]


def test_a_method_afterwards_needs_an_end_before_the_last_step():
    made = plan(sd1_unet(), 64, factor_1=1, factor_2=1, afterwards="cluster", ratio_1=0.5)
    assert made.after == ()
    assert not made.reduces


def test_a_quantised_model_has_the_trained_side_of_its_family():
    """torch's quantised layers hide their weight behind a method."""
    unet = shallow_ldm_unet(context_dim=768)
    quantised = torch.ao.quantization.quantize_dynamic(unet, {torch.nn.Linear}, dtype=torch.qint8)
    assert type(detect(quantised).sites[0].block.attn2.to_k) is not torch.nn.Linear
    assert detect(quantised).trained_side == detect(unet).trained_side == 64
