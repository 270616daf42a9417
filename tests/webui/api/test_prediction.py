"""Predictions on a real WebUI: what ran in each step, what is left behind, what the user is told."""

import numpy as np
import pytest

from todo_core.samplers import ADDS_NOISE

from ..helpers import level_1, reduced, todo_keys
from .test_jobs import lora  # noqa: F401  a fixture

STEPS = {"hr_second_pass_steps": 8}
DEEP = {"factor_1": 1, "factor_2": 1, "interval": 2}  # no reduction beside it
WITH_TODO = DEEP | {"factor_1": 2}
WHOLE = DEEP | {"predict": "whole"}
BOTH = pytest.mark.parametrize("settings", [DEEP, WHOLE], ids=["deep layers", "whole steps"])
DEFAULTS = {"width": 320, "height": 320, "steps": 2}  # hires: above the size that the model was trained at


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


def assert_planned(events, settings, expected=None):
    """The last call is computed. Level 1 runs in each call, but for predicted whole steps, in which nothing does."""
    expected = expected or planned(settings)
    shallow, deep = runs_of(events)
    assert len(deep) >= len(expected) - 2, "UniPC makes one call less than it has steps, DDIM two"
    expected = [*expected[: len(deep) - 1], True]
    assert [bool(count) for count in deep] == expected
    assert [bool(count) for count in shallow] == (expected if settings == WHOLE else [True] * len(deep))
    assert all(len(set(counts) - {0}) == 1 for counts in (shallow, deep))


def assert_nothing_is_left(webui, **request):
    assert webui.hooks() == 0
    assert np.array_equal(webui.txt2img(**request).pixels, webui.baseline(**request).pixels)


