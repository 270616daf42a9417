"""The hires pass is reduced, in the steps of the window alone; the first pass is not."""

import numpy as np
import pytest

from ..helpers import lengths, level_1, reduced

FACTOR_2 = {"factor_1": 2}
# samplers of one and of two UNet calls a step, with and without noise of their own, by sigma and by timestep
SAMPLERS = ["Euler a", "DPM++ 2M", "Heun", "DPM++ SDE", "DDIM", "LCM", "UniPC"]
ENDS_EARLY = ["DDIM"]  # the WebUI's total counts two steps of an img2img pass that are never run


@pytest.fixture(params=["sd1", "sdxl"])
def checkpoint(request):
    """Request options for each layout; SDXL has no attention at the latent's own size."""
    if request.param == "sd1":
        return {}
    return {"sd_model_checkpoint": request.getfixturevalue("sdxl_checkpoint")}


def test_hires_reduces_the_second_pass_and_leaves_the_first_bit_identical(webui, checkpoint):
    baseline = webui.baseline(override_settings=checkpoint)
    result = webui.txt2img(FACTOR_2, override_settings=checkpoint)

    finest = level_1(baseline.hires)
    assert reduced(result.first) == set()
    assert lengths(result.first) == lengths(baseline.first)
    assert reduced(result.hires) == {(finest, finest // 4)}
    assert [step["latent"] for step in result.first] == [step["latent"] for step in baseline.first]
    assert result.hires[0]["latent"] == baseline.hires[0]["latent"], "what the first pass hands on"
    assert not np.array_equal(result.pixels, baseline.pixels)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_only_the_steps_inside_the_window_are_reduced(webui, sampler):
    window = {"factor_1": 2, "start": 0.25, "end": 0.75}
    result = webui.txt2img(window, sampler_name=sampler, hr_second_pass_steps=8, denoising_strength=1.0)

    never_made = 2 if sampler == "DDIM" and len(result.hires) == result.hires[0]["total"] - 2 else 0  # but counted
    inside = [0.25 <= step["step"] / (step["total"] - never_made) < 0.75 for step in result.hires]
    assert [bool(reduced([step])) for step in result.hires] == inside
    assert not inside[0]
    assert any(inside)
    assert not inside[-1] or sampler in ENDS_EARLY
    assert reduced(result.first) == set()


def test_the_first_pass_alone_can_be_reduced(webui):
    result = webui.txt2img({"factor_1": 2, "passes": "first"})
    assert reduced(result.first) == {(256, 64)}
    assert reduced(result.hires) == set()


def test_both_passes_can_be_reduced(webui):
    result = webui.txt2img({"factor_1": 2, "passes": "all"})
    assert reduced(result.first) == {(256, 64)}
    assert reduced(result.hires) == {(1024, 256)}


def test_each_level_has_its_own_factor(webui):
    result = webui.txt2img({"factor_1": 4, "factor_2": 2})
    assert reduced(result.hires) == {(1024, 64), (256, 64)}


def test_a_window_by_noise_begins_at_that_noise(webui):
    result = webui.txt2img({"factor_1": 2, "window": "noise", "start": 0.5}, hr_second_pass_steps=8)
    acted = [bool(reduced([step])) for step in result.hires]
    assert acted == sorted(acted), "full attention first, then reduced steps"
    assert 0 < sum(acted) < len(acted)


def test_another_method_takes_over_past_the_end(webui):
    settings = {"factor_1": 2, "end": 0.5, "afterwards": "similarity", "ratio_1": 0.5}
    result = webui.txt2img(settings)
    assert [reduced([step]) for step in result.hires] == [{(1024, 256)}] * 2 + [{(1024, 512)}] * 2


def test_automatic_factors_act_above_the_trained_size_and_say_so_below_it(webui):
    small = webui.txt2img({"factor_1": "auto"})
    assert reduced(small.hires) == set()
    assert "nothing to reduce at 256 x 256: this model was trained at 512 x 512. Set a factor" in small.comments

    large = webui.txt2img({"factor_1": "auto"}, hr_resize_x=640, hr_resize_y=640, hr_second_pass_steps=1)
    assert reduced(large.hires) == {(80 * 80, 40 * 40)}


def test_automatic_factors_of_an_oblong_hires_pass(webui):
    """512 x 768 with hires fix by 1.5."""
    small = {"width": 128, "height": 192, "steps": 1, "hr_second_pass_steps": 1}
    result = webui.txt2img({}, **small, hr_resize_x=768, hr_resize_y=1152)
    assert reduced(result.hires) == {(144 * 96, 72 * 48)}


def test_odd_and_oblong_sizes_keep_every_second_row_and_column(webui):
    result = webui.txt2img(FACTOR_2, width=136, height=200, hr_scale=1.5)
    if level_1(result.hires) == 24 * 40:
        pytest.skip("this WebUI makes sizes of hires fix multiples of 64 pixels")
    assert level_1(result.hires) == 25 * 37
    possible = {(25 * 37, rows * columns) for rows in (12, 13) for columns in (18, 19)}
    assert reduced(result.hires) <= possible
    assert len(reduced(result.hires)) > 1, "the position moves"
