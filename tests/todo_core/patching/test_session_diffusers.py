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
from diffusers.models.attention_processor import AttnProcessor

from tests.models import (
    assert_close,
    assert_differs,
    interpolated,
    keys_of,
    lengths,
    noise,
    pipeline,
    snapshot,
    use_plain_attention,
    words,
)
from todo_core import patched

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


class Counting(AttnProcessor):
    """A processor of somebody else's, which doubles what it makes."""

    def __init__(self):
        self.keys = []

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, *args, **kwargs):
        context = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        self.keys.append(context.shape[1])
        return 2 * super().__call__(attn, hidden_states, encoder_hidden_states, *args, **kwargs)


def test_processors_set_before_or_after_patching_are_kept_and_called_with_fewer_keys(diffusers_sd1, monkeypatch):
    small, processor = diffusers_sd1.copy(), Counting()
    attentions = small.attentions(1).values()
    next(iter(attentions)).set_processor(processor)
    with patched(small.unet, factor_1=2, phase="fixed"):
        ours = small(LATENT)
        assert processor.keys == [64]
        assert next(iter(attentions)).processor is processor
        small.unet.set_attn_processor(processor)
        small(LATENT)
    assert processor.keys.count(64) == 1 + 2 * len(attentions), "level 2 has 64 tokens"
    assert 256 not in processor.keys
    small.unet.set_attn_processor(AttnProcessor())
    for module in attentions:
        use_plain_attention(monkeypatch, module, interpolated((16, 16), (8, 8), "nearest-exact"))
    first = next(iter(attentions))
    once = first.forward
    monkeypatch.setitem(vars(first), "forward", lambda *args, **kwargs: 2 * once(*args, **kwargs))
    assert_close(ours, small(LATENT))


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