@pytest.mark.parametrize("sampler", ["DPM++ 2M", "Euler a", "Heun"])
def test_the_defaults_reduce_tokens_in_each_step_with_each_sampler(webui, sampler):
    """No setting is named. In a model of SD 1.5's layout auto predicts nothing."""
    request = DEFAULTS | {"sampler_name": sampler}
    result = webui.txt2img({}, hr_second_pass_steps=6, **request)
    finest = (2 * 320 // 8) ** 2
    assert all(reduced([event]) == {(finest, finest // 4)} for event in result.hires)
    assert all(deep_runs(result.hires))
    alone = webui.txt2img(enable_hr=False, **request)
    assert [e["latent"] for e in result.first] == [e["latent"] for e in alone.events]
    assert result.pixels.std() > 5
    assert "level 1 from 6,400 to 1,600 tokens (downsample) in" in result.comments
    auto = {"ToDo method": "downsample", "ToDo factor 1": "auto (2)", "ToDo interval": "auto (1)"}
    assert todo_keys(result.infotext) == auto
    assert result.hooks_left == 0
    assert_nothing_is_left(webui)


@pytest.mark.parametrize(
    ("settings", "told", "written"),
    [
        (DEEP, "transformers below level 1 computed in 5 of 8 steps", {}),
        (WITH_TODO, "transformers below level 1 computed in 5 of 8 steps", {"ToDo method": "downsample"}),
        (WHOLE, "whole model computed in 6 of 8 steps", {"ToDo predict": "whole"}),
    ],
    ids=["deep layers", "with ToDo", "whole steps"],
)
def test_the_planned_steps_are_computed_and_it_repeats_bit_for_bit(webui, settings, told, written):
    baseline, result = webui.baseline(**STEPS), webui.txt2img(settings, **STEPS)
    assert_planned(result.hires, settings)
    assert [e["latent"] for e in result.first] == [e["latent"] for e in baseline.first]
    if settings != WITH_TODO:
        assert [e["latent"] for e in result.hires[:2]] == [e["latent"] for e in baseline.hires[:2]]
    assert not np.array_equal(result.pixels, baseline.pixels)
    assert reduced(result.hires) == ({(1024, 256)} if settings == WITH_TODO else set())
    assert result.hooks_left == 0
    assert told in result.comments
    factors = {"ToDo factor 1": str(settings["factor_1"]), "ToDo factor 2": "1"}
    assert todo_keys(result.infotext) == {"ToDo interval": "2", **factors, **written}
    assert np.array_equal(webui.txt2img(settings, **STEPS).pixels, result.pixels)
    assert_nothing_is_left(webui, **STEPS)


@pytest.mark.parametrize("sampler", ["DPM++ 2M", "LMS", "DDIM", "PLMS", "UniPC"])
def test_whole_steps_with_each_sampler_that_adds_no_noise(webui, sampler):
    request = {**STEPS, "sampler_name": sampler}
    result = webui.txt2img(WHOLE, **request)
    assert_planned(result.hires, WHOLE)
    assert "whole model computed in" in result.comments
    assert_nothing_is_left(webui, **request)


@pytest.mark.parametrize("request_", [{"sampler_name": "Euler a"}, {"sampler_name": "DPM++ 2M SDE"}, {"s_churn": 5}])
def test_with_new_noise_in_each_step_deep_layers_are_predicted(webui, request_):
    result = webui.txt2img(WHOLE, **STEPS, **request_)
    assert_planned(result.hires, DEEP)
    assert f"{ADDS_NOISE}: layers below level 1 are predicted" in result.comments
    assert "ToDo predict" not in todo_keys(result.infotext)
    assert_nothing_is_left(webui, **STEPS, **request_)


@pytest.mark.parametrize("settings", [WITH_TODO, WHOLE], ids=["deep layers", "whole steps"])
@pytest.mark.parametrize(
    "request_",
    [{"batch_size": 2}, {"prompt": "a cat AND a dog :0.5"}, {"negative_prompt": "many words, " * 90}],
    ids=["batch", "AND", "two calls a step on A1111"],
)
def test_other_requests_are_predicted_too(webui, settings, request_):
    result = webui.txt2img(settings, **STEPS, **request_)
    assert_planned(result.hires, settings)
    assert result.hooks_left == 0
    assert result.pixels.std() > 5
    assert_nothing_is_left(webui, **STEPS, **request_)


def test_heun_is_predicted_call_by_call(webui):
    result = webui.txt2img(DEEP, sampler_name="Heun", hr_second_pass_steps=6)
    runs = [bool(count) for count in deep_runs(result.hires)]
    assert [*runs[:2], runs[-1]] == [True] * 3
    assert 3 <= runs.count(False) <= len(runs) // 2
    assert_nothing_is_left(webui)


@BOTH
def test_prompt_editing_is_computed_at_the_change(webui, settings):
    """1.5 is half of the hires pass: two steps, or three whole ones, are computed from the change on."""
    result = webui.txt2img(settings, **STEPS, prompt="a [cat:dog:1.5]")
    runs = [bool(count) for count in deep_runs(result.hires)]
    computed = 3 if settings == WHOLE else 2
    assert runs[: computed + 1] == [*[True] * computed, False]
    assert [True] * computed in [runs[i : i + computed] for i in range(3, 6)]
    assert all(runs[4:]) == (settings == WHOLE)
    assert_nothing_is_left(webui, **STEPS)


def test_an_alternating_prompt_is_never_predicted(webui):
    result = webui.txt2img(WITH_TODO, **STEPS, prompt="a [cat|dog]")
    assert all(deep_runs(result.hires))
    assert reduced(result.hires) == {(1024, 256)}
    assert "in 8 of 8 steps; nothing predicted: too few steps in a row are alike" in result.comments


def test_the_same_seed_in_a_batch_and_alone(webui):
    """Rows have the history of their own image. Random weights enlarge the rounding of a batch, on Neo to 4 levels."""
    batch, alone = (webui.txt2img(DEEP, **STEPS, batch_size=size) for size in (2, 1))
    plain, plain_alone = (webui.baseline(**STEPS, batch_size=size) for size in (2, 1))
    noise = np.abs(plain.pixels[0] - plain_alone.pixels[0]).mean()
    assert np.abs(batch.pixels[0] - alone.pixels[0]).mean() < 3 + 2 * noise
    assert np.abs(batch.pixels[1] - alone.pixels[0]).mean() > 6 + 2 * noise, "another image is farther"


@pytest.mark.parametrize(("settings", "button"), [(WITH_TODO, "interrupt"), (WHOLE, "skip")])
def test_an_interrupt_leaves_nothing(webui, settings, button):
    webui.baseline(**STEPS)
    result = webui.interrupted_at(4 + 3, settings, button, **STEPS)
    assert result.pixels.shape[0] >= 1
    assert_nothing_is_left(webui, **STEPS)
    assert_planned(webui.txt2img(settings, **STEPS).hires, settings)


@BOTH
def test_img2img_is_predicted(webui, settings):
    """The WebUI runs the share of the steps that the denoising strength asks for."""
    image = webui.baseline().base64_images[0]
    result = webui.img2img(image, settings, steps=8, denoising_strength=0.99, width=256, height=256)
    assert_planned(result.events, settings)
    assert result.hooks_left == 0


@BOTH
def test_another_checkpoint_in_the_hires_pass_is_predicted(webui, other_checkpoint, settings):
    result = webui.txt2img(settings, **STEPS, hr_checkpoint_name=other_checkpoint)
    assert_planned(result.hires, settings)
    assert result.pixels.std() > 5
    assert_nothing_is_left(webui)


@BOTH
def test_a_refiner_in_mid_pass_begins_a_history_of_its_own(webui, other_checkpoint, settings):
    """It takes over at step 4, where the base would be predicted."""
    refiner = {"refiner_checkpoint": other_checkpoint, "refiner_switch_at": 0.5}
    result = webui.txt2img(settings, **STEPS, **refiner, override_settings={"hires_fix_refiner_pass": "second pass"})
    assert "Refiner" in result.infotext
    by_unet = [{call["unet"] for call in event["calls"]} for event in result.hires]
    computed = [bool(count) for count in deep_runs(result.hires)]
    switch, anew = next(n for n, unets in enumerate(by_unet) if unets - by_unet[0]), 3 if settings == WHOLE else 2
    before, after = planned(settings)[:switch], planned(settings)[switch + anew :]
    assert computed == [*before, *[True] * anew, *after], (by_unet, result.comments)
    assert f"computed in {computed.count(True)} of 8 steps" in result.comments
    assert result.pixels.std() > 5
    assert_nothing_is_left(webui)


def test_sdxl_is_predicted_too(webui, sdxl_checkpoint):
    request = {**STEPS, "override_settings": {"sd_model_checkpoint": sdxl_checkpoint}}
    baseline, result = webui.baseline(**request), webui.txt2img(WITH_TODO, **request)
    assert level_1(result.hires) == 256, "a latent of 1,024 tokens"
    assert_planned(result.hires, WITH_TODO)
    assert [e["latent"] for e in result.first] == [e["latent"] for e in baseline.first]
    assert "transformers below level 1 computed in 5 of 8 steps" in result.comments
    assert_nothing_is_left(webui, **request)


def test_a_lora_is_predicted_with_it(webui, lora):  # noqa: F811
    request = {**STEPS, "prompt": f"a cat <lora:{lora}:1>"}
    before = webui.txt2img(**request)
    assert not np.array_equal(before.pixels, webui.baseline(**STEPS).pixels), "the LoRA acts"
    result = webui.txt2img(WITH_TODO, **request)
    assert_planned(result.hires, WITH_TODO)
    assert result.pixels.std() > 5
    assert np.array_equal(webui.txt2img(**request).pixels, before.pixels)
    assert_nothing_is_left(webui, **STEPS)


def test_the_window_ends_it(webui):
    result = webui.txt2img({**DEEP, "end": 0.5}, **STEPS)
    assert_planned(result.hires, DEEP, [True, True, False, *[True] * 5])
    assert "computed in 7 of 8 steps" in result.comments
