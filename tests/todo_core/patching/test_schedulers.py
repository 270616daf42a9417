"""Whole steps in a diffusers pipeline, whose scheduler tells whether it adds noise."""

import copy
import inspect
import math
import pickle
from functools import partial
from types import SimpleNamespace

import diffusers
import pytest
import torch
from accelerate import cpu_offload_with_hook
from diffusers import EulerDiscreteScheduler, StableDiffusionPipeline

import todo_core.course
from tests.models import hook_count, noise, pipeline, shallow_diffusers_unet, snapshot, words
from tests.todo_core.patching.test_copies import COPIES
from tests.todo_core.test_pacing import ALPHA_BARS
from todo_core import apply_patch, patched, remove_patch
from todo_core.hosts import detect
from todo_core.hosts.schedulers import course_of_scheduler
from todo_core.patching.session import Session
from todo_core.patching.time.prediction import Hold
from todo_core.reason import Reason

# predicted of 8 steps with interval 2
DEEP, MODEL = ("layers below level 1", {2, 4, 6}), ("whole model", {3, 5})
HELD_STEPS = {2, 4, 6}  # of a held image
WHOLE = {"predict": "whole", "interval": 2}
CONTINUOUS = {"timestep_type": "continuous", "prediction_type": "v_prediction"}


def ran(session):
    """What was predicted, and in which steps."""
    (part,) = session.record.predicted
    return part.name, part.predicted_in


@pytest.fixture
def unet():
    """Trained at 64 x 64 pixels."""
    return shallow_diffusers_unet(sample_size=8)


def generate(pipe, steps=8, side=128, **more):
    torch.manual_seed(3)
    size = {} if {"image", "width"} & more.keys() else {"height": side, "width": side}
    text = {"prompt_embeds": words(1, seed=4), "negative_prompt_embeds": words(1, seed=5)}
    return pipe(**text, num_inference_steps=steps, output_type="latent", **size, **more).images


def predicted(pipe, *notes, **call):
    """What a generation predicts, in which steps, and its latents."""
    with patched(pipe, **WHOLE) as session:
        latents = generate(pipe, **call)
    assert session.record.notes == [f"{note}: layers below level 1 are predicted" for note in notes]
    assert set(session.record.levels) == {1}
    return ran(session), latents


def test_a_loop_of_ones_own_is_counted_by_its_own_timesteps(unet):
    """A pipeline that has not run lists all 1,000 timesteps: those of another scheduler are far apart there."""
    pipe = pipeline(StableDiffusionPipeline, diffusers.DPMSolverMultistepScheduler(), unet)
    scheduler = EulerDiscreteScheduler()
    scheduler.set_timesteps(8)
    latent = noise(2, 4, 16, 16)
    with torch.no_grad(), patched(pipe, factor_1=2, interval=2) as session:
        for timestep in scheduler.timesteps.round():
            pipe.unet(latent, timestep, encoder_hidden_states=words(2, seed=4))
    assert ran(session)[1] == {2, 4, 6}
    assert session.record.steps == set(range(8))


@pytest.mark.parametrize(
    ("name", "config", "calls"),
    [
        ("DDIMScheduler", {}, 6),
        ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}, 6),
        ("PNDMScheduler", {"skip_prk_steps": True}, 7),  # it calls the model twice at its second timestep
        ("UniPCMultistepScheduler", {}, 6),
        # under noise, and with two calls a step, an image is held from the second computed step on
        ("EulerAncestralDiscreteScheduler", {}, 5),
        ("DDPMScheduler", {}, 5),
        ("HeunDiscreteScheduler", {}, 10),  # its first step has one call: the second ones are a step behind
    ],
)
def test_whole_steps_are_predicted(name, config, calls, unet):
    pipe, calls_made = pipeline(StableDiffusionPipeline, getattr(diffusers, name)(**config), unet), []
    with unet.conv_in.register_forward_hook(lambda *_: calls_made.append(1)):
        (what, steps), _ = predicted(pipe)
    assert len(calls_made) == calls
    assert what == MODEL[0]
    assert steps == {5: HELD_STEPS, 10: set()}.get(calls, MODEL[1])


