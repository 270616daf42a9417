"""Adapters on the pocket model: tomesd, small doubles of those that need a checkout, and those that save steps."""

import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from todo_core import Settings, SettingsError
from todo_lab.evaluation.backends import peers
from todo_lab.evaluation.backends.local import Local
from todo_lab.evaluation.variants import BASELINE, from_peer, from_settings
from todo_lab.pocket.model.pocket_model import Pocket
from todo_lab.sampling.request import Request

ASKED = Request(prompt="a red circle over stripes", seed=5, steps=2, hires_steps=2, width=64, height=64)
SIX = replace(ASKED, hires_steps=6)

TOKEN_DOWNSAMPLING = """
import gradio as gr
from modules import scripts, script_callbacks, shared, processing
class S(scripts.Script): pass
script_callbacks.on_ui_settings(lambda: gr.Slider)
def apply_patch(model, is_sdxl, factor, factor2, disable_after):
    assert (is_sdxl, factor2) == (False, 1) and disable_after > 10**6
    for module in model.model.diffusion_model.modules():
        if module.__class__.__name__ == "BasicTransformerBlock":
            def hook(m, args, kwargs):
                kwargs["context"] = args[0][:, ::int(factor) ** 2]
                return args, kwargs
            module.attn1.register_forward_pre_hook(hook, with_kwargs=True)
            module.attn1.trace = True
"""
HYPERTILE = """
def hypertile_hook_model(model, width, height, *, enable=False, tile_size_max=128, swap_size=1, max_depth=3):
    assert enable and (width, height, tile_size_max) == (128, 128, 32)
    for module in model.modules():
        if module.__class__.__name__ == "BasicTransformerBlock":
            forward = module.attn1.forward
            module.attn1.forward = lambda x, forward=forward, **k: forward(x[:, : x.shape[1] // 2].repeat(1, 2, 1), **k)
"""
IMPROVED = """
import xformers, xformers.ops
from merge import TokenMergeAttentionProcessor, halved
def patch_attention_proc(unet, options):
    assert options["downsample_factor"] == 2
    unet.seen = {}
    def hook(module, args):
        module.seen["timestep"] = args[1].item()
    unet.register_forward_pre_hook(hook)
    unet.halved = halved and TokenMergeAttentionProcessor()()
"""
MERGE = """
USE_PEFT_BACKEND, halved = False, True
class TokenMergeAttentionProcessor:
    def __call__(self):
        return USE_PEFT_BACKEND
"""
BIGAIN = """
import xformers.ops
from token_scoring import scored
def up_or_downsample(item, cur_w, cur_h, new_w, new_h, method, timestep=None, blend_factor=0.5):
    assert (cur_w, cur_h, new_w, new_h, method, blend_factor) == (24, 16, 12, 8, "linear_blend", 1.2)
    assert scored and 0 < timestep < 1000 and item.shape[1] == 384
    return item[:, ::4]
"""
FORECASTER = """
import torch
DTYPE = torch.bfloat16
class ChebyshevForecaster:
    def __init__(self, M, K, lam):
        self.known = {}
class Spectrum:
    def __init__(self, forecaster, taylor_order, prefer, w):
        self.known = forecaster.known
    def update(self, step, features):
        assert DTYPE == torch.float32 and features.shape[0] == 1
        self.known[step] = features
    def predict(self, step):
        assert step not in self.known
        return self.known[max(self.known)]
"""


@pytest.fixture(scope="module")
def model():
    return Pocket()


@pytest.fixture(scope="module")
def scene(model):
    return Local(model).prepare(SIX)


