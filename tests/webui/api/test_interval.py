"""The interval on a real WebUI: which attention ran in each step, what is left behind, what the user is told."""

import numpy as np
import pytest

from ..helpers import level_1, reduced, todo_keys
from .test_jobs import lora  # noqa: F401  a fixture

STEPS = {"hr_second_pass_steps": 8}
ALONE = {"factor_1": 1, "factor_2": 1, "interval": 2}  # no reduction beside it
WITH_TODO = {"factor_1": 2, "factor_2": 1, "interval": 2}
PLANNED = [True, True, False, True, False, True, False, True]


def runs_of(events):
    """How many self-attentions at level 1, and how many below it, ran in each step."""
    finest = level_1(events)
    queries = [[queries for call in event["calls"] for queries, _ in call["lengths"]] for event in events]
    return [sum(q == finest for q in step) for step in queries], [sum(q < finest for q in step) for step in queries]


def deep_runs(events):
    return runs_of(events)[1]


def assert_planned(result, planned=PLANNED):
    """The deep attentions ran in the planned steps alone, level 1 in every step. The last call is computed."""
    shallow, runs = runs_of(result.hires)
    assert len(runs) >= len(planned) - 2, "UniPC makes one call less than it has steps, DDIM two"
    assert [bool(count) for count in runs] == [*planned[: len(runs) - 1], True]
    assert len({count for count in runs if count}) == 1
    assert len(set(shallow)) == 1
    assert shallow[0] > 0


def assert_nothing_is_left(webui, **request):
    assert webui.hooks() == 0
    assert np.array_equal(webui.txt2img(**request).pixels, webui.baseline(**request).pixels)


DEFAULTS = {"width": 320, "height": 320, "steps": 2}  # hires: above the size that the model was trained at


@pytest.mark.parametrize("sampler", ["DPM++ 2M", "Euler", "DDIM", "Euler a", "Heun"])
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


@pytest.mark.parametrize("settings", [ALONE, WITH_TODO], ids=["alone", "with ToDo"])
def test_deep_transformers_run_in_the_planned_steps(webui, settings):
    baseline, result = webui.baseline(**STEPS), webui.txt2img(settings, **STEPS)
    assert_planned(result)
    assert [e["latent"] for e in result.first] == [e["latent"] for e in baseline.first]
    assert [e["latent"] for e in result.hires[:2]] == [e["latent"] for e in baseline.hires[:2]] or settings != ALONE
    assert not np.array_equal(result.pixels, baseline.pixels)
    assert result.hooks_left == 0
    assert "transformers below level 1 computed in 5 of 8 steps" in result.comments
    method = {} if settings == ALONE else {"ToDo method": "downsample"}
    expected = {"ToDo interval": "2", "ToDo factor 2": "1", "ToDo factor 1": str(settings["factor_1"]), **method}
    assert todo_keys(result.infotext) == expected
    assert reduced(result.hires) == (set() if settings == ALONE else {(1024, 256)})
    assert_nothing_is_left(webui, **STEPS)


def test_it_repeats_bit_for_bit(webui):
    first, second = (webui.txt2img(WITH_TODO, **STEPS) for _ in range(2))
    assert np.array_equal(first.pixels, second.pixels)


@pytest.mark.parametrize(
    "request_",
    [
        {"batch_size": 2},
        {"prompt": "a cat AND a dog :0.5"},
        {"sampler_name": "DPM++ 2M"},
        {"sampler_name": "Euler a"},
        {"sampler_name": "DPM++ 2M SDE"},
        {"sampler_name": "UniPC"},
        {"sampler_name": "PLMS"},
        {"sampler_name": "DDIM"},
        {"negative_prompt": "many words, " * 90},  # longer than the prompt: two calls a step on A1111
    ],
    ids=lambda request: f"{next(iter(request))} {str(next(iter(request.values())))[:20]}",
)
def test_other_requests_are_predicted_too(webui, request_):
    result = webui.txt2img(WITH_TODO, **STEPS, **request_)
    assert_planned(result)
    assert result.hooks_left == 0
    assert result.pixels.std() > 5
    assert_nothing_is_left(webui)


def test_heun_is_predicted_call_by_call(webui):
    result = webui.txt2img(ALONE, sampler_name="Heun", hr_second_pass_steps=6)
    runs = [bool(count) for count in deep_runs(result.hires)]
    assert [*runs[:2], runs[-1]] == [True] * 3
    assert 3 <= runs.count(False) <= len(runs) // 2
    assert_nothing_is_left(webui)


def test_prompt_editing_is_computed_at_the_change(webui):
    """1.5 is half of the hires pass: the step of the change and the next one are computed."""
    result = webui.txt2img(ALONE, **STEPS, prompt="a [cat:dog:1.5]")
    runs = [bool(count) for count in deep_runs(result.hires)]
    assert runs[:3] == [True, True, False]
    assert [True, True] in [runs[i : i + 2] for i in range(3, 6)]
    assert_nothing_is_left(webui)


