"""Sampling with the shipped model: requests are reproducible, and a reduction ends with its pass."""

from dataclasses import replace

import pytest
import torch

from todo_core import Settings, SettingsError
from todo_lab.sampling.comparison import compare_all
from todo_lab.sampling.passes import decode_image, first_pass, hires_pass, hires_passes
from todo_lab.sampling.request import Request

ASKED = Request(prompt="a red circle over stripes", seed=5, steps=4, hires_steps=4, width=64, height=96)
TODO = Settings(factor_1=2, start=0, end=1)


@pytest.mark.parametrize("sampler", ["DDIM", "Euler a", "Heun"])  # test_samplers.py has all of them
def test_a_request_gives_one_picture_and_a_reduction_acts_in_its_window_of_the_hires_pass_alone(pocket, sampler):
    asked, settings = replace(ASKED, sampler=sampler), replace(TODO, start=0.25, end=0.75)
    first, again = first_pass(pocket, asked), first_pass(pocket, asked, settings)
    assert torch.equal(first.latents, again.latents)
    hires, again = (hires_pass(pocket, asked, first) for _ in range(2))
    assert torch.equal(hires.latents, again.latents)
    assert hires.latents.shape == (1, 4, 24, 16)
    assert decode_image(pocket, hires).shape == (192, 128, 3)
    assert [len(each.step_seconds) for each in (first, hires)] == [7 if sampler == "Heun" else 4] * 2
    reduced = hires_pass(pocket, asked, first, settings)
    assert reduced.record.steps == {1, 2}
    assert not torch.equal(reduced.latents, hires.latents)
    assert reduced.plan.levels[0].keys * 4 == reduced.plan.levels[0].grid.tokens


@pytest.mark.parametrize(
    ("change", "field", "allowed"),
    [
        ({"width": 72}, "width", "a multiple of 32"),
        ({"height": 136}, "height", "a multiple of 32"),
        ({"hires_scale": 1.3}, "hires_scale", "multiples of 32 pixels; this would make 80 x 128"),
    ],
)
def test_sides_that_the_model_cannot_take_are_refused_by_name(pocket, change, field, allowed):
    asked = replace(ASKED, **change)
    with pytest.raises(SettingsError, match=allowed) as caught:
        compare_all(pocket, asked, [TODO])
    assert caught.value.field == field


def test_progress_counts_every_step(pocket):
    heard = []
    first = first_pass(pocket, ASKED, on_step=lambda *args: heard.append(args))
    hires_passes(pocket, ASKED, [first], [None], on_step=lambda *args: heard.append(args))
    assert heard == [*(("first", i, 4) for i in range(4)), *(("hires", i, 4) for i in range(4))]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("width", 100), ("height", 0), ("width", 64.0), ("steps", 0), ("hires_steps", 0), ("denoising", 0),
        ("denoising", 1.2), ("denoising", float("nan")), ("seed", -1), ("seed", 2**32), ("guidance", 0.5),
        ("sampler", "Euler b"), ("hires_scale", 0.5), ("prompt", None), ("steps", True), ("schedule", "Uniform"),
        ("schedule", "Karras"), ("sampler", "Euler b Karras"),
    ],
)  # fmt: skip
def test_a_bad_request_names_field_value_and_what_is_allowed(field, value):
    """DDIM, the default, has timesteps of its own."""
    with pytest.raises(SettingsError) as error:
        replace(ASKED, **{field: value})
    assert error.value.field == field
    assert error.value.allowed in str(error.value)


def test_a_sampler_may_be_named_with_its_schedule_and_automatic_is_that_of_the_webui():
    old, new = (replace(ASKED, sampler=name) for name in ("DPM++ 2M Karras", "DPM++ 2M"))
    assert (old.sampler, old.schedule, new.schedule) == ("DPM++ 2M", "Karras", "Automatic")
    assert new.resolved == old == old.resolved
    assert replace(old, sampler="DPM++ 2M SDE").schedule == "Karras"
    assert [replace(ASKED, sampler=name).resolved.schedule for name in ("Euler a", "UniPC")] == ["Normal", "Automatic"]
