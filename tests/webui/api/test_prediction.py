"""Predictions on a real WebUI beside what the contract says: its samplers, prompts, checkpoints and messages."""

import numpy as np
import pytest

from todo_core.samplers import ADDS_NOISE

from ..helpers import FACTOR_2, REDUCED, assert_reduced, latents, level_1, reduced, todo_keys
from .test_jobs import lora  # noqa: F401  a fixture

STEPS = {"hr_second_pass_steps": 8}
DEEP = {"factor_1": 1, "factor_2": 1, "interval": 2}  # no reduction beside it
WITH_TODO = DEEP | FACTOR_2
WHOLE = DEEP | {"predict": "whole"}
BOTH = pytest.mark.parametrize("settings", [DEEP, WHOLE], ids=["deep layers", "whole steps"])
NO_NOISE = ["DPM++ 2M", "LMS", "DDIM", "PLMS", "UniPC"]
TWO_CALLS = {"negative_prompt": "many words, " * 90}  # a step on A1111
REQUESTS = {
    **{f"whole steps, {sampler}": (WHOLE, {"sampler_name": sampler}, WHOLE) for sampler in NO_NOISE},
    "noise": (WHOLE, {"sampler_name": "DPM++ 2M SDE"}, DEEP),
    "churn": (WHOLE, {"s_churn": 5}, DEEP),
    "deep layers, AND": (WITH_TODO, {"prompt": "a cat AND a dog :0.5", "batch_size": 2}, DEEP),
    "whole steps, AND": (WHOLE, {"prompt": "a cat AND a dog :0.5"}, WHOLE),
    "deep layers, two calls": (WITH_TODO, TWO_CALLS, DEEP),
    "whole steps, two calls": (WHOLE, TWO_CALLS, WHOLE),
}


def planned(settings):
    """The computed ones of eight steps."""
    return [True, True, True, False, True, False, True, True] if settings == WHOLE else [True, True, *[False, True] * 3]


def runs_of(events, kind=""):
    """How many self-attentions at level 1, and how many below it, ran in each step, in networks of this class."""
    calls = [[call for call in event["calls"] if kind in call["class"]] for event in events]
    queries = [[queries for call in step for queries, _ in call["lengths"]] for step in calls]
    finest = max(max(step, default=0) for step in queries)
    return [sum(q == finest for q in step) for step in queries], [sum(q < finest for q in step) for step in queries]


def deep_runs(events, kind=""):
    return runs_of(events, kind)[1]


def assert_planned(events, settings):
    """The last call is computed. Level 1 runs in each call, but for predicted whole steps, in which nothing does."""
    expected, (shallow, deep) = planned(settings), runs_of(events)
    assert len(deep) >= len(expected) - 2, "UniPC makes one call less than it has steps, DDIM two"
    expected = [*expected[: len(deep) - 1], True]
    assert [bool(count) for count in deep] == expected
    assert [bool(count) for count in shallow] == (expected if settings == WHOLE else [True] * len(deep))
    assert all(len(set(counts) - {0}) == 1 for counts in (shallow, deep))


def predicted(webui, settings, **request):
    """An image with predictions in its hires pass; the rest is as without them."""
    request = STEPS | request
    hires = REDUCED if settings == WITH_TODO else set()
    return assert_reduced(webui, settings, hires, differs=True, **request)


@pytest.mark.parametrize("sampler", ["DPM++ 2M", "Euler a", "Heun"])
def test_the_defaults_reduce_tokens_in_each_step_with_each_sampler(webui, sampler):
    """No setting is named: above the size that the model was trained at. In SD 1.5's layout auto predicts nothing."""
    request = {"width": 320, "height": 320, "steps": 2, "hr_second_pass_steps": 6, "sampler_name": sampler}
    auto = {"ToDo method": "downsample", "ToDo factor 1": "auto (2)", "ToDo interval": "auto (1)"}
    told = ["level 1 from 6,400 to 1,600 tokens (downsample) in"]
    result = assert_reduced(webui, {}, {(6400, 1600)}, told=told, keys=auto, **request)
    assert all(reduced([event]) for event in result.hires)
    assert all(deep_runs(result.hires))


