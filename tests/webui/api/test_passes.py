"""Requests on a real WebUI beside what the contract says: its samplers, sizes, attentions, tiles and layouts."""

import numpy as np
import pytest

from todo_core.reason import Reason

from ..helpers import FACTOR_2, REDUCED, assert_reduced, level_1, reduced, todo_keys
from .test_prediction import DEEP, WITH_TODO, assert_planned, starts_twice

# samplers of one and of two UNet calls a step, with and without noise of their own, by sigma and by timestep
SAMPLERS = ["Euler a", "DPM++ 2M", "Heun", "DPM++ SDE", "DDIM", "LCM", "UniPC"]
ENDS_EARLY = ["DDIM"]  # the WebUI's total counts two steps of an img2img pass that are never run
ATTENTIONS = ["Automatic", "sdp-no-mem", "sdp", "sub-quadratic", "V1", "InvokeAI", "Doggettx", "None"]
SIMILARITY, HALF = {"method": "similarity", "ratio_1": 0.5, "start": 0, "end": 1}, {(256, 128)}
BOTH = FACTOR_2 | {"factor_2": 2}
ONE_STEP = {"steps": 1, "hr_second_pass_steps": 1}
# two by two tiles in the hires pass, at level 1
TILED = {"hypertile_enable_unet": True, "hypertile_max_tile_unet": 128, "hypertile_swap_size_unet": 0}


def case(settings, *hires, told=(), family="", options=None, **request):
    """A row: settings, what the hires pass reduces if not the usual, and more for ``assert_reduced``."""
    row = {"todo": settings, "hires": set(hires) or REDUCED, "told": told, **request}
    return family, row | {"override_settings": options} if options else row


