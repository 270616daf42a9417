"""SD.Next: its passes and steps are found out in the UNet's calls, and nothing stays behind."""

from __future__ import annotations

import pytest
import torch
from diffusers import DDIMScheduler
from modules import script_callbacks, shared

from tests.models import hook_count, shallow_diffusers_unet
from tests.todo_core.webui.sdnext_double import PipelineProcessing, SDNext
from todo_core.patching.session import Session

OURS = {"enabled": True, "factor_1": 2, "interval": 1}
SITE = "down_blocks.0.attentions.0.transformer_blocks.0"
DEEP = "mid_block.attentions.0.transformer_blocks.0"


@pytest.fixture(scope="module")
def unet():
    return shallow_diffusers_unet()


@pytest.fixture
def sdnext(monkeypatch, tmp_path, unet):
    callbacks = []
    monkeypatch.setattr(script_callbacks, "callbacks_after_process", callbacks)
    monkeypatch.setattr(script_callbacks, "on_after_process", callbacks.append, raising=False)
    from modules import scripts

    from tests.todo_core.webui.webui_double import load_script

    monkeypatch.setattr(scripts, "folder", tmp_path)
    webui = SDNext(load_script().ToDoScript(), unet, monkeypatch)
    yield webui
    assert hook_count(unet) == 0


def lengths(sdnext, p, *args, block=SITE):
    """(queries, keys) of an attn1 in each UNet call, and the result."""
    seen, attention = [], sdnext.unet.get_submodule(block).attn1
    handles = [
        attention.to_q.register_forward_pre_hook(lambda _, args: seen.append([args[0].shape[1]])),
        attention.to_k.register_forward_pre_hook(lambda _, args: seen[-1].append(args[0].shape[1])),
    ]
    try:
        return seen, sdnext.generate(p, *args)
    finally:
        for handle in handles:
            handle.remove()


FIRST, HIRES = [64, 64], [256, 256]


def test_the_hires_pass_is_reduced_from_its_first_call_on(sdnext):
    seen, done = lengths(sdnext, PipelineProcessing(), OURS)
    assert seen == [FIRST] * 4 + [[256, 64]] * 4
    assert "ToDo method: downsample, ToDo factor 1: 2" in done.infotexts[0]
    assert "the hires pass: level 1 from 256 to 64 tokens (downsample) in 4 of 4 steps" in done.comments


@pytest.mark.parametrize(("passes", "keys"), [("first", (16, 256)), ("all", (16, 64)), ("hires", (64, 64))])
def test_passes(sdnext, passes, keys):
    seen, _ = lengths(sdnext, PipelineProcessing(), OURS | {"passes": passes})
    assert seen == [[64, keys[0]]] * 4 + [[256, keys[1]]] * 4


def test_img2img_is_reduced(sdnext):
    image = torch.rand(1, 3, 128, 128, generator=torch.Generator().manual_seed(3))
    seen, done = lengths(sdnext, PipelineProcessing(init_images=[image], enable_hr=False), OURS)
    assert seen == [[256, 64]] * len(seen)
    assert "the img2img pass" in done.comments


def test_an_image_of_a_batch_has_its_own_seed(sdnext, monkeypatch):
    alone = [sdnext.generate(PipelineProcessing(seeds=[seed]), OURS).images[0] for seed in (5, 9)]
    told, begin_step = [], Session.begin_step
    monkeypatch.setattr(Session, "begin_step", lambda *step: (told.append(step[3]), begin_step(*step))[1])
    both = sdnext.generate(PipelineProcessing(seeds=[5, 9], batch_size=2), OURS).images
    assert told == [[5, 9]] * 4
    for one, other in zip(alone, both, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-2)


def test_a_job_that_another_script_runs_inside_is_left_alone(sdnext):
    p = PipelineProcessing(own_job=PipelineProcessing(enable_hr=False))
    seen, _ = lengths(sdnext, p, OURS | {"passes": "all"})
    assert seen == [[64, 16]] * 4 + [FIRST] * 4 + [[256, 64]] * 4


def test_two_batches(sdnext):
    seen, done = lengths(sdnext, PipelineProcessing(seeds=[1, 2], n_iter=2), OURS)
    assert seen == ([FIRST] * 4 + [[256, 64]] * 4) * 2
    assert len(done.infotexts) == 2


def test_another_checkpoint_between_two_generations(sdnext):
    sdnext.generate(PipelineProcessing(), OURS)
    sdnext.unet = shallow_diffusers_unet(seed=3)
    sdnext.load()
    seen, _ = lengths(sdnext, PipelineProcessing(), OURS)
    assert seen == [FIRST] * 4 + [[256, 64]] * 4
    assert hook_count(sdnext.unet) == 0


def test_a_model_without_a_unet_is_told(sdnext):
    shared.sd_model = type("FluxPipeline", (), {"transformer": torch.nn.Identity()})()
    done = sdnext.generate(PipelineProcessing(no_unet=True), OURS)
    assert "ToDo cannot reduce FluxPipeline" in done.comments


def test_layers_that_hypertile_tiles_are_left_alone(sdnext):
    attention = sdnext.unet.get_submodule(SITE).attn1
    attention._original_forward, attention.forward = (
        attention.forward,
        lambda *args, **kw: attention._original_forward(*args, **kw),
    )
    try:
        seen, done = lengths(sdnext, PipelineProcessing(), OURS)
    finally:
        del attention._original_forward, attention.forward
    assert seen == [FIRST] * 4 + [HIRES] * 4
    assert "HyperTile" in done.comments


def test_the_noise_window_follows_the_timestep(sdnext):
    p = PipelineProcessing(steps=10, scheduler=DDIMScheduler(), enable_hr=False)
    seen, _ = lengths(sdnext, p, OURS | {"end": 0.5, "window": "noise", "passes": "first"})
    assert [keys for _, keys in seen] == [16] * 5 + [64] * 5
