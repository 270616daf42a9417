"""SD.Next: its passes and steps are found out in the UNet's calls, and nothing stays behind."""

import pytest
import torch
from modules import script_callbacks, scripts, shared

from tests.models import hook_count, shallow_diffusers_unet
from tests.todo_core.webui.sdnext_double import PipelineProcessing, SDNext
from tests.todo_core.webui.webui_double import load_script

from .test_generation import lengths

OURS = {"enabled": True, "factor_1": 2, "interval": 1, "start": 0, "end": 1}
SITE = "down_blocks.0.attentions.0.transformer_blocks.0"


@pytest.fixture(scope="module")
def unet():
    return shallow_diffusers_unet()


@pytest.fixture
def sdnext(monkeypatch, tmp_path, unet):
    callbacks = []
    monkeypatch.setattr(script_callbacks, "callbacks_after_process", callbacks)
    monkeypatch.setattr(script_callbacks, "on_after_process", callbacks.append, raising=False)
    monkeypatch.setattr(scripts, "folder", tmp_path)
    webui = SDNext(load_script().ToDoScript(), unet, monkeypatch)
    assert len(callbacks) == 1
    yield webui
    assert hook_count(unet) == 0


FIRST, HIRES = (64, 64), (256, 256)


def test_a_job_that_another_script_runs_inside_each_batch_is_left_alone(sdnext):
    p = PipelineProcessing(seeds=[1, 2], n_iter=2, own_job=PipelineProcessing(enable_hr=False))
    seen, done = lengths(sdnext, p, OURS | {"passes": "all"})
    assert seen == ([(64, 16)] * 4 + [FIRST] * 4 + [(256, 64)] * 4) * 2
    assert len(done.infotexts) == 2


def test_another_checkpoint_between_two_generations(sdnext):
    sdnext.generate(PipelineProcessing(), OURS)
    sdnext.unet = shallow_diffusers_unet(seed=3)
    sdnext.load()
    seen, _ = lengths(sdnext, PipelineProcessing(), OURS)
    assert seen == [FIRST] * 4 + [(256, 64)] * 4
    assert hook_count(sdnext.unet) == 0


def test_a_model_without_a_unet_is_told(sdnext):
    shared.sd_model = type("FluxPipeline", (), {"transformer": torch.nn.Identity()})()
    done = sdnext.generate(PipelineProcessing(no_unet=True), OURS)
    assert "ToDo cannot reduce FluxPipeline" in done.comments


def test_layers_that_hypertile_tiles_are_left_alone(sdnext):
    attention = sdnext.unet.get_submodule(SITE).attn1
    attention._original_forward = attention.forward
    attention.forward = lambda *args, **kwargs: attention._original_forward(*args, **kwargs)
    try:
        seen, done = lengths(sdnext, PipelineProcessing(), OURS)
    finally:
        del attention._original_forward, attention.forward
    assert seen == [FIRST] * 4 + [HIRES] * 4
    assert "HyperTile" in done.comments