def test_an_alternating_prompt_is_never_predicted(webui):
    result = webui.txt2img(WITH_TODO, **STEPS, prompt="a [cat|dog]")
    assert all(deep_runs(result.hires))
    assert reduced(result.hires) == {(1024, 256)}
    assert "in 8 of 8 steps; nothing predicted: too few steps in a row are alike" in result.comments


def test_the_same_seed_in_a_batch_and_alone(webui):
    """Rows have the history of their own image. Random weights enlarge the rounding of a batch, on Neo to 4 levels."""
    batch, alone = (webui.txt2img(ALONE, **STEPS, batch_size=size) for size in (2, 1))
    plain, plain_alone = (webui.baseline(**STEPS, batch_size=size) for size in (2, 1))
    noise = np.abs(plain.pixels[0] - plain_alone.pixels[0]).mean()
    assert np.abs(batch.pixels[0] - alone.pixels[0]).mean() < 3 + 2 * noise
    assert np.abs(batch.pixels[1] - alone.pixels[0]).mean() > 6 + 2 * noise, "another image is farther"


def after_an_interrupt(webui, todo, button):
    """The next image with these settings."""
    webui.baseline(**STEPS)
    result = webui.interrupted_at(4 + 3, todo, button, **STEPS)
    assert result.pixels.shape[0] >= 1
    assert_nothing_is_left(webui, **STEPS)
    return webui.txt2img(todo, **STEPS)


@pytest.mark.parametrize("button", ["interrupt", "skip"])
def test_an_interrupt_leaves_nothing(webui, button):
    assert_planned(after_an_interrupt(webui, WITH_TODO, button))


def test_a_pass_in_img2img_is_predicted(webui):
    image = webui.txt2img(enable_hr=False, steps=2).base64_images[0]
    result = webui.img2img(image, ALONE, steps=12, denoising_strength=0.7)
    runs = deep_runs(result.events)
    assert 0 < sum(count == 0 for count in runs) < len(runs)
    assert runs[0]
    assert runs[1]
    assert runs[-1]
    assert result.hooks_left == 0


def test_another_checkpoint_in_the_hires_pass_is_predicted(webui, other_checkpoint):
    result = webui.txt2img(ALONE, **STEPS, hr_checkpoint_name=other_checkpoint)
    runs = [bool(count) for count in deep_runs(result.hires)]
    assert runs == PLANNED
    assert_nothing_is_left(webui)


def test_a_refiner_in_mid_pass_begins_a_history_of_its_own(webui, other_checkpoint):
    """It takes over at step 4, where the base would be predicted."""
    refiner = {"refiner_checkpoint": other_checkpoint, "refiner_switch_at": 0.5}
    result = webui.txt2img(ALONE, **STEPS, **refiner, override_settings={"hires_fix_refiner_pass": "second pass"})
    assert "Refiner" in result.infotext
    by_unet = [{call["unet"] for call in event["calls"]} for event in result.hires]
    assert by_unet[0] != by_unet[-1]
    runs = [bool(count) for count in deep_runs(result.hires)]
    switch = by_unet.index(by_unet[-1])
    assert runs == [*PLANNED[:switch], True, True, *PLANNED[switch + 2 :]]
    assert "transformers below level 1 computed in 6 of 8 steps" in result.comments
    assert result.pixels.std() > 5
    assert_nothing_is_left(webui)


def test_sdxl_is_predicted_too(webui, sdxl_checkpoint):
    request = {**STEPS, "override_settings": {"sd_model_checkpoint": sdxl_checkpoint}}
    baseline, result = webui.baseline(**request), webui.txt2img(WITH_TODO, **request)
    assert level_1(result.hires) == 256, "a latent of 1,024 tokens"
    assert_planned(result)
    assert [e["latent"] for e in result.first] == [e["latent"] for e in baseline.first]
    assert "transformers below level 1 computed in 5 of 8 steps" in result.comments
    assert_nothing_is_left(webui, **request)


def test_a_lora_is_predicted_with_it(webui, lora):  # noqa: F811
    request = {**STEPS, "prompt": f"a cat <lora:{lora}:1>"}
    before = webui.txt2img(**request)
    assert not np.array_equal(before.pixels, webui.baseline(**STEPS).pixels), "the LoRA acts"
    result = webui.txt2img(WITH_TODO, **request)
    assert_planned(result)
    assert result.pixels.std() > 5
    assert np.array_equal(webui.txt2img(**request).pixels, before.pixels)
    assert_nothing_is_left(webui, **STEPS)


def test_the_window_ends_it(webui):
    result = webui.txt2img({**ALONE, "end": 0.5}, **STEPS)
    assert [bool(count) for count in deep_runs(result.hires)] == [True, True, False, True, True, True, True, True]
    assert "computed in 7 of 8 steps" in result.comments