@pytest.fixture
def checkouts(tmp_path):
    files = {
        "token-downsampling/scripts/token_downsampling.py": TOKEN_DOWNSAMPLING,
        "hypertile/hypertile.py": HYPERTILE,
        "ImprovedTokenMerge/utils.py": IMPROVED,
        "ImprovedTokenMerge/merge.py": MERGE,
        "BiGain/ImprovedTokenMerge/merge.py": BIGAIN,
        "BiGain/ImprovedTokenMerge/token_scoring.py": "scored = True",
        "Spectrum/src/utils/basis_utils.py": FORECASTER,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return {folder.name: folder for folder in tmp_path.iterdir()}


def traces(model):
    return [
        (type(m), sorted(vars(m)), len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.target.modules()
    ]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tomesd", {"ratio": 0.5}),
        ("token-downsampling", {"factor": 2}),
        ("hypertile", {"tile": 32}),
        ("BiGain", {"factor": 2, "method": "linear_blend", "blend_factor": 1.2}),
    ],
)
def test_a_peer_acts_while_it_is_applied_and_leaves_no_trace(model, checkouts, name, options):
    scene = Local(model, checkouts).prepare(replace(ASKED, width=96) if name == "BiGain" else ASKED)
    baseline = scene.generate(BASELINE)
    before, modules = traces(model), set(sys.modules)
    reduced = scene.generate(from_peer(name, options))
    assert (reduced.image != baseline.image).any()
    assert traces(model) == before
    assert (scene.generate(BASELINE).image == baseline.image).all()
    left = {module.split(".")[0] for module in set(sys.modules) - modules}
    assert not left & {"modules", "hypertile", "token_downsampling", "utils", "merge", "token_scoring", "xformers"}
    assert from_peer(name, options).name in reduced.infotext.partition("Peer: ")[2]


def test_improved_token_merge_gets_one_timestep_of_a_diffusers_unet(checkouts):
    from diffusers import UNet2DConditionModel

    unet = UNet2DConditionModel(
        block_out_channels=(8, 8), norm_num_groups=4, cross_attention_dim=8, attention_head_dim=2, layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ).eval()  # fmt: skip
    with peers.applied("ImprovedTokenMerge", checkouts["ImprovedTokenMerge"], unet, ASKED, '{"factor": 2}'):
        unet(torch.zeros(2, 4, 8, 8), torch.tensor([7, 7]), encoder_hidden_states=torch.zeros(2, 3, 8))
        assert unet.seen == {"timestep": 7}
        assert unet.halved
    assert not hasattr(unet, "seen")
    assert not unet._forward_pre_hooks


def test_a_peer_rejects_an_unsupported_model_and_needs_its_checkout(model, checkouts):
    for name, found, error, said in (
        ("ImprovedTokenMerge", checkouts, TypeError, "diffusers"),
        ("hypertile", {}, SettingsError, "--peer hypertile=PATH"),
        ("nobody", {}, SettingsError, "tomesd"),
        ("hypertile", {"hypertile": checkouts["BiGain"]}, FileNotFoundError, "has no module hypertile"),
    ):
        with pytest.raises(error, match=said):
            Local(model, found).prepare(ASKED).generate(from_peer(name, {}))


def test_the_model_is_restored_after_an_error_in_a_peer(model, checkouts):
    before = traces(model)
    with pytest.raises(ZeroDivisionError), peers.applied("tomesd", None, model.target, ASKED):
        1 / 0  # noqa: B018
    assert traces(model) == before


@contextmanager
def counted(model):
    """The rows of each run of the UNet's middle."""
    rows = []
    hook = model.target.unet.middle_block.register_forward_hook(lambda _, args, __: rows.append(len(args[0])))
    try:
        yield rows
    finally:
        hook.remove()


def test_a_variant_of_ours_tells_what_ran_and_why_not_more(scene):
    made = scene.generate(from_settings(Settings(factor_1=2, tolerance=0)))
    assert "ToDo factor 1: 2, ToDo tolerance: 0, " in made.infotext
    assert "ToDo interval: auto (1), ToDo version: " in made.infotext
    assert [note.partition(": error")[0] for note in made.notes] == ["nothing predicted"]


def test_fewer_steps_changes_the_request_alone(model, scene):
    with counted(model) as rows:
        made = scene.generate(from_peer("fewer steps", {"share": 0.5}))
    assert rows == [2, 2, 2]
    expected = Local(model).prepare(replace(SIX, hires_steps=3)).generate(BASELINE)
    assert np.array_equal(made.image, expected.image)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("DeepCache", {"interval": 1}),
        ("fewer steps", {"share": 1.0}),
        ("ZEUS", {"start": 1.0}),
        ("EasyCache", {"threshold": 0}),
    ],
)
def test_an_adapter_that_saves_nothing_changes_nothing(scene, name, options):
    assert np.array_equal(scene.generate(from_peer(name, options)).image, scene.generate(BASELINE).image)


