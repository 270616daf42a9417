"""Small real UNets on random weights, in the layouts of SD1.5, SD2 and SDXL, and what the tests read off them.

Where a layout attends, at which level, is written down here by hand: ``todo_core`` has to find the same. diffusers
takes seconds to import, so that only what uses it does.
"""

import copy
import functools
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from ldm.modules.diffusionmodules.openaimodel import UNetModel
from ldm.modules.diffusionmodules.util import GroupNorm32
from torch import nn

TEXT_WIDTH = 32


@dataclass(frozen=True, eq=False)
class Small:
    """A small UNet. ``levels`` are patterns of module names: the attn1 of that level."""

    unet: nn.Module
    levels: dict[int, str]
    halvings: int  # of the latent before level 1

    @torch.no_grad()
    def __call__(self, latent, timestep=500.0, text=None):
        """One UNet call, as samplers make it."""
        text = words(len(latent)) if text is None else text
        if hasattr(self.unet, "input_blocks"):  # also where torch.compile has wrapped it
            return self.unet(latent, torch.full((len(latent),), float(timestep)), [text] * 2)  # one for each block
        return self.unet(latent, timestep, encoder_hidden_states=text, **self.extra(len(latent))).sample

    def extra(self, rows):
        """What SDXL in diffusers wants beside the text."""
        if getattr(self.unet.config, "addition_embed_type", None) != "text_time":
            return {}
        pooled = noise(rows, TEXT_WIDTH, seed=8)
        return {"added_cond_kwargs": {"text_embeds": pooled, "time_ids": torch.ones(rows, 6)}}

    def attentions(self, level):
        """The attn1 modules of a level by name, in the order of their registration."""
        found = {name: module for name, module in self.unet.named_modules() if re.fullmatch(self.levels[level], name)}
        assert found, f"the layout written down here has no level {level}"
        return found

    def blocks(self, level):
        """The transformer blocks of a level."""
        return [self.unet.get_submodule(name.removesuffix(".attn1")) for name in self.attentions(level)]

    def copy(self):
        """One to be taken apart."""
        return Small(copy.deepcopy(self.unet), self.levels, self.halvings)


class LatentDiffusion(nn.Module):
    """The shape of ldm's LatentDiffusion and sgm's DiffusionEngine."""

    alphas_cumprod = (1 - torch.linspace(0.00085**0.5, 0.012**0.5, 1000).double() ** 2).cumprod(0).float()

    def __init__(self, unet, **attributes):
        super().__init__()
        self.model = nn.Module()
        self.model.diffusion_model = unet
        for name, value in attributes.items():
            setattr(self, name, value)


def randomised(model, seed=0):
    """Random weights; ldm starts with output layers of zeros.

    Self-attention is peaked, so that a reduction shows (0.2 of an output of 0.5). Each branch adds a part to the
    residual stream, as in a trained model: with full weights the UNet is chaotic, and rounding shows as well (0.01).
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        values = torch.randn(weight.shape, generator=generator)
        if weight.ndim > 1:
            values *= weight[0].numel() ** -0.5 * _gain(name)
        else:
            values = 0.1 * values + name.endswith("weight")
        weight.data.copy_(values)
    return model.eval().requires_grad_(False)


def _gain(name):
    if re.search(r"\.to_[qk]\.", name):
        return 3
    return 0.3 if re.search(r"\.(to_out|net\.2|proj_out|out_layers|conv2)\b", name) else 1


def noise(*shape, seed=1):
    """Gaussian noise that is the same at every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def words(rows, seed=2):
    """A text of seven tokens a row."""
    return noise(rows, 7, TEXT_WIDTH, seed=seed)


# ldm ----------------------------------------------------------------------------------------------------------------

_BLOCK = r"\.1\.transformer_blocks\.\d+\.attn1"
_LDM_SD = {1: rf"(input_blocks\.1|output_blocks\.[67]){_BLOCK}", 2: rf"(input_blocks\.3|output_blocks\.[45]){_BLOCK}"}
_LDM_SDXL = {1: rf"(input_blocks\.3|output_blocks\.[23]){_BLOCK}"}
_LDM_SDXL |= {2: rf"(input_blocks\.5|middle_block|output_blocks\.[01]){_BLOCK}"}


