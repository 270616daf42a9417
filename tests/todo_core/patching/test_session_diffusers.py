"""The session on diffusers: pipelines and their schedules, odd sizes, processors, fused projections.

What holds for ldm and diffusers alike is in ``test_session_ldm.py``.
"""

from __future__ import annotations

import pytest
import torch
from diffusers import (
    ControlNetModel,
    DDIMInverseScheduler,
    DDIMScheduler,
    EulerDiscreteScheduler,
    HeunDiscreteScheduler,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionPipeline,
)
from diffusers.models.attention import BasicTransformerBlock
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0

from tests.models import (
    assert_close,
    assert_differs,
    hook_count,
    interpolated,
    keys_of,
    lengths,
    noise,
    pipeline,
    snapshot,
    use_plain_attention,
    words,
)
from todo_core import apply_patch, patched, remove_patch

LATENT = noise(2, 4, 16, 16)
WHOLE, QUARTER = (64, 64), (64, 16)  # (queries, keys) at level 1 in the pipelines below
IMAGE = {"image": noise(1, 4, 8, 8), "strength": 0.5}


# precision and gradients --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["downsample", "similarity", "cluster"])
def test_half_precision_stays_half_precision(diffusers_sd1, method):
    small = diffusers_sd1.copy()
    small.unet.to(torch.bfloat16)
    latent, text = LATENT.bfloat16(), words(2).bfloat16()
    plain = small(latent, text=text)
    with patched(small.unet, method=method, target="all", factor_1=2):
        ours = small(latent, text=text)
    assert ours.dtype == torch.bfloat16
    assert ours.isfinite().all()
    assert_differs(ours, plain)
    assert torch.equal(small(latent, text=text), plain)


@pytest.mark.parametrize("target", ["keys/values", "all"])
@pytest.mark.parametrize("settings", [{"factor_1": 3}, {"method": "similarity"}, {"method": "cluster"}])
def test_gradients_flow_also_after_a_call_in_inference_mode(diffusers_sd1, settings, target):
    """What is kept from one call to the next must not be an inference tensor."""
    latent = noise(1, 4, 10, 14).requires_grad_()
    with patched(diffusers_sd1.unet, target=target, phase="fixed", **settings):
        with torch.inference_mode():
            diffusers_sd1.unet(latent, 500, words(1))
        diffusers_sd1.unet(latent, 500, words(1)).sample.square().sum().backward()
    assert latent.grad.isfinite().all()
    assert latent.grad.norm() > 1


# pipelines ----------------------------------------------------------------------------------------------------------


def generate(pipe, steps=10, **more):
    """Latents of a 64 x 64 image with guidance; each UNet call has two rows."""
    torch.manual_seed(3)
    size = {} if "image" in more else {"height": 64, "width": 64}
    text = {"prompt_embeds": words(1, seed=4), "negative_prompt_embeds": words(1, seed=5)}
    return pipe(**text, num_inference_steps=steps, output_type="latent", **size, **more).images


def keys_by_call(small, pipe, steps=10, **more):
    """The (queries, keys) at level 1 in each UNet call of a generation."""
    with lengths(small) as seen:
        generate(pipe, steps, **more)
    each = len(small.all_attentions())
    calls = [keys_of(small, 1, seen[i : i + each]) for i in range(0, len(seen), each)]
    assert all(len(found) == 1 for found in calls)
    return [found.pop() for found in calls]


@pytest.mark.parametrize(
    ("kind", "scheduler", "more", "acting"),
    [
        (StableDiffusionPipeline, EulerDiscreteScheduler(), {}, {2, 3, 4, 5, 6}),
        (StableDiffusionPipeline, DDIMScheduler(), {}, {2, 3, 4, 5, 6}),
        # the noise would say otherwise
        (
            StableDiffusionPipeline,
            EulerDiscreteScheduler(use_karras_sigmas=True, timestep_spacing="trailing"),
            {},
            {2, 3, 4, 5, 6},
        ),
        # both calls of a timestep are one step
        (StableDiffusionPipeline, HeunDiscreteScheduler(), {}, {2, 3, 4, 5, 6}),
        # it adds noise: timesteps rise
        (StableDiffusionPipeline, DDIMInverseScheduler(), {}, {2, 3, 4, 5, 6}),
        (StableDiffusionImg2ImgPipeline, EulerDiscreteScheduler(), IMAGE, {1, 2, 3}),
    ],
)
def test_the_steps_are_those_of_the_pipelines_own_schedule(diffusers_sd1, kind, scheduler, more, acting):
    pipe = pipeline(kind, scheduler, diffusers_sd1.unet)
    with patched(pipe, factor_1=2, start=0.2, end=0.7) as session:
        calls = keys_by_call(diffusers_sd1, pipe, **more)
    timesteps = pipe.scheduler.timesteps.tolist()[-len(calls) :]
    step_of = {timestep: step for step, timestep in enumerate(dict.fromkeys(timesteps))}
    assert len(step_of) == (5 if more else 10)
    assert calls == [QUARTER if step_of[timestep] in acting else WHOLE for timestep in timesteps]
    assert session.record.steps == acting


def test_the_next_generation_counts_its_own_steps(diffusers_sd1):
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), diffusers_sd1.unet)
    with patched(pipe, factor_1=2, end=0.5):
        counts = [keys_by_call(diffusers_sd1, pipe, steps).count(QUARTER) for steps in (4, 10, 4)]
    assert counts == [2, 5, 2]