def test_deepcache_runs_the_first_and_the_last_block_between_full_calls(model):
    from ldm.modules.diffusionmodules.util import timestep_embedding

    unet = model.target.unet
    x, times, text = torch.randn(2, 2, 4, 8, 8), torch.tensor([[700, 700], [600, 600]]), torch.randn(2, 77, 128)
    kept = []
    with torch.inference_mode():
        hook = unet.output_blocks[-2].register_forward_hook(lambda _, __, output: kept.append(output))
        unet(x[0], timesteps=times[0], context=text)
        hook.remove()
        emb = unet.time_embed(timestep_embedding(times[1], unet.model_channels))
        first = unet.input_blocks[0](x[1], emb, text)
        expected = unet.out(unet.output_blocks[-1](torch.cat([kept[0], first], 1), emb, text))
        with peers.applied("DeepCache", None, model.target, ASKED, '{"interval": 2}'), counted(model) as rows:
            unet(x[0], timesteps=times[0], context=text)
            found = unet(x[1], timesteps=times[1], context=text)
    assert rows == [2]
    torch.testing.assert_close(found, expected)


@torch.inference_mode()
def outputs_of(model, name, inputs, options="{}"):
    """The UNet's outputs for these inputs alone, those with the peer, and how many the peer has computed."""
    unet, steps = model.target.unet, len(inputs)
    context, timesteps = model.context(["a red circle", ""]), torch.linspace(900, 100, steps).round()
    calls = list(zip(inputs, timesteps[:, None].expand(steps, 2), strict=True))
    alone = [unet(x, timesteps=times, context=context) for x, times in calls]
    asked = replace(ASKED, hires_steps=steps)
    with peers.applied(name, None, model.target, asked, options), counted(model) as rows:
        return alone, [unet(x, timesteps=times, context=context) for x, times in calls], len(rows)


def test_zeus_draws_a_line_and_then_repeats(model):
    torch.manual_seed(0)
    y, found, runs = outputs_of(model, "ZEUS", torch.randn(10, 2, 4, 8, 8))
    expected = [*y[:4], 2 * y[3] - y[2], y[3], y[6], 2 * y[6] - y[3], y[6], y[9]]
    assert runs == 6
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(("threshold", "runs"), [(0.05, 8), (1.5, 5), (4.0, 4)])
def test_easycache_follows_its_rule(model, threshold, runs):
    """Written again, in numbers. Outside 20 and 85 % of the schedule each step is computed."""
    torch.manual_seed(0)
    inputs = torch.randn(2, 4, 16, 16) + 0.1 * torch.arange(8)[:, None, None, None, None] * torch.randn(8, 2, 4, 16, 16)
    options = f'{{"threshold": {threshold}, "start": 0.2, "end": 0.85}}'
    y, found, computed = outputs_of(model, "EasyCache", inputs, options)
    last, rate, total = 0, 0.0, 0.0
    for step, done in enumerate((100, 214, 329, 443, 557, 671, 786, 900)):
        change = (inputs[step] - inputs[last])[0, :, ::8, ::8].abs().mean().item()
        expected, is_inside = y[step], 200 <= done < 850
        total += rate * change / y[last].abs().mean().item() if is_inside else 0
        if is_inside and rate and total < threshold:
            expected = inputs[step] + y[last] - inputs[last]
        else:
            rate = (y[step] - y[last])[0, :, ::8, ::8].abs().mean().item() / change if is_inside else rate
            last, total = step, 0.0
        torch.testing.assert_close(found[step], expected, atol=1e-5, rtol=0)
    assert computed == runs


@pytest.mark.parametrize(("warmup", "full"), [(6, 6), (2, 4), (1, 3)])
def test_spectrum_forecasts_between_its_windows(model, checkouts, warmup, full):
    scene = Local(model, checkouts).prepare(SIX)
    with counted(model) as rows:
        scene.generate(from_peer("Spectrum", {"warmup": warmup}))
    assert rows == [2] * full
