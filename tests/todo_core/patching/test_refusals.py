"""What is not reduced, or refused, and how the user is told."""

import logging
from contextlib import ExitStack
from functools import partial

import pytest
import torch
from diffusers import AutoencoderKL, ControlNetModel, ControlNetXSAdapter, UNet2DModel, UNetControlNetXSModel
from diffusers.models import attention_processor
from diffusers.pipelines.controlnet.pipeline_controlnet import MultiControlNetModel
from ldm.modules.diffusionmodules.openaimodel import UNetModel

from tests.models import assert_close, diffusers_unet, hook_count, keys_of, lengths, noise, snapshot
from todo_core import UnsupportedModelError, apply_patch, patched, remove_patch
from todo_core.hosts import detect

LATENT = noise(2, 4, 16, 8)
TOKENS = 16 * 8
ALL = {"target": "all", "factor_1": 2, "phase": "fixed", "crossattn": True, "mlp": True}


def replace_forward(monkeypatch, small, name, tokens_seen):
    """As Regional Prompter does: a forward on the instance that counts on the image's number of tokens."""
    for block in small.blocks(1):
        module = getattr(block, name)
        forward = module.forward

        def other(x, *args, forward=forward, **kwargs):
            tokens_seen.append(x.shape[1])
            x = x.unflatten(1, (16, 8)).flatten(1, 2)  # fails with any other number
            return 1.5 * forward(x, *args, **kwargs)

        monkeypatch.setitem(vars(module), "forward", other)


@pytest.mark.parametrize("name", ["attn1", "attn2", "ff"])
def test_a_replaced_forward_sees_the_whole_grid_and_the_others_are_reduced(sd1, name, monkeypatch):
    seen, reduced = [], {}
    replace_forward(monkeypatch, sd1, name, seen)
    block = sd1.blocks(1)[0]
    firsts = {"attn1": block.attn1.to_q, "attn2": block.attn2.to_q, "ff": block.ff.net[0]}
    with patched(sd1.unet, **ALL) as session, ExitStack() as stack:
        for part, first in firsts.items():
            note = lambda _, args, part=part: reduced.update({part: args[0].shape[1]})  # noqa: E731
            stack.enter_context(first.register_forward_pre_hook(note))
        for timestep in (500.0, 300.0):
            sd1(LATENT, timestep)
    assert set(seen) == {TOKENS}
    assert reduced == {part: TOKENS if part == name else 32 for part in firsts}
    assert len(session.record.notes) == 1
    assert f"another extension has replaced its {name}.forward" in session.record.notes[0]


@pytest.mark.parametrize("mark", ["_hf_hook", "_diffusers_hook"])
def test_the_forward_of_an_offload_is_no_obstacle(diffusers_sd1, mark, monkeypatch):
    """accelerate and diffusers leave these marks beside the forward that they replace."""
    for attention in diffusers_sd1.attentions(1).values():
        monkeypatch.setattr(attention, mark, object(), raising=False)
        monkeypatch.setitem(vars(attention), "forward", attention.forward)
    with patched(diffusers_sd1.unet, **ALL) as session, lengths(diffusers_sd1) as seen:
        diffusers_sd1(LATENT)
    assert keys_of(diffusers_sd1, 1, seen) == {(32, 32)}
    assert session.record.notes == []


def test_several_controlnets_are_refused_with_the_way_to_patch_each(diffusers_sd1):
    model = MultiControlNetModel([ControlNetModel.from_unet(diffusers_sd1.unet) for _ in range(2)])
    for refused in (apply_patch, remove_patch):
        with pytest.raises(UnsupportedModelError, match=r"MultiControlNetModel.*for net in model\.nets: "):
            refused(model)
    for net in model.nets:
        apply_patch(net)
        remove_patch(net)
    assert hook_count(model) == 0


def attention_blocks():
    """ldm's UNet before it had spatial transformers."""
    return UNetModel(8, 4, 32, 4, attention_resolutions=[2, 1], channel_mult=[1, 2], num_res_blocks=1, num_heads=4)


def controlnet_xs():
    unet = diffusers_unet(layers_per_block=2)
    adapter = ControlNetXSAdapter.from_unet(unet, size_ratio=1.0, conditioning_embedding_out_channels=(8, 8))
    return UNetControlNetXSModel.from_unet(unet, adapter)


class OtherPipeline:
    transformer = torch.nn.Linear(2, 2)


