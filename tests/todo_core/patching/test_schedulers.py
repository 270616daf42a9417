"""What ``auto`` predicts in a diffusers pipeline: its scheduler decides, at the first step of each pass."""

from __future__ import annotations

import copy
import pickle
from types import MethodType

import diffusers
import pytest
import torch
from accelerate import cpu_offload_with_hook
from diffusers import (
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionPipeline,
)

from tests.models import diffusers_unet, hook_count, noise, pipeline, snapshot, words
from todo_core import Settings, apply_patch, patched, remove_patch
from todo_core.patching.session import Session

EVERY_SECOND = {2, 4, 6}  # predicted of 8 steps with interval 2
DEEP, MODEL = "transformers below level 1", "whole model"


@pytest.fixture
def unet():
    """Trained at 64 x 64 pixels."""
    return diffusers_unet(sample_size=8)


def generate(pipe, steps=8, side=128, **more):
    torch.manual_seed(3)
    size = {} if "image" in more else {"height": side, "width": side}
    text = {"prompt_embeds": words(1, seed=4), "negative_prompt_embeds": words(1, seed=5)}
    return pipe(**text, num_inference_steps=steps, output_type="latent", **size, **more).images


def predicted(pipe, settings=None, **call):
    """What a generation predicts, in which steps, and its latents."""
    with patched(pipe, **(settings or {})) as session:
        latents = generate(pipe, **call)
    assert not session.record.notes
    return session.record.predicted if session.record.predicted_in else "", session.record.predicted_in, latents


WITHOUT_NOISE = {
    "DDIMScheduler": {},
    "DEISMultistepScheduler": {},
    "DPMSolverMultistepScheduler": {"use_karras_sigmas": True},
    "EulerDiscreteScheduler": {},
    "LMSDiscreteScheduler": {},
    "PNDMScheduler": {"skip_prk_steps": True},
    "UniPCMultistepScheduler": {},
}


@pytest.mark.parametrize("name", WITHOUT_NOISE)
def test_schedulers_that_add_no_noise_predict_whole_steps(name, unet):
    pipe = pipeline(StableDiffusionPipeline, getattr(diffusers, name)(**WITHOUT_NOISE[name]), unet)
    calls = []
    hook = unet.conv_in.register_forward_hook(lambda *_: calls.append(1))
    what, steps, latents = predicted(pipe)
    hook.remove()
    assert (what, steps) == (MODEL, EVERY_SECOND)
    # PNDM calls the model twice at its second timestep
    assert len(calls) == 5 + (name == "PNDMScheduler")
    assert torch.equal(latents, predicted(pipe, {"predict": "whole"})[2])


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("EulerAncestralDiscreteScheduler", {}),
        ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
        ("DDPMScheduler", {}),
        ("HeunDiscreteScheduler", {}),  # no noise, but two calls a step
    ],
)
def test_with_others_tokens_are_reduced_and_deep_layers_predicted(name, config, unet):
    pipe = pipeline(StableDiffusionPipeline, getattr(diffusers, name)(**config), unet)
    with patched(pipe) as session:
        latents = generate(pipe)
    assert session.record.predicted == DEEP
    assert session.record.predicted_in >= EVERY_SECOND
    assert set(session.record.levels) == {1}
    assert torch.equal(latents, predicted(pipe, {"predict": "deep"})[2])


@pytest.mark.parametrize(
    ("settings", "call", "expected"),
    [
        ({}, {"steps": 20}, (MODEL, {2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18})),
        ({}, {"steps": 4}, ("", set())),  # too few for auto
        ({}, {"side": 64}, ("", set())),  # the trained size
        ({}, {"side": 256}, (DEEP, EVERY_SECOND)),  # ToDo saves more there
        ({"factor_1": 2}, {}, (DEEP, EVERY_SECOND)),
        ({"predict": "deep"}, {}, (DEEP, EVERY_SECOND)),
        ({"method": "similarity"}, {}, (DEEP, EVERY_SECOND)),
        ({"interval": 3}, {}, (MODEL, {2, 3, 5, 6})),
        ({"end": 0.5}, {}, (MODEL, {2})),
    ],
)
def test_the_rule_is_that_of_the_webuis(settings, call, expected, unet):
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    assert predicted(pipe, settings, **call)[:2] == expected