@pytest.mark.parametrize("is_left_out", [True, False])
def test_where_auto_leaves_whole_steps_out_a_note_says_why_once(is_left_out, unet, caplog, monkeypatch):
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    monkeypatch.setattr(todo_core.course, "MOST_GROWTH", 0.5 if is_left_out else 3)
    with patched(pipe, factor_1=2, tolerance=1) as session:
        for _ in range(2):
            generate(pipe)
    why = f"no whole step predicted: {Reason.GROWS}"
    assert session.record.steps
    assert bool(session.record.whole.predicted_calls) != is_left_out
    assert session.record.notes == [why] * is_left_out
    assert caplog.messages == [f"ToDo: {why}"] * is_left_out


def test_a_patch_follows_the_scheduler_and_the_size_of_each_generation(unet):
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    found = []
    with patched(pipe, **WHOLE) as session:
        for scheduler, side in (
            (None, 128),
            (diffusers.EulerAncestralDiscreteScheduler, 128),
            (diffusers.DPMSolverMultistepScheduler, 128),
            (None, 256),
        ):
            if scheduler:
                pipe.scheduler = scheduler.from_config(pipe.scheduler.config)
            generate(pipe, side=side)
            found.append((*ran(session), set(session.record.levels)))
    assert found == [(*MODEL, {1}), (MODEL[0], HELD_STEPS, {1}), (*MODEL, {1}), (*MODEL, {1})]
    assert session.plan.settings is session.settings


@pytest.mark.parametrize("settings", [{"interval": 2}, WHOLE])
@pytest.mark.parametrize(("stop", "strength"), [(0, 0.8), (0, 0.5), (2, 0.5)])  # where the last one ended, or later
def test_an_image_after_a_stopped_one_is_that_of_a_fresh_patch(stop, strength, settings, unet):
    class StoppedError(Exception):
        pass

    def end_step(pipe, step, *_):
        if step == stop:
            raise StoppedError
        return {}

    pipe = pipeline(diffusers.StableDiffusionImg2ImgPipeline, EulerDiscreteScheduler(), unet)
    with patched(pipe, **settings) as session:
        with pytest.raises(StoppedError):
            generate(pipe, 10, image=noise(1, 4, 16, 16, seed=7), strength=0.8, callback_on_step_end=end_step)
        found = generate(pipe, 10, image=noise(1, 4, 16, 16), strength=strength)
    with patched(pipe, **settings) as fresh:
        assert torch.equal(found, generate(pipe, 10, image=noise(1, 4, 16, 16), strength=strength))
    assert str(session.record) == str(fresh.record)


def test_the_views_of_a_panorama_belong_to_one_pass(unet):
    pipe = pipeline(diffusers.StableDiffusionPanoramaPipeline, diffusers.DDIMScheduler(), unet)
    pipe.vae_scale_factor = 8  # its own windows of 64 x 64 are too large for a test
    pipe.get_views = lambda *_, **__: [(0, 16, 0, 16), (0, 16, 8, 24)]
    with patched(pipe, factor_1=2, interval=2) as session:
        generate(pipe, width=192, height=128)
    assert session.record.deep.predicted_calls == dict.fromkeys((2, 4, 6), 2)
    assert session._counter.passes == 1