TWO_BLOCKS = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
TINY = {"block_out_channels": (8, 8), "norm_num_groups": 8}


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: torch.nn.Linear(2, 2), "Linear"),
        (attention_blocks, "UNetModel.*self-attention"),
        (lambda: UNet2DModel(16, **TINY, **TWO_BLOCKS), "UNet2DModel.*self-attention"),
        (lambda: diffusers_unet(only_cross_attention=True, mid_block_type=None), "UNet2DCond.*self-attention"),
        (lambda: AutoencoderKL(block_out_channels=(8,), norm_num_groups=4).encoder, "Encoder"),
        (OtherPipeline, "OtherPipeline"),
        (controlnet_xs, "side by side"),
    ],
)
def test_what_has_no_self_attention_of_a_unet_is_refused_by_name(build, said):
    model = build()
    before = snapshot(model) if isinstance(model, torch.nn.Module) else None
    for refused in (apply_patch, remove_patch):
        with pytest.raises(UnsupportedModelError, match=said):
            refused(model)
    assert before is None or snapshot(model) == before


@pytest.mark.parametrize("target", ["keys/values", "all"])
@pytest.mark.parametrize("when", ["before the patch", "after the patch"])
def test_fused_projections_are_left_whole_and_told_once_until_they_are_unfused(diffusers_sd1, target, when, caplog):
    small, settings = diffusers_sd1.copy(), {"target": target, "factor_1": 2, "phase": "fixed"}
    with patched(small.unet, **settings):
        expected = small(LATENT)
    with caplog.at_level(logging.WARNING, "todo_core"):
        if when == "before the patch":
            small.unet.fuse_qkv_projections()
        session = apply_patch(small.unet, **settings)
        if when == "after the patch":
            small.unet.fuse_qkv_projections()
        fused = small(LATENT)
        small(LATENT, 300.0)
    assert len(caplog.records) == len(session.record.notes) == 1
    assert session.record.levels == {}
    small.unet.unfuse_qkv_projections()
    assert_close(small(LATENT), expected)
    remove_patch(small.unet)
    small.unet.fuse_qkv_projections()
    assert torch.equal(small(LATENT), fused)


@pytest.mark.parametrize("processor", ["PAGIdentitySelfAttnProcessor2_0", "PAGCFGIdentitySelfAttnProcessor2_0"])
def test_a_layer_of_perturbed_attention_guidance_stays_whole_and_is_told(diffusers_sd1, processor):
    """Its processor reads the keys from the hidden states and ignores a context. The others are reduced."""
    small = diffusers_sd1.copy()
    (name, attention), *_ = small.attentions(1).items()
    attention.set_processor(getattr(attention_processor, processor)())
    with patched(small.unet, factor_1=2) as session, lengths(small) as seen:
        small(noise(3, 4, 16, 16))
    assert all(keys == (256 if of == name else 64) for of, queries, keys in seen if queries == 256)
    assert session.record.notes == ["a layer at level 1 is not reduced: perturbed-attention guidance replaces it"]


@pytest.mark.parametrize(("time", "settings", "told"), [(-1, {"end": 0.5}, 1), (1099, {"end": 0.5}, 1), (-1, {}, 0)])
def test_timesteps_that_are_not_the_trained_ones_are_told_where_the_noise_counts(sd1, time, settings, told):
    with patched(sd1.unet, factor_1=2, window="noise", **settings) as session:
        sd1(LATENT, time)
    noted = "its timesteps are not 1,000 trained ones: Start and End cannot follow the noise"
    assert session.record.notes == [noted] * told


def test_a_patch_that_reduced_nothing_says_so_once_and_an_error_adds_no_word(sd1, caplog):
    with caplog.at_level(logging.WARNING, "todo_core"):
        with patched(sd1.unet, window="noise", end=0.5, factor_1=2):
            sd1(LATENT, 100.0)
            with pytest.raises(RuntimeError):
                sd1(LATENT[:, :3])  # before its first block
        with patched(sd1.unet, factor_1=1):
            sd1(LATENT)
    out_of_window, factor = (record.getMessage() for record in caplog.records)
    assert "no step is between Start and End" in out_of_window
    assert "auto needs to know the number of steps" in factor


def test_another_forward_is_noted_in_each_pass_until_it_is_gone_and_its_module_predicted(ldm_sd1):
    """A helper that was put on first, as DeepCache's may be, and is taken off while the patch stays."""
    first, ran = detect(ldm_sd1.unet).deep_transformers[0], []
    first.forward = partial(type(first).forward, first)
    counts = first.norm.register_forward_hook(lambda *_: ran.append(1))
    with patched(ldm_sd1.unet, interval=2, factor_1=1) as session, counts:
        for each in range(3):
            if each == 2:
                del first.forward
            ran.clear()
            for step in range(6):
                ldm_sd1(noise(1, 4, 16, 16, seed=each), 900 - 100 * step)
            notes = [note for note in session.record.notes if "another SpatialTransformer.forward is on it" in note]
            assert (len(ran), len(notes)) == ((6, 1) if each < 2 else (4, 0))
    assert "forward" not in vars(first)
