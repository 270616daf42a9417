"""The panel's estimate line for what a page can say, with the WebUI's own rule for the size of the hires pass."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tests.models import LatentDiffusion, ldm_unet
from todo_core import Settings
from todo_core.samplers import ADDS_NOISE
from todo_core.webui.panel.estimate_line import estimate_line

HIRES = {"width": 512, "height": 512, "hires": True, "scale": 2, "resize_x": 0, "resize_y": 0}


@pytest.fixture(scope="module")
def model():
    return LatentDiffusion(ldm_unet(), image_size=64)


def line(model, fields, *, is_img2img=False, **settings):
    return estimate_line(json.dumps(fields), Settings(**settings).to_dict(), model, known, is_img2img=is_img2img)


def known(page, facts):
    return replace(facts, adds_noise=page.sampler != "DPM++ 2M", holder="ControlNet" if page.controlnet else None)


def test_it_tells_the_size_the_keys_the_steps_and_the_work_saved(model):
    assert re.fullmatch(r"1024 x 1024: 4x fewer keys in 10 steps, \d\d % less work", line(model, HIRES))
    assert ": 16x and 4x fewer keys in 10 steps, " in line(model, HIRES, factor_1=4, factor_2=2)
    assert ": 4x fewer keys in 10 steps, " in line(model, HIRES, factor_1=2, factor_2=2)
    assert ": 4x fewer keys at level 2 in 10 steps, " in line(model, HIRES, factor_1=1, factor_2=2)
    assert ": 2x fewer tokens in 10 steps, " in line(model, HIRES, method="similarity", target="all")
    assert ": 1.7x fewer keys in 10 steps, " in line(model, HIRES, method="cluster", ratio_1=0.4)
    assert ": 8.9x fewer keys in 10 steps, " in line(model, HIRES, factor_1=3)
    assert ": 4x fewer keys in 7 of 10 steps, " in line(model, HIRES, end=0.7)


WHOLE = {"predict": "whole", "interval": 2}


@pytest.mark.parametrize(
    ("fields", "settings", "told"),
    [
        ({}, {"interval": 2}, "4x fewer keys in 10 steps, 4 steps partly predicted"),
        ({}, {"interval": 2, "factor_1": 1}, "4 of 10 steps partly predicted"),
        ({"sampler": "DPM++ 2M"}, WHOLE, "4x fewer keys in 7 of 10 steps, 3 steps predicted"),
        ({"sampler": "DPM++ 2M"}, WHOLE | {"factor_1": 1}, "3 of 10 steps predicted"),
        ({"sampler": "DPM++ 2M", "steps": 20, "hires_steps": 0}, WHOLE | {"factor_1": 1}, "8 of 20 steps predicted"),
        ({"sampler": "DPM++ 2M", "steps": 20, "hires_steps": 8}, WHOLE | {"factor_1": 1}, "2 of 8 steps predicted"),
        ({"steps": 8, "hires_sampler": "DPM++ 2M"}, WHOLE | {"factor_1": 1}, "2 of 8 steps predicted"),
    ],
)
def test_the_steps_and_the_sampler_of_the_hires_pass(model, fields, settings, told):
    assert re.search(rf": {told}, \d\d? % less work$", line(model, HIRES | {"sampler": "Euler a"} | fields, **settings))


AUTO = {"predict": "whole", "interval": "auto"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (AUTO | {"factor_1": 1}, r"up to 5 of 10 steps predicted, up to 50 % less work"),
        (AUTO, r"4x fewer keys in computed steps, up to 5 steps predicted, \d\d to \d\d % less work"),
        (AUTO | {"factor_1": 1, "end": 0.6}, r"up to 3 of 10 steps predicted, up to 30 % less work"),
    ],
)
def test_what_the_measured_error_will_allow_is_a_range(model, settings, told):
    assert re.search(rf": {told}$", line(model, HIRES | {"sampler": "DPM++ 2M"}, **settings))


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"sampler": "Euler a"}, f"{ADDS_NOISE}: layers below level 1 are predicted"),
        ({"sampler": "DPM++ 2M", "controlnet": True}, "ControlNet is on: layers below level 1 are predicted"),
        ({"sampler": "DPM++ 2M", "hires_alternates": True}, "the prompt changes in each step: nothing is predicted"),
        ({"hires_sampler": "Euler a", "sampler": "DPM++ 2M"}, f"{ADDS_NOISE}: layers below level 1 are predicted"),
    ],
)
def test_it_says_why_steps_are_not_predicted_as_wanted(model, fields, note):
    assert line(model, HIRES | fields, **WHOLE).endswith(f" % less work ({note})")
    assert f"({note})" not in line(model, HIRES | fields, interval=1)


def test_a_prompt_that_changes_in_each_step_counts_where_something_would_be_predicted(model):
    page = HIRES | {"sampler": "DPM++ 2M", "alternates": True}
    assert "the prompt" not in line(model, page, **WHOLE), "the hires pass has a prompt of its own"
    text = line(model, page | {"hires_alternates": True}, factor_1=1, **WHOLE)
    assert text.startswith("Nothing to reduce at 1024 x 1024: the prompt changes in each step: nothing is predicted; ")
    assert text.endswith("Set Factor, level 1 to 2.")
    assert "the prompt" in line(model, page | {"steps": 20}, is_img2img=True, factor_1=2, interval=2)


def test_a_pass_that_is_too_short(model):
    text = line(model, HIRES | {"sampler": "DPM++ 2M", "steps": 4}, predict="whole")
    assert "4x fewer keys in 4 steps" in text
    assert text.endswith("(whole steps need 6 or more steps: nothing is predicted)")


@pytest.mark.parametrize(("denoising", "steps"), [(0.25, 6), (0.5, 11), (1, 20)])
def test_img2img_runs_the_steps_of_its_denoising_strength(model, denoising, steps):
    fields = {"width": 1024, "height": 1024, "sampler": "DPM++ 2M", "steps": 20, "denoising": denoising}
    assert f" in {steps} steps" in line(model, fields, is_img2img=True)


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({"scale": 1.5}, "768 x 768"),
        ({"resize_x": 1024}, "1024 x 1024"),
        ({"width": 512, "height": 768, "resize_x": 1024}, "1024 x 1536"),
        ({"width": 512, "height": 768, "resize_y": 1024}, "682 x 1024"),
        ({"resize_x": 640, "resize_y": 960}, "640 x 960"),
    ],
)
def test_the_size_of_the_hires_pass(model, fields, size):
    assert f"{size}:" in line(model, HIRES | fields, factor_1=2)


def test_both_passes_are_told(model):
    text = line(model, HIRES, passes="all", factor_1=2)
    assert text.index("First pass 512 x 512: 4x fewer keys") < text.index("; Hires pass 1024 x 1024")
    text = line(model, HIRES, passes="all")
    assert text.index("Nothing to reduce at 512 x 512") < text.index(" to 2. Hires pass 1024 x 1024: ")


@pytest.mark.parametrize(
    ("fields", "settings", "why"),
    [
        (HIRES | {"hires": False}, {}, "hires fix is off"),
        (HIRES, {"method": "none"}, "the method is none"),
        ({}, {}, "once the size is known"),
        (
            HIRES | {"scale": 1},
            {},
            "Nothing to reduce at 512 x 512: this model was trained at 512 x 512. Set Factor, level 1 to 2.",
        ),
        (HIRES, {"factor_1": 1, "interval": 1}, "the factor of level 1 is 1"),
    ],
)
def test_it_says_why_nothing_would_happen(model, fields, settings, why):
    assert why in line(model, fields, **settings)


def test_the_button_under_an_image_runs_the_hires_pass_where_hires_fix_is_off(model):
    page = HIRES | {"hires": False, "upscale_button": True}
    assert line(model, page, factor_1=2).startswith("Hires fix is off. With ✨ 1024 x 1024: ")
    assert "✨" not in line(model, page, factor_1=2, passes="all")
    assert "✨" not in line(model, page | {"hires": True}, factor_1=2)
    assert line(model, page, passes="first", factor_1=2).startswith("First pass 512 x 512: ")


def test_img2img(model):
    assert line(model, HIRES, is_img2img=True, factor_1=2).startswith("512 x 512: 4x fewer keys in 10 steps")


def test_invalid_values_are_reported_by_label(model):
    text = estimate_line(json.dumps(HIRES), {"factor_1": "much"}, model, known, is_img2img=False)
    assert text == "Factor, level 1: 'much' is not possible. Use auto or a whole number from 1 to 8."


def test_without_a_model_it_says_so():
    assert "once the checkpoint is loaded" in line(None, HIRES)


def test_a_model_that_cannot_be_reduced_is_named():
    unet = ldm_unet(use_spatial_transformer=False, context_dim=None, channel_mult=[1, 2])
    assert "ToDo cannot reduce UNetModel: " in line(LatentDiffusion(unet), HIRES)