@pytest.mark.parametrize(
    ("name", "config", "steps", "strength"),
    [
        ("DDIMScheduler", {}, 10, 1),
        ("EulerDiscreteScheduler", {"use_karras_sigmas": True, "timestep_spacing": "trailing"}, 10, 1),
        ("HeunDiscreteScheduler", {}, 10, 1),  # both calls of a timestep are one step
        ("KDPM2AncestralDiscreteScheduler", {}, 10, 1),  # its second calls are at the next timestep, but for rounding
        ("DDIMInverseScheduler", {}, 10, 1),  # it adds noise: timesteps rise
        ("EulerDiscreteScheduler", {}, 20, 0.5),
        # each call is a step where timesteps round to one, as the last two do here
        ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}, 50, 0.2),
        ("UniPCMultistepScheduler", {"use_karras_sigmas": True}, 50, 0.2),
    ],
)
def test_the_steps_are_those_of_the_pipelines_own_schedule(name, config, steps, strength, unet):
    """Also where the noise would say otherwise."""
    scheduler = getattr(diffusers, name)(**config, beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    kind = StableDiffusionPipeline if strength == 1 else diffusers.StableDiffusionImg2ImgPipeline
    more = {} if strength == 1 else {"image": noise(1, 4, 16, 16), "strength": strength}
    pipe = pipeline(kind, scheduler, unet)
    with patched(pipe, factor_1=2, interval=1, start=0.2, end=0.7) as session:
        generate(pipe, steps=steps, side=64, **more)
    assert strength != 0.2 or len(set(pipe.scheduler.timesteps[-10:].tolist())) < 10
    assert session.plan.facts.steps == 10
    assert session.record.steps == {2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("scale", "time_cond_proj_dim", "weights"),
    [
        (7.0, None, (-6, 7)),
        (0.0, None, (1,)),  # the value of SDXL Turbo
        (0.5, None, (1,)),
        (8.0, 16, (1,)),  # the UNet of an LCM takes it as an input
    ],
)
def test_a_pipeline_tells_whether_it_has_rows_of_the_negative_prompt(scale, time_cond_proj_dim, weights):
    unet = shallow_diffusers_unet(sample_size=8, time_cond_proj_dim=time_cond_proj_dim)
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    assert detect(pipe).sampler.weights() is None  # it has not run yet
    found = []
    unet.register_forward_pre_hook(lambda *_: found.append(detect(pipe).sampler.weights()))
    generate(pipe, steps=2, guidance_scale=scale)
    assert found == [weights] * 2


class Running(SimpleNamespace):
    """A pipeline that runs, as its call of the UNet sees it."""

    def __call__(self, asked=None):
        return detect(asked or self).sampler.weights()


def test_a_pipeline_that_edits_an_image_has_a_third_part_of_rows(unet):
    """InstructPix2Pix: prompt and image, image alone, neither."""
    pipe = Running(unet=unet, _guidance_scale=7.5, _image_guidance_scale=1.5)
    assert pipe() == (7.5, -6.0, -0.5)
    assert detect(pipe).sampler.weights() is None, "a loop of one's own has its own guidance"
    other = Running(unet=shallow_diffusers_unet(1), _guidance_scale=3.0)
    assert other(pipe) is None, "as has a pipeline of another UNet"


@pytest.mark.parametrize(("guidance_scale", "known"), [(7.5, None), (1.0, (1.0,))])
def test_the_guider_of_a_modular_pipeline_calls_the_model_for_each_prompt(unet, guidance_scale, known):
    assert Running(unet=unet, guider=diffusers.ClassifierFreeGuidance(guidance_scale))() == known


@pytest.mark.parametrize("patches", ["another pipeline", "the UNet"])
def test_scheduler_and_guidance_are_those_of_the_pipeline_that_runs(unet, patches):
    """Several may share a UNet."""
    first = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    generate(first, steps=2, guidance_scale=1.0)
    other = diffusers.StableDiffusionImg2ImgPipeline.from_pipe(first)
    other.scheduler, found = diffusers.EulerAncestralDiscreteScheduler(), []
    with patched(unet if patches == "the UNet" else first, interval=2) as session:
        unet.register_forward_pre_hook(lambda *_: found.append(session.host.sampler.weights()))
        generate(other, image=noise(1, 4, 16, 16), strength=1.0, guidance_scale=9.0)
    assert found == [(-8.0, 9.0)] * 8
    assert (session.plan.facts.course.holds, session.plan.facts.steps) == (True, 8)
    assert ran(session) == DEEP


def test_one_of_two_controlnets_that_ends_in_mid_pass_begins_anew(unet):
    """The UNet gets the sum of both, and zeros for one that has ended."""
    nets = [diffusers.ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(8,) * 4) for _ in range(2)]
    pipe = pipeline(
        partial(diffusers.StableDiffusionControlNetPipeline, controlnet=nets), EulerDiscreteScheduler(), unet
    )
    with patched(pipe, **WHOLE) as session:
        generate(pipe, 10, image=[torch.rand(1, 3, 64, 64)] * 2, control_guidance_end=[0.5, 1.0])
    assert ran(session) == (MODEL[0], {3, 8})


SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
V = {"prediction_type": "v_prediction"}


def effect(scheduler, first, call):
    """How far an error of 1 in the model's output of one call moves the image in the end."""

    def last(error):
        run, draws = copy.deepcopy(scheduler), inspect.signature(scheduler.step).parameters
        options = {"eta": 0.0} if "eta" in draws else {}
        options |= {"generator": torch.Generator().manual_seed(5)} if "generator" in draws else {}
        if hasattr(run, "set_begin_index"):
            run.set_begin_index(first)
        x, torch_state = torch.zeros(1, 1, 1, 1), torch.random.get_rng_state()
        for number, time in enumerate(run.timesteps[first:]):
            run.scale_model_input(x, time)
            x = run.step(torch.full_like(x, error * (number == call)), time, x, **options).prev_sample
        torch.random.set_rng_state(torch_state)
        return float(x)

    return abs(last(1.0) - last(0.0))


@pytest.mark.parametrize(
    ("name", "config", "first", "least", "most"),
    [
        # one step moves the image and nothing takes it back: the way is what it moves in the end
        ("EulerDiscreteScheduler", {}, 0, 0.99, 1.01),
        ("EulerDiscreteScheduler", {"use_karras_sigmas": True}, 5, 0.99, 1.01),
        ("DDIMScheduler", {"clip_sample": False, "set_alpha_to_one": True}, 0, 0.99, 1.01),
        ("EulerAncestralDiscreteScheduler", {}, 5, 0.99, 1.01),
        # solvers that take a part back
        ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}, 5, 0.9, 4),
        ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}, 0, 0.9, 9),
        ("UniPCMultistepScheduler", {}, 5, 0.9, 20),
        ("DEISMultistepScheduler", {}, 0, 0.5, 9),
        ("LMSDiscreteScheduler", {"use_karras_sigmas": True}, 5, 0.9, 9),
    ],
)
def test_the_weight_of_a_step_is_what_an_error_in_it_moves(name, config, first, least, most):
    scheduler = getattr(diffusers, name)(**SD, **config)
    scheduler.set_timesteps(12)
    course = course_of_scheduler(scheduler, first)
    assert course.times == pytest.approx(scheduler.timesteps[first:].tolist())
    grows = [(each.noise / 0.75) ** 4 if course.holds else each.noise**2 for each in course.scales]
    found = [weight / effect(scheduler, first, call) / (1 + grows[call]) for call, weight in enumerate(course.weights)]
    assert least < min(found) <= max(found) < most


@pytest.mark.parametrize(
    ("name", "config", "eta", "told"),
    [
        ("DDIMScheduler", {}, None, False),
        ("DDIMScheduler", {}, 1.0, True),
        ("KDPM2DiscreteScheduler", {}, None, True),
        ("KDPM2AncestralDiscreteScheduler", {}, None, True),
        ("HeunDiscreteScheduler", {}, None, True),
        ("TCDScheduler", {}, 0.3, True),
        ("DDIMScheduler", V | {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}, None, False),
        ("EDMEulerScheduler", {}, None, False),  # its timesteps are log(sigma) / 4
        ("EulerDiscreteScheduler", CONTINUOUS | {"use_karras_sigmas": True}, None, False),
    ],
)
def test_a_scheduler_is_asked_what_it_does(name, config, eta, told):
    scheduler = getattr(diffusers, name)(**({} if name == "EDMEulerScheduler" else SD), **config)
    scheduler.set_timesteps(12)
    before = copy.deepcopy(vars(scheduler))
    course = course_of_scheduler(scheduler, 0, eta=eta)
    assert course.holds == told
    assert course.why_not(whole=True) is None
    assert all(math.isfinite(scale.kept) != name.startswith("EDM") for scale in course.scales)
    most = 3_000_000 if course.holds else 10_000  # at the most noise, 30
    assert all(0 < weight < most for weight in course.weights[:-1])
    assert str(vars(scheduler)) == str(before)


