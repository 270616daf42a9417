"""Whole steps on a real WebUI: in which steps the model ran, with which samplers, and what the user is told."""

import numpy as np
import pytest

from todo_core.samplers import ADDS_NOISE

from ..helpers import todo_keys
from .test_interval import (
    STEPS,
    after_an_interrupt,
    assert_nothing_is_left,
    assert_planned,
    deep_runs,
    runs_of,
)

WHOLE = {"predict": "whole", "interval": 2, "factor_1": 1, "factor_2": 1}
PLANNED = [True, True, True, False, True, False, True, True]
NOISE = f"{ADDS_NOISE}: layers below level 1 are predicted"


def assert_whole_steps_are_predicted(result):
    """No attention ran in a predicted step; the last call is computed."""
    shallow, deep = runs_of(result.hires)
    planned = [*PLANNED[: len(shallow) - 1], True]
    assert [bool(count) for count in shallow] == [bool(count) for count in deep] == planned


@pytest.mark.parametrize("sampler", ["DPM++ 2M", "Euler", "LMS", "DDIM", "UniPC"])
def test_the_model_runs_in_the_planned_steps(webui, sampler):
    request = {**STEPS, "sampler_name": sampler}
    baseline, result = webui.baseline(**request), webui.txt2img(WHOLE, **request)
    assert_whole_steps_are_predicted(result)
    assert [e["latent"] for e in result.first] == [e["latent"] for e in baseline.first]
    assert not np.array_equal(result.pixels, baseline.pixels)
    assert "whole model computed in" in result.comments
    off = {"ToDo factor 1": "1", "ToDo factor 2": "1"}
    assert todo_keys(result.infotext) == {"ToDo interval": "2", "ToDo predict": "whole"} | off
    assert np.array_equal(webui.txt2img(WHOLE, **request).pixels, result.pixels)
    assert_nothing_is_left(webui, **request)


@pytest.mark.parametrize("request_", [{"sampler_name": "Euler a"}, {"sampler_name": "DPM++ 2M SDE"}, {"s_churn": 5}])
def test_with_new_noise_in_each_step_deep_layers_are_predicted(webui, request_):
    result = webui.txt2img(WHOLE, **STEPS, **request_)
    assert_planned(result)
    assert NOISE in result.comments
    assert "ToDo predict" not in todo_keys(result.infotext)
    assert_nothing_is_left(webui, **STEPS, **request_)


@pytest.mark.parametrize(
    "request_",
    [{"batch_size": 2}, {"prompt": "a cat AND a dog :0.5"}, {"prompt": "a cat, " * 30, "negative_prompt": "a dog"}],
    ids=["batch", "AND", "long"],
)
def test_other_requests_are_predicted_too(webui, request_):
    result = webui.txt2img(WHOLE, **STEPS, **request_)
    assert_whole_steps_are_predicted(result)
    assert result.pixels.std() > 5
    assert_nothing_is_left(webui, **STEPS, **request_)


def test_prompt_editing_is_computed_at_the_change(webui):
    """1.5 is half of the hires pass."""
    result = webui.txt2img(WHOLE, **STEPS, prompt="a [cat:dog:1.5]")
    runs = [bool(count) for count in deep_runs(result.hires)]
    assert runs[:4] == [True, True, True, False]
    assert all(runs[4:]), "three after the change, and the last one"
    assert_nothing_is_left(webui, **STEPS)


@pytest.mark.parametrize("button", ["interrupt", "skip"])
def test_an_interrupt_leaves_nothing(webui, button):
    assert_whole_steps_are_predicted(after_an_interrupt(webui, WHOLE, button))


def test_a_hires_checkpoint_is_predicted(webui, other_checkpoint):
    result = webui.txt2img(WHOLE, **STEPS, hr_checkpoint_name=other_checkpoint)
    assert_whole_steps_are_predicted(result)
    assert result.pixels.std() > 5
    assert_nothing_is_left(webui)


def test_a_refiner_in_mid_pass_begins_anew(webui, other_checkpoint):
    refiner = {"refiner_checkpoint": other_checkpoint, "refiner_switch_at": 0.5}
    result = webui.txt2img(WHOLE, **STEPS, **refiner, override_settings={"hires_fix_refiner_pass": "second pass"})
    by_unet = [{call["unet"] for call in event["calls"]} for event in result.hires]
    switch = by_unet.index(by_unet[-1])
    runs = [bool(count) for count in deep_runs(result.hires)]
    assert runs == [*PLANNED[:switch], *[True] * (8 - switch)], (by_unet, result.comments)
    assert result.pixels.std() > 5
    assert_nothing_is_left(webui)


def test_img2img_is_predicted(webui):
    """The WebUI runs the share of the steps that the denoising strength asks for."""
    image = webui.baseline().base64_images[0]
    result = webui.img2img(image, WHOLE, steps=8, denoising_strength=0.99, width=256, height=256)
    counts = [bool(count) for count in deep_runs(result.events)]
    assert counts == [*PLANNED[: len(counts) - 1], True]
    assert result.hooks_left == 0
