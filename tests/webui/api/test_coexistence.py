"""Beside the WebUI's own switches: its attentions, HyperTile, token merging, split batches, prompts joined by AND."""

import numpy as np
import pytest

from ..helpers import difference, level_1, reduced

FACTOR_2 = {"factor_1": 2}
# two by two tiles in the hires pass, at the finest attention
TILES = {"hypertile_max_tile_unet": 128, "hypertile_swap_size_unet": 0}
ATTENTIONS = ["Automatic", "sdp-no-mem", "sdp", "sub-quadratic", "V1", "InvokeAI", "Doggettx", "None"]


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_attention_of_the_webui_is_reduced_and_gives_the_same_image(webui, attention):
    result = webui.txt2img(FACTOR_2, override_settings={"cross_attention_optimization": attention})
    assert reduced(result.hires) == {(1024, 256)}
    assert difference(result, webui.txt2img(FACTOR_2)) < 1


@pytest.mark.parametrize("option", ["hypertile_enable_unet", "hypertile_enable_unet_secondpass"])
def test_attentions_that_hypertile_splits_are_left_whole_and_named(webui, option):
    request = {"override_settings": {option: True, **TILES}}
    tiled = webui.baseline(**request)
    assert level_1(tiled.hires) == 1024 // 4
    result = webui.txt2img(FACTOR_2, **request)
    assert "level 1 is not reduced: HyperTile splits it into tiles" in result.comments
    assert np.array_equal(result.pixels, tiled.pixels)
    assert "ToDo" not in result.infotext


def test_tiles_as_large_as_the_image_are_no_obstacle(webui):
    request = {"override_settings": {"hypertile_enable_unet": True, **TILES}, "width": 64, "height": 64}
    result = webui.txt2img(FACTOR_2, **request)
    assert reduced(result.hires) == {(256, 64)}
    assert "HyperTile" not in result.comments


def test_attentions_that_hypertile_has_left_are_reduced(webui):
    hypertile = {"hypertile_enable_unet": True, "hypertile_max_depth_unet": 0, **TILES}
    result = webui.txt2img({"factor_1": 2, "factor_2": 2}, override_settings=hypertile)
    assert reduced(result.hires) == {(256, 64)}
    assert "level 1 is not reduced: HyperTile" in result.comments
    assert "level 2 from 256 to 64" in result.comments


@pytest.mark.parametrize("option", ["token_merging_ratio", "token_merging_ratio_hr"])
def test_attentions_that_the_webui_merges_are_left_whole_and_named(webui, option):
    request = {"override_settings": {option: 0.5}}
    if webui.family == "forge":
        pytest.skip("the Forge family merges the queries alone, so ToDo can reduce the keys: see the next test")
    result = webui.txt2img({"factor_1": 2, "factor_2": 2}, **request)
    assert reduced(result.hires) == {(256, 64)}, "the WebUI merges level 1 only"
    assert "level 1 is not reduced: its keys are not whole grids of 1,024 tokens" in result.comments


def test_token_merging_of_the_forge_family_composes(webui):
    if webui.family != "forge":
        pytest.skip("AUTOMATIC1111 merges the queries and the keys together")
    result = webui.txt2img(FACTOR_2, override_settings={"token_merging_ratio_hr": 0.5})
    assert reduced(result.hires) == {(512, 256)}
    assert "level 1 from 1,024 to 256" in result.comments
    assert "Token merging" not in result.comments


def test_the_webuis_token_merging_is_the_same_after_a_reduced_job(webui):
    request = {"override_settings": {"token_merging_ratio": 0.5}, "sampler_name": "Euler"}
    before = webui.baseline(**request)
    webui.txt2img(FACTOR_2, **request)
    assert np.array_equal(webui.txt2img(**request).pixels, before.pixels)


@pytest.mark.parametrize("settings", [FACTOR_2, {"method": "similarity"}], ids=["downsample", "similarity"])
def test_split_cond_and_uncond_give_about_the_image_of_one_batch(webui, settings):
    split_up = {"override_settings": {"batch_cond_uncond": False}}
    joint, split = webui.txt2img(settings), webui.txt2img(settings, **split_up)
    assert {call["rows"] for step in split.hires for call in step["calls"]} == {1}
    assert reduced(split.hires) == reduced(joint.hires)
    noise = difference(webui.baseline(), webui.baseline(**split_up))
    assert difference(split, joint) <= 2 * noise + 0.5


@pytest.mark.parametrize("prompt", ["a cat AND a dog", "a cat AND a dog :0.5 AND a house"])
def test_prompts_joined_by_and_are_reduced(webui, prompt):
    result = webui.txt2img({"method": "similarity"}, prompt=prompt, batch_size=2)
    assert reduced(result.hires) == {(1024, 512)}
    assert len(result.pixels) >= 2


def test_steps_without_uncond_are_reduced(webui):
    skipping = {"s_min_uncond": 4.0, "override_settings": {"s_min_uncond_all": True}}
    result = webui.txt2img({"method": "similarity"}, batch_size=2, **skipping)
    rows = {call["rows"] for step in result.hires for call in step["calls"]}
    assert rows >= {2}, "some steps dropped the unconditional rows"
    assert reduced(result.hires) == {(1024, 512)}


@pytest.mark.parametrize("upscaler", ["Latent", "Lanczos"])
def test_both_kinds_of_upscaler_are_reduced(webui, upscaler):
    webui.need_upscaler(upscaler)
    result = webui.txt2img(FACTOR_2, hr_upscaler=upscaler)
    assert reduced(result.hires) == {(1024, 256)}
    assert reduced(result.first) == set()


def test_a_long_prompt_beside_a_short_negative_one_is_reduced(webui):
    result = webui.txt2img({"method": "similarity"}, prompt="a cat, " * 60)
    assert reduced(result.hires) == {(1024, 512)}