@pytest.mark.parametrize(("name", "config"), [("FlowMatchEulerDiscreteScheduler", {}), ("DDIMInverseScheduler", {})])
def test_what_a_scheduler_does_with_another_kind_of_noise_is_not_known(name, config, unet):
    scheduler = getattr(diffusers, name)(**config)
    scheduler.set_timesteps(12)
    assert course_of_scheduler(scheduler) is None


def test_a_pipeline_tells_eta_and_why_nothing_is_predicted(unet):
    pipe = pipeline(StableDiffusionPipeline, diffusers.DDIMScheduler(), unet)
    with patched(pipe, **WHOLE) as session:
        generate(pipe, eta=1.0)
    assert session.plan.whole.way is Hold
    pipe.scheduler = diffusers.DDIMScheduler()
    pipe.scheduler.step = lambda *_, **__: 1 / 0
    with patched(pipe, **WHOLE) as session, pytest.raises(ZeroDivisionError):
        generate(pipe)
    assert session.plan.whole.why == Reason.UNKNOWN


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("EDMEulerScheduler", {}),
        ("EulerDiscreteScheduler", CONTINUOUS),
        ("EulerDiscreteScheduler", {"num_train_timesteps": 1100}),  # Kolors
        ("EulerDiscreteScheduler", {}),
    ],
)
def test_a_window_by_noise_ends_at_its_share_of_the_trained_timesteps(name, config, unet):
    """Of continuous ones, where the noise is that of Stable Diffusion's timestep 500."""
    pipe = pipeline(StableDiffusionPipeline, getattr(diffusers, name)(**config), unet)
    with patched(pipe, factor_1=2, interval=1, window="noise", end=0.5) as session:
        generate(pipe)
    scheduler, trained = pipe.scheduler, config.get("num_train_timesteps", 1000)
    if scheduler.timesteps[0] < 10:
        noisy = scheduler.sigmas[:8] > (1 / ALPHA_BARS[500] - 1) ** 0.5
    else:
        noisy = scheduler.timesteps > trained / 2
    assert session.record.steps == {step for step, is_noisy in enumerate(noisy) if is_noisy}
    assert 0 < len(session.record.steps) < 8
    assert not session.record.notes


def test_offload_after_the_patch_runs_as_before_and_before_the_patch_keeps_the_model_from_whole_steps(unet):
    """accelerate calls ToDo's forward, where that is inside of its own; else ToDo leaves accelerate's alone."""
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    plain, before, (_, expected) = generate(pipe), snapshot(unet), predicted(pipe)
    assert not torch.equal(expected, plain)
    assert snapshot(unet) == before
    session = apply_patch(pipe, **WHOLE)
    cpu_offload_with_hook(unet, "cpu")
    assert torch.equal(generate(pipe), expected)
    assert ran(session) == MODEL
    remove_patch(pipe)
    assert predicted(pipe, "another forward is on the model")[0] == DEEP
    assert torch.equal(generate(pipe), plain)


def test_beside_self_attention_guidance_nothing_is_predicted(unet):
    """It reads the map of a layer in each step, and fails where that has not run."""
    pipe = pipeline(diffusers.StableDiffusionSAGPipeline, diffusers.DDIMScheduler(), unet)
    with patched(pipe, **WHOLE) as session:
        latents = generate(pipe)
    assert not session.record.predicted
    assert session.record.notes == ["something else listens to a layer below level 1: nothing is predicted"]
    assert latents.isfinite().all()


@pytest.mark.parametrize("how", COPIES.values(), ids=COPIES)
def test_a_copy_of_the_model_has_run_nothing_and_counts_by_itself(how, unet):
    """It does not carry its pipeline along."""
    pipe = pipeline(StableDiffusionPipeline, diffusers.EulerAncestralDiscreteScheduler(), unet)
    plain = len(pickle.dumps(unet))
    session = apply_patch(pipe, **WHOLE)
    generate(pipe, steps=6)
    other, before = how(unet), repr(session.record)
    assert len(pickle.dumps(unet)) < plain + 200_000
    owner = next(iter(other._forward_pre_hooks.values())).owner
    assert isinstance(owner, Session)
    assert not owner.record.acted
    generate(pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), other))
    assert repr(session.record) == before
    assert ran(owner) == MODEL
    remove_patch(other)
    assert hook_count(other) == 0
