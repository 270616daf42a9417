"""Adapters on the pocket model: the installed tomesd, and small doubles of those that need a checkout."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from todo_core import SettingsError, hosts
from todo_lab.evaluation.backends import peers
from todo_lab.evaluation.backends.local import Local
from todo_lab.evaluation.variants import BASELINE, from_peer
from todo_lab.pocket.model.pocket_model import Pocket
from todo_lab.sampling.request import Request

ASKED = Request(prompt="a red circle over stripes", seed=5, steps=2, hires_steps=2, width=64, height=64)

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
SITO = """
import matplotlib.pyplot as plt
import torch
count_num = torch.zeros((2, 4), dtype=torch.int32, device="cuda")
def halved(x):
    return F.normalize(x[:, ::2], dim=-1)
"""
SITO_PATCH = """
from . import sito
def apply_patch(model, prune_ratio=0.7):
    assert prune_ratio == 0.5
    seen = []
    model.model.diffusion_model.register_forward_pre_hook(lambda _, args: seen.append(args[1][0].cpu().item()))
    for block in model.model.diffusion_model.modules():
        if type(block).__name__ == "BasicTransformerBlock":
            hook = lambda _, args: (sito.halved(args[0]).repeat_interleave(2, 1), *args[1:])
            block.attn1.register_forward_pre_hook(hook)
            assert sito.count_num.device.type == "cpu"
"""
WINDOWS = """
from diffusers.pipelines.controlnet.multicontrolnet import MultiControlNetModel
def make_diffusers_transformer_block(block_class):
    class transformer_block(block_class):
        def forward(self, hidden_states, attention_mask=None, encoder_hidden_states=None):
            assert self.use_layer_norm and not (self.use_ada_layer_norm or self.use_ada_layer_norm_single)
            assert self._chunk_size is None and self.pos_embed is None and self.info["size"] == (16, 24)
            half = hidden_states.shape[1] // 2
            windows = self.norm1(hidden_states).unflatten(1, (2, half)).flatten(0, 1)
            found = self.attn1(windows, encoder_hidden_states=None, attention_mask=attention_mask)
            hidden_states = found.unflatten(0, (-1, 2)).flatten(1, 2) + hidden_states
            texts = {"encoder_hidden_states": encoder_hidden_states, "attention_mask": None}
            hidden_states = self.attn2(self.norm2(hidden_states), **texts) + hidden_states
            return self.ff(self.norm3(hidden_states)) + hidden_states
    return transformer_block
"""


@pytest.fixture(scope="module")
def model() -> Pocket:
    return Pocket()


@pytest.fixture
def checkouts(tmp_path) -> dict[str, Path]:
    files = {
        "token-downsampling/scripts/token_downsampling.py": TOKEN_DOWNSAMPLING,
        "hypertile/hypertile.py": HYPERTILE,
        "ImprovedTokenMerge/utils.py": IMPROVED,
        "ImprovedTokenMerge/merge.py": MERGE,
        "BiGain/ImprovedTokenMerge/merge.py": BIGAIN,
        "BiGain/ImprovedTokenMerge/token_scoring.py": "scored = True",
        "SiTo/__init__.py": "from . import sito\nfrom .patch import apply_patch",
        "SiTo/sito.py": SITO,
        "SiTo/patch.py": SITO_PATCH,
        "HiDiffusion/hidiffusion/__init__.py": "from . import hidiffusion",
        "HiDiffusion/hidiffusion/hidiffusion.py": WINDOWS,
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return {folder.name: folder for folder in tmp_path.iterdir()}


def traces(model) -> list:
    return [
        (type(m), sorted(vars(m)), len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.target.modules()
    ]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tomesd", {"ratio": 0.5}),
        ("CA-ToMe", {"threshold": 0.7}),
        ("token-downsampling", {"factor": 2}),
        ("hypertile", {"tile": 32}),
        ("BiGain", {"factor": 2, "method": "linear_blend", "blend_factor": 1.2}),
        ("SiTo", {"ratio": 0.5}),
        ("HiDiffusion", {}),
    ],
)
def test_a_peer_acts_while_it_is_applied_and_leaves_no_trace(model, checkouts, name, options):
    wide = name in ("BiGain", "HiDiffusion")
    scene = Local(model, checkouts).prepare(replace(ASKED, width=96) if wide else ASKED)
    baseline = scene.generate(BASELINE)
    before, modules = traces(model), set(sys.modules)
    reduced = scene.generate(from_peer(name, options))
    assert (reduced.image != baseline.image).any()
    assert traces(model) == before
    assert (scene.generate(BASELINE).image == baseline.image).all()
    left = {module.split(".")[0] for module in set(sys.modules) - modules}
    assert not left & {"modules", "hypertile", "token_downsampling", "utils", "merge", "token_scoring", "SiTo"}
    assert not left & {"hidiffusion", "xformers"}
    assert from_peer(name, options).name in reduced.infotext.partition("Peer: ")[2]


def test_ca_tome_merges_by_similarity_and_matches_in_some_steps_only(model, monkeypatch):
    drawn, true = [], torch.randint
    monkeypatch.setattr(torch, "randint", lambda *args, **options: drawn.append(args) or true(*args, **options))
    scene = Local(model).prepare(replace(ASKED, hires_steps=20))
    site = next(site for site in hosts.detect(model.target).sites if site.level == 1)
    queries = []
    hook = site.block.attn1.register_forward_pre_hook(lambda _, args: queries.append(args[0].shape[1]))
    scene.generate(from_peer("CA-ToMe", {"threshold": -1.0}))
    hook.remove()
    level_1 = len([site for site in hosts.detect(model.target).sites if site.level == 1])
    assert queries == [64] * 20  # a quarter of 16 x 16
    assert len(drawn) == 11 * level_1  # steps 0, 3, 4, 5, 8, 10, 12, 14, 17, 18 and 19
    whole = scene.generate(from_peer("CA-ToMe", {"threshold": 1.0})).image
    assert (whole == scene.generate(BASELINE).image).all()


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


def test_a_peer_rejects_an_unsupported_model(model, checkouts):
    with pytest.raises(TypeError, match="diffusers"):
        Local(model, checkouts).prepare(ASKED).generate(from_peer("ImprovedTokenMerge", {}))


def test_a_peer_without_its_checkout_is_rejected(model, tmp_path):
    with pytest.raises(SettingsError, match="--peer hypertile=PATH"):
        Local(model).prepare(ASKED).generate(from_peer("hypertile", {}))
    with pytest.raises(SettingsError, match="tomesd"):
        Local(model).prepare(ASKED).generate(from_peer("nobody", {}))
    with pytest.raises(FileNotFoundError, match="has no module hypertile"):
        Local(model, {"hypertile": tmp_path}).prepare(ASKED).generate(from_peer("hypertile", {}))


def test_the_model_is_restored_after_an_error_in_a_peer(model, checkouts):
    before = traces(model)
    with pytest.raises(ZeroDivisionError), peers.applied("tomesd", None, model.target, ASKED):
        1 / 0  # noqa: B018
    assert traces(model) == before