CASES = {
    "auto above the trained size, oblong": case(
        {}, (9600, 2400), told=["level 1 from"], height=96, hr_resize_x=640, hr_resize_y=960, **ONE_STEP
    ),
    "a long prompt": case(SIMILARITY, *HALF, prompt="a cat, " * 60),
    "another upscaler": case(FACTOR_2, hr_upscaler="Lanczos"),
    "steps without uncond": case(SIMILARITY, *HALF, batch_size=2, s_min_uncond=4.0, options={"s_min_uncond_all": True}),
    "level 1 in tiles": case(
        BOTH,
        (256, 64),
        told=["level 1 is not reduced: HyperTile splits it into tiles", "level 2 from 256 to 64"],
        options=TILED | {"hypertile_max_depth_unet": 0},
        width=128,
        height=128,
    ),
    "merged tokens, at level 1 only": case(
        BOTH,
        (64, 16),
        told=["Token merging (0.5) is on", "level 1 is not reduced: its keys are not whole grids of 256 tokens"],
        options={"token_merging_ratio_hr": 0.5},
        family="a1111",
    ),
    "merged queries": case(
        FACTOR_2, (128, 64), told=["level 1 from 256 to 64"], options={"token_merging_ratio_hr": 0.5}, family="forge"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_requests(webui, name):
    family, row = CASES[name]
    if family not in ("", webui.family):
        pytest.skip("another family merges tokens in another way")
    if "hr_upscaler" in row:
        webui.need_upscaler(row["hr_upscaler"])
    result = assert_reduced(webui, **row)
    assert "s_min_uncond" not in row or {call["rows"] for call in result.calls} >= {2}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_only_the_steps_inside_the_window_are_reduced(webui, sampler):
    window = {"factor_1": 2, "interval": 1, "start": 0.25, "end": 0.75}
    result = webui.txt2img(window, sampler_name=sampler, hr_second_pass_steps=8, denoising_strength=1.0)

    steps, total = [event["step"] for event in result.hires], result.hires[0]["total"]
    if starts_twice(webui, sampler):
        steps, total = [max(0, step - 1) for step in steps], len(steps) - 1
    elif sampler == "DDIM" and len(steps) == total - 2:  # never made, but counted
        total -= 2
    inside = [0.25 <= step / total < 0.75 for step in steps]
    assert [bool(reduced([step])) for step in result.hires] == inside
    assert not inside[0]
    assert any(inside)
    assert not inside[-1] or sampler in ENDS_EARLY
    assert reduced(result.first) == set()


def test_odd_and_oblong_sizes_keep_every_second_row_and_column(webui):
    result = webui.txt2img(FACTOR_2, width=72, height=104, hr_scale=1.5)
    if level_1(result.hires) % 64 == 0:
        pytest.skip("this WebUI makes sizes of hires fix multiples of 64 pixels")
    assert level_1(result.hires) == 13 * 19
    assert reduced(result.hires) <= {(13 * 19, rows * columns) for rows in (6, 7) for columns in (9, 10)}
    assert len(reduced(result.hires)) > 1, "the position moves"


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_attention_of_the_webui_is_reduced_and_gives_the_same_image(webui, attention):
    result = webui.txt2img(FACTOR_2, override_settings={"cross_attention_optimization": attention})
    assert reduced(result.hires) == REDUCED
    assert np.abs(result.pixels - webui.txt2img(FACTOR_2).pixels).mean() < 1, "grey levels of 255"


def test_an_image_of_the_second_batch_is_the_image_of_its_seed_alone(webui):
    todo, request = {**SIMILARITY, "phase": "rotate"}, {"prompt": "a cat AND a dog", **ONE_STEP}
    batch, control = (webui.txt2img(each, batch_size=2, n_iter=2, **request) for each in (todo, None))
    seed = batch.info["all_seeds"][-1]
    assert todo_keys(batch.info["infotexts"][-1])["ToDo method"] == "similarity"
    alone, plain = webui.txt2img(todo, seed=seed, **request), webui.baseline(seed=seed, **request)
    noise = np.abs(control.pixels[-1] - plain.pixels[0]).mean()
    assert np.abs(batch.pixels[-1] - alone.pixels[0]).mean() <= 2 * noise + 0.1
    assert np.abs(batch.pixels[-1] - control.pixels[-1]).mean() > 0.1, "it is reduced"


@pytest.mark.parametrize(("number", "side"), [(0, 512), (1, 768)], ids=["noise", "v-prediction"])
def test_sd2_has_the_trained_size_of_its_kind(request, webui, number, side):
    """Forge knows v-prediction only from a yaml beside the checkpoint."""
    names = request.config.getoption("--webui-sd2-checkpoints") or pytest.skip("needs --webui-sd2-checkpoints")
    chosen = {"override_settings": {"sd_model_checkpoint": names.split(",")[number]}, **ONE_STEP}
    assert_reduced(webui, {}, set(), told=[f"this model was trained at {side} x {side}"], **chosen)
    finest = (side * 5 // 4 // 8) ** 2
    enlarged = {"hr_resize_x": side * 5 // 4, "hr_resize_y": side * 5 // 4}
    assert_reduced(webui, {}, {(finest, finest // 4)}, **enlarged, **chosen)


def test_sdxl_has_its_own_levels_and_trained_size(webui, sdxl_checkpoint):
    """It has no attention at the latent's own size. Both reductions, of tokens and of steps, see its levels."""
    chosen = {"override_settings": {"sd_model_checkpoint": sdxl_checkpoint}}
    told = ["nothing to reduce at 128 x 128: this model was trained at 1024 x 1024"]
    assert_reduced(webui, {"interval": 1}, set(), told=told, **chosen)
    result = assert_reduced(webui, WITH_TODO, {(64, 16)}, hr_second_pass_steps=8, **chosen)
    assert_planned(result.hires, DEEP)
    factors = {"ToDo factor 1": "2", "ToDo factor 2": "1", "ToDo start": "0", "ToDo end": "1"}
    assert todo_keys(result.infotext) == {
        "ToDo method": "downsample",
        "ToDo interval": "2",
        "ToDo predict": "auto (deep)",
        **factors,
    }


def test_a_transformer_is_named_and_its_image_is_the_baselines(request, webui):
    checkpoint = request.config.getoption("--webui-transformer-checkpoint") or pytest.skip("needs such a checkpoint")
    chosen = {"override_settings": {"sd_model_checkpoint": checkpoint}, **ONE_STEP}
    baseline, result = webui.baseline(**chosen), webui.txt2img(FACTOR_2, **chosen)
    assert "ToDo cannot reduce" in result.comments
    assert "is not a UNet of SD 1, SD 2 or SDXL" in result.comments
    assert np.array_equal(result.pixels, baseline.pixels)
    assert "ToDo" not in result.infotext


def test_the_line_has_the_steps_that_the_sampler_makes(webui):
    """In AUTOMATIC1111 DDIM makes four of six."""
    result = webui.txt2img({"factor_1": 2, "predict": "whole"}, sampler_name="DDIM", hr_second_pass_steps=6)
    is_short = len(result.hires) < 6
    assert (f"6 or more steps, and the sampler makes {len(result.hires)}:" in result.comments) == is_short


def test_the_line_tells_the_sampler_that_stands_in_the_way_also_at_the_trained_size(webui):
    if webui.family != "a1111":
        pytest.skip("has DPM adaptive in AUTOMATIC1111 alone")
    line = webui.txt2img({}, sampler_name="DPM adaptive").comments
    assert "this model was trained at" in line
    assert str(Reason.UNKNOWN) in line
    result = webui.txt2img(FACTOR_2, sampler_name="DPM adaptive")
    assert reduced(result.hires) == REDUCED
    assert f"in {len(result.hires)} of {len(result.hires)} model calls" in result.comments