def ldm_unet(seed=0, **changes):
    """ldm's own UNetModel in the layout of SD1.5, a tenth as wide, with half the blocks."""
    config = {
        "image_size": 32,
        "in_channels": 4,
        "out_channels": 4,
        "model_channels": 32,
        "attention_resolutions": [4, 2, 1],
        "num_res_blocks": 1,
        "channel_mult": [1, 2, 2, 2],
        "num_heads": 8,
        "use_spatial_transformer": True,
        "transformer_depth": 1,
        "context_dim": TEXT_WIDTH,
        "legacy": False,
    }
    return randomised(UNetModel(**(config | changes)), seed)


def shallow_ldm_unet(seed=0, **changes):
    """One transformer at level 1 and two below it, all behind the middle: for tests that run many UNet calls."""
    few = {"channel_mult": [1, 2], "attention_resolutions": [2, 1], "num_heads": 2, "num_res_blocks": 0}
    return ldm_unet(seed, **(few | changes))


@functools.cache
def shallow():
    """The cheapest: see ``shallow_ldm_unet``."""
    return Small(shallow_ldm_unet(), {}, 0)


@functools.cache
def ldm_sd1():
    """SD1.5 in ldm: 3 blocks at level 1 and 3 at level 2."""
    return Small(ldm_unet(), _LDM_SD, 0)


@functools.cache
def ldm_sd2():
    """SD2 in ldm: linear projections, heads of equal width."""
    return Small(ldm_unet(num_heads=-1, num_head_channels=16, use_linear_in_transformer=True), _LDM_SD, 0)


@functools.cache
def ldm_sdxl():
    """The layout of SDXL in ldm: no attention at the latent's own grid, the middle at level 2, 2 blocks each."""
    changes = {"attention_resolutions": [4, 2], "channel_mult": [1, 2, 2], "transformer_depth": 2}
    config = {"num_heads": -1, "num_head_channels": 16, "use_linear_in_transformer": True, "context_dim": [32, 32]}
    return Small(ldm_unet(**changes, **config), _LDM_SDXL, 1)


# diffusers ----------------------------------------------------------------------------------------------------------

_INNER = r"\.attentions\.\d+\.transformer_blocks\.\d+\.attn1"
_DIFFUSERS_SD = {1: rf"(down_blocks\.0|up_blocks\.3){_INNER}", 2: rf"(down_blocks\.1|up_blocks\.2){_INNER}"}
_DIFFUSERS_SDXL = {1: rf"(down_blocks\.1|up_blocks\.1){_INNER}"}
_DIFFUSERS_SDXL |= {2: rf"(down_blocks\.2|mid_block|up_blocks\.0){_INNER}"}


XL_BLOCKS = {
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "use_linear_projection": True,
    "sample_size": 128,
}


def diffusers_unet(seed=0, **changes):
    """UNet2DConditionModel in the layout of SD1.5, with half the blocks."""
    from diffusers import UNet2DConditionModel

    config = {
        "sample_size": 64,
        "block_out_channels": (32, 64, 64, 64),
        "layers_per_block": 1,
        "norm_num_groups": 8,
        "cross_attention_dim": TEXT_WIDTH,
        "attention_head_dim": 4,  # diffusers' name for the number of heads, in SD1.5
    }
    return randomised(UNet2DConditionModel(**(config | changes)), seed)


def shallow_diffusers_unet(seed=0, **changes):
    """One transformer at level 1, first of all, and one below it, in the middle."""
    few = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D",) * 2}
    return diffusers_unet(seed, block_out_channels=(32, 64), attention_head_dim=2, **few, **changes)


@functools.cache
def diffusers_sd1():
    """SD1.5 in diffusers."""
    return Small(diffusers_unet(), _DIFFUSERS_SD, 0)


@functools.cache
def diffusers_sd2():
    """SD2 in diffusers."""
    changes = {"attention_head_dim": (2, 4, 4, 4), "use_linear_projection": True, "sample_size": 96}
    return Small(diffusers_unet(**changes), _DIFFUSERS_SD, 0)