def test_a_patch_follows_the_scheduler_and_the_size_of_each_generation(unet):
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    found = []
    with patched(pipe) as session:
        for scheduler, side in (
            (None, 128),
            (EulerAncestralDiscreteScheduler, 128),
            (DPMSolverMultistepScheduler, 128),
            (None, 256),
        ):
            if scheduler:
                pipe.scheduler = scheduler.from_config(pipe.scheduler.config)
            session.record.reset()
            generate(pipe, side=side)
            found.append((session.record.predicted, set(session.record.predicted_in), set(session.record.levels)))
    assert found == [
        (MODEL, EVERY_SECOND, set()),
        (DEEP, EVERY_SECOND, {1}),
        (MODEL, EVERY_SECOND, set()),
        (DEEP, EVERY_SECOND, {1, 2}),
    ]
    assert session.plan.settings.predict == "deep"
    assert session.settings == Settings()


def test_img2img_counts_the_steps_that_it_runs(unet):
    pipe = pipeline(StableDiffusionImg2ImgPipeline, DPMSolverMultistepScheduler(), unet)
    what, steps, _ = predicted(pipe, steps=16, image=noise(1, 4, 16, 16), strength=0.5)
    assert (what, steps) == (MODEL, EVERY_SECOND)


def test_nothing_is_left_and_the_next_generation_is_the_plain_one(unet):
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    plain, before = generate(pipe), snapshot(unet)
    assert not torch.equal(predicted(pipe)[2], plain)
    assert snapshot(unet) == before
    assert hook_count(unet) == 0
    assert torch.equal(generate(pipe), plain)


def test_a_forward_of_somebody_else_on_the_model_keeps_it_from_whole_steps(unet):
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    own, calls = type(unet).forward, []

    def forward(self, *args, **kwargs):
        calls.append(1)
        return own(self, *args, **kwargs)

    unet.forward = MethodType(forward, unet)
    assert predicted(pipe)[:2] == (DEEP, EVERY_SECOND)
    assert len(calls) == 8


def test_offload_after_the_patch_runs_as_before(unet):
    """accelerate then calls ToDo's forward, which is inside of its own."""
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    expected = predicted(pipe)[2]
    session = apply_patch(pipe)
    cpu_offload_with_hook(unet, "cpu")
    assert torch.equal(generate(pipe), expected)
    assert (session.record.predicted, session.record.predicted_in) == (MODEL, EVERY_SECOND)
    remove_patch(pipe)


def test_offload_before_the_patch_keeps_the_model_from_whole_steps(unet):
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    cpu_offload_with_hook(unet, "cpu")
    plain = generate(pipe)
    assert predicted(pipe)[:2] == (DEEP, EVERY_SECOND)
    assert torch.equal(generate(pipe), plain)


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_a_copy_of_the_model_without_its_pipeline_predicts_deep_layers(how, unet):
    session = apply_patch(pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet))
    other = how(unet)
    hook = next(iter(other._forward_pre_hooks.values()))
    assert isinstance(hook.owner, Session)
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), other)
    generate(pipe)
    assert not session.record.acted
    assert hook.owner.record.predicted in ("", DEEP)
    remove_patch(other)
    assert hook_count(other) == 0


def test_a_model_alone_predicts_deep_layers(unet):
    scheduler = EulerDiscreteScheduler()
    scheduler.set_timesteps(8)
    with torch.no_grad(), patched(unet, interval=2) as session:
        for time in scheduler.timesteps:
            unet(noise(1, 4, 16, 16), time, words(1))
    assert session.record.predicted == DEEP