@pytest.mark.parametrize("settings", [{"factor_1": 2}, {"method": "similarity", "target": "all", "random": True}])
def test_a_generation_repeats_and_after_removal_is_the_plain_one(diffusers_sd1, settings):
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), diffusers_sd1.unet)
    plain, before = generate(pipe, 3), snapshot(pipe.unet)
    assert apply_patch(pipe, **settings).host.unet is pipe.unet
    first, second = generate(pipe, 3), generate(pipe, 3)
    assert torch.equal(first, second)
    assert_differs(first, plain)
    assert remove_patch(pipe.unet) is pipe.unet
    assert snapshot(pipe.unet) == before
    assert torch.equal(generate(pipe, 3), plain)


def test_the_rotation_follows_the_pipelines_steps_not_the_number_of_calls(diffusers_sd1):
    """Guidance in two calls a step gives what guidance in one call gives."""
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), diffusers_sd1.unet)
    pipe.scheduler.set_timesteps(4)
    with patched(pipe, factor_1=2, factor_2=2):
        for timestep in pipe.scheduler.timesteps:
            joint = diffusers_sd1(LATENT, timestep, words(2))
            split = [diffusers_sd1(LATENT[[row]], timestep, words(2)[[row]]) for row in (0, 1)]
            assert_close(torch.cat(split), joint)


def test_a_loop_of_ones_own_follows_the_schedule_it_sets_from_where_it_begins(diffusers_sd1):
    pipe, acting = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), diffusers_sd1.unet), []
    with patched(pipe, factor_1=2, start=0.2, end=0.7) as session:
        generate(pipe, 4)
        pipe.scheduler.set_timesteps(10)
        for first in (0, 5, 0, 5):
            session.record.reset()
            for timestep in pipe.scheduler.timesteps[first:]:
                diffusers_sd1(noise(1, 4, 8, 8), timestep)
            acting.append(set(session.record.steps))
    assert acting == [{2, 3, 4, 5, 6}, {1, 2, 3}] * 2


# what others put on the attentions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["keys/values", "all"])
def test_fused_projections_are_left_whole_and_noted_once_until_they_are_unfused(diffusers_sd1, target):
    settings, small = {"factor_1": 2, "phase": "fixed", "target": target}, diffusers_sd1.copy()
    small.unet.fuse_qkv_projections()
    plain = small(LATENT)
    with patched(small.unet, **settings) as session:
        assert torch.equal(small(LATENT), plain)
        small(LATENT, 400.0)
        assert session.record.levels == {}
        small.unet.unfuse_qkv_projections()
        ours = small(LATENT)
    assert len(session.record.notes) == 1
    assert "fused" in session.record.notes[0]
    with patched(diffusers_sd1.unet, **settings):
        assert_close(ours, diffusers_sd1(LATENT))


class Counting(AttnProcessor):
    """A processor of somebody else's, which doubles what it makes."""

    def __init__(self):
        self.keys = []

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, *args, **kwargs):
        context = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        self.keys.append(context.shape[1])
        return 2 * super().__call__(attn, hidden_states, encoder_hidden_states, *args, **kwargs)


def test_custom_processors_are_kept_and_called_with_fewer_keys(diffusers_sd1, monkeypatch):
    small = diffusers_sd1.copy()
    name, attention = next(iter(small.attentions(1).items()))
    processor = Counting()
    attention.set_processor(processor)
    with patched(small.unet, factor_1=2, phase="fixed"):
        ours = small(LATENT)
        assert attention.processor is processor
    assert processor.keys == [64]
    assert attention.processor is processor

    for module in small.attentions(1).values():
        use_plain_attention(monkeypatch, module, interpolated((16, 16), (8, 8), "nearest-exact"))
    once = attention.forward
    monkeypatch.setitem(vars(attention), "forward", lambda *args, **kwargs: 2 * once(*args, **kwargs))
    assert_close(ours, small(LATENT))


def test_processors_set_after_patching_are_used(diffusers_sd1):
    small = diffusers_sd1.copy()
    with patched(small.unet, factor_1=2, phase="fixed"):
        before = small(LATENT)
        small.unet.set_attn_processor(AttnProcessor())
        assert_close(small(LATENT), before)
        small.unet.set_attn_processor(AttnProcessor2_0())
        processor = Counting()
        small.unet.set_attn_processor(processor)
        small(LATENT)
    assert processor.keys.count(64) >= 5


# ControlNet -----------------------------------------------------------------------------------------------------------


def test_a_controlnet_is_reduced_as_the_first_half_of_its_unet(diffusers_sd1):
    controlnet = ControlNetModel.from_unet(diffusers_sd1.unet, conditioning_embedding_out_channels=(8, 16)).eval()
    blocks = [m for m in controlnet.modules() if isinstance(m, BasicTransformerBlock)]
    asked = {"sample": LATENT, "timestep": 500, "encoder_hidden_states": words(2), "return_dict": False}
    asked["controlnet_cond"] = noise(2, 3, 32, 32)
    seen: list[tuple[int, int]] = []
    for block in blocks:
        block.attn1.to_q.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
        block.attn1.to_k.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    before = snapshot(controlnet)
    with patched(controlnet, factor_1=2, factor_2=2) as session:
        controlnet(**asked)
    assert snapshot(controlnet) == before
    assert seen == [256, 64, 64, 16, 16, 16, 4, 4], "levels 1 and 2, and 3 and the middle whole"
    assert session.host.blocks(1) == session.host.blocks(2) == 1


def test_a_pipeline_with_a_controlnet_takes_a_patch_on_each(diffusers_sd1):
    controlnet = ControlNetModel.from_unet(diffusers_sd1.unet)
    whole = apply_patch(controlnet), apply_patch(diffusers_sd1.unet)
    assert {id(session.host.unet) for session in whole} == {id(controlnet), id(diffusers_sd1.unet)}
    remove_patch(controlnet)
    assert hook_count(controlnet) == 0 < hook_count(diffusers_sd1.unet)
    remove_patch(diffusers_sd1.unet)
    assert hook_count(diffusers_sd1.unet) == 0