@pytest.mark.parametrize("settings", [DEEP, WITH_TODO, WHOLE], ids=["deep layers", "with ToDo", "whole steps"])
def test_the_user_is_told_what_was_computed_and_it_repeats_bit_for_bit(webui, settings):
    result = predicted(webui, settings)
    assert_planned(result.hires, settings)
    if settings != WITH_TODO:
        assert latents(result.hires[:2]) == latents(webui.baseline(**STEPS).hires[:2])
    whole = {"ToDo predict": "whole"} if settings == WHOLE else {}
    method = {"ToDo method": "downsample"} if settings == WITH_TODO else {}
    factors = {"ToDo factor 1": str(settings["factor_1"]), "ToDo factor 2": "1"}
    assert todo_keys(result.infotext) == {"ToDo interval": "2", **factors, **whole, **method}
    told = "whole model computed in 6 of" if whole else "transformers below level 1 computed in 5 of"
    assert f"{told} 8 steps" in result.comments
    assert np.array_equal(webui.txt2img(settings, **STEPS).pixels, result.pixels)


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(webui, name):
    settings, request, expected = REQUESTS[name]
    result = predicted(webui, settings, **request)
    assert_planned(result.hires, expected)
    is_noisy = (settings, expected) == (WHOLE, DEEP)
    assert (f"{ADDS_NOISE}: layers below level 1 are predicted" in result.comments) == is_noisy
    assert ("ToDo predict" in todo_keys(result.infotext)) == (expected == WHOLE)


@BOTH
def test_prompt_editing_is_computed_at_the_change(webui, settings):
    """1.5 is half of the hires pass: two steps, or three whole ones, are computed from the change on."""
    result = predicted(webui, settings, prompt="a [cat:dog:1.5]")
    runs = [bool(count) for count in deep_runs(result.hires)]
    computed = 3 if settings == WHOLE else 2
    assert runs[: computed + 1] == [*[True] * computed, False]
    assert [True] * computed in [runs[i : i + computed] for i in range(3, 6)]
    assert all(runs[4:]) == (settings == WHOLE)


def test_an_alternating_prompt_is_never_predicted(webui):
    result = predicted(webui, WITH_TODO, prompt="a [cat|dog]")
    assert all(deep_runs(result.hires))
    assert "in 8 of 8 steps; nothing predicted: too few steps in a row are alike" in result.comments


@BOTH
def test_img2img_is_predicted(webui, settings):
    """The WebUI runs the share of the steps that the denoising strength asks for."""
    image = webui.baseline().base64_images[0]
    result = webui.img2img(image, settings, steps=8, denoising_strength=0.99, width=128, height=128)
    assert_planned(result.events, settings)
    assert result.hooks_left == 0


@BOTH
def test_another_checkpoint_in_the_hires_pass_is_predicted(webui, other_checkpoint, settings):
    assert_planned(predicted(webui, settings, hr_checkpoint_name=other_checkpoint).hires, settings)


@BOTH
def test_a_refiner_in_mid_pass_begins_a_history_of_its_own(webui, other_checkpoint, settings):
    """It takes over at step 4, where the base would be predicted."""
    refiner = {"refiner_checkpoint": other_checkpoint, "refiner_switch_at": 0.5}
    result = predicted(webui, settings, **refiner, override_settings={"hires_fix_refiner_pass": "second pass"})
    assert "Refiner" in result.infotext
    by_unet = [{call["unet"] for call in event["calls"]} for event in result.hires]
    computed = [bool(count) for count in deep_runs(result.hires)]
    switch, anew = next(n for n, unets in enumerate(by_unet) if unets - by_unet[0]), 3 if settings == WHOLE else 2
    before, after = planned(settings)[:switch], planned(settings)[switch + anew :]
    assert computed == [*before, *[True] * anew, *after], (by_unet, result.comments)
    assert f"computed in {computed.count(True)} of 8 steps" in result.comments


def test_sdxl_is_predicted_too(webui, sdxl_checkpoint):
    request = {**STEPS, "override_settings": {"sd_model_checkpoint": sdxl_checkpoint}}
    result = assert_reduced(webui, WITH_TODO, {(64, 16)}, **request)
    assert level_1(result.hires) == 64, "a latent of 256 tokens"
    assert_planned(result.hires, WITH_TODO)


def test_a_lora_is_predicted_with_it(webui, lora):  # noqa: F811
    request = {"prompt": f"a cat <lora:{lora}:1>"}
    assert_planned(predicted(webui, WITH_TODO, **request).hires, WITH_TODO)
    assert not np.array_equal(webui.baseline(**STEPS).pixels, webui.baseline(**STEPS, **request).pixels), "it acts"