@functools.cache
def diffusers_sdxl():
    """SDXL in diffusers: 1 and 2 blocks a transformer."""
    changes = {
        **XL_BLOCKS,
        "block_out_channels": (32, 64, 64),
        "transformer_layers_per_block": (1, 1, 2),
        "attention_head_dim": (2, 4, 4),
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 6 * 8 + TEXT_WIDTH,
    }
    return Small(diffusers_unet(**changes), _DIFFUSERS_SDXL, 1)


def full_layout(name):
    """The host of "SD 1.5" or "SDXL" in its full width, without weights: its plans and estimates count it once."""
    from benchmarks.unet_call.models import full_host

    return full_host(name)


def small_vae():
    """diffusers', of factor 8 and as few channels as it has."""
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(8, 8, 8, 8),
        norm_num_groups=8,
        latent_channels=4,
    )


def pipeline(kind, scheduler, unet):
    """A Stable Diffusion pipeline that takes its text as embeddings."""
    torch.manual_seed(0)
    vae = small_vae()
    asked_for = {"steps_offset": 1, "clip_sample": False}
    known = {key: value for key, value in asked_for.items() if key in scheduler.config}
    scheduler = type(scheduler).from_config(scheduler.config, **known)
    nothing = dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor"))
    pipe = kind(vae=vae, unet=unet, scheduler=scheduler, requires_safety_checker=False, **nothing)
    pipe.set_progress_bar_config(disable=True)
    return pipe


BUILDS = shallow, ldm_sd1, ldm_sd2, ldm_sdxl, diffusers_sd1, diffusers_sd2, diffusers_sdxl
SMALL = {build.__name__: build for build in BUILDS}


@functools.cache
def doubled(name):
    """A copy in double precision, where rounding never decides which of two tokens is merged."""
    small = SMALL[name]().copy()
    double(small.unet)
    return small


def double(unet):
    """The model itself, from now on in double precision."""
    unet.double()
    if isinstance(unet, UNetModel):
        unet.dtype = torch.float64
        for module in unet.modules():
            if isinstance(module, GroupNorm32):  # casts to float32
                module.__class__ = nn.GroupNorm
        unet.time_embed.insert(0, Doubled())
    return unet


class Doubled(nn.Module):
    """Casts the time embedding, which ldm makes in float32."""

    def forward(self, x):
        return x.double()


# what tests expect of outputs ----------------------------------------------------------------------------------------


def assert_close(actual, expected):
    """The same but for rounding."""
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def assert_differs(actual, expected):
    """Visibly another output."""
    assert (actual - expected).abs().max() > 0.01


# what tests read off a model ----------------------------------------------------------------------------------------


@contextmanager
def lengths(small):
    """(name of the attn1, queries, keys) of each call, as its projections really see them."""
    seen, queries = [], {}
    with ExitStack() as stack:
        for name, attention in small.unet.named_modules():
            if not name.endswith(".attn1"):
                continue

            def on_query(module, args, name=name):
                queries[name] = args[0].shape[1]

            def on_key(module, args, name=name):
                seen.append((name, queries[name], args[0].shape[1]))

            stack.enter_context(attention.to_q.register_forward_pre_hook(on_query))
            stack.enter_context(attention.to_k.register_forward_pre_hook(on_key))
        yield seen


def keys_of(small, level, seen):
    """The (queries, keys) that a level's attentions had."""
    names = small.attentions(level)
    return {(queries, keys) for name, queries, keys in seen if name in names}


def snapshot(model):
    """All that a patch could leave on a module: its class, its attributes by identity, its hooks."""
    return {name: (type(module), _attributes(module), _hooks(module)) for name, module in model.named_modules()}


def _attributes(module):
    return {key: id(value) for key, value in vars(module).items()}


def _hooks(module):
    return {key: list(value) for key, value in vars(module).items() if "hook" in key and isinstance(value, dict)}


def hook_count(model):
    """How many hooks of any kind the modules have."""
    return sum(len(found) for module in model.modules() for found in _hooks(module).values())
