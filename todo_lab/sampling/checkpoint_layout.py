"""The sizes of a Stable Diffusion 1 or 2 checkpoint, read off the shapes of its tensors, in diffusers' words.

Reading them instead of assuming them lets any width and depth of the layout load, and names what does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .clip_tokenizer import LENGTH, SIZE

UNET, FIRST_STAGE = "model.diffusion_model.", "first_stage_model."
CLIP, OPEN_CLIP = "cond_stage_model.transformer.text_model.", "cond_stage_model.model."
HEAD = 64  # channels of a head, in SD 2's UNet and in every CLIP text encoder
SD1_HEADS = 8
SCALE = 0.18215  # of the latents, in SD 1 and 2; no file says it

Shapes = Mapping[str, tuple[int, ...]]


class ForeignLayout(ValueError):
    """Why a state dict is not one of SD 1 or SD 2."""


def configs(shapes: Shapes) -> dict[str, dict[str, Any]]:
    """Config of each network by its folder's name in a pipeline. Raises ForeignLayout."""
    if any(key.startswith("conditioner.embedders.") for key in shapes):
        raise ForeignLayout("it is an SDXL checkpoint")
    if not any(key.startswith(UNET) for key in shapes):
        raise ForeignLayout(f"it has no UNet: no tensor begins with {UNET}")
    try:
        found = {"unet": unet(shapes), "vae": first_stage(shapes), "text_encoder": text_encoder(shapes)}
    except KeyError as missing:
        raise ForeignLayout(f"it lacks the tensor {missing.args[0]}") from missing
    return found


def unet(shapes: Shapes) -> dict[str, Any]:
    """Of `UNet2DConditionModel`."""
    stem = shapes[f"{UNET}input_blocks.0.0.weight"]
    if stem[1] != 4:
        raise ForeignLayout(f"its UNet takes {stem[1]} channels and not 4, as those for inpainting or editing do")
    levels = _levels(shapes)
    attends = [any(f"{UNET}input_blocks.{n}.1.norm.weight" in shapes for n in level) for level in levels]
    widths = [shapes[f"{UNET}input_blocks.{level[0]}.0.out_layers.3.weight"][0] for level in levels]
    first = next((level[0] for level, attend in zip(levels, attends, strict=True) if attend), None)
    if first is None:
        raise ForeignLayout("its UNet has no attention")
    block = f"{UNET}input_blocks.{first}.1."
    linear = len(shapes[f"{block}proj_in.weight"]) == 2  # SD 2's
    return {
        "_class_name": "UNet2DConditionModel",
        "sample_size": 64,
        "in_channels": 4,
        "out_channels": 4,
        "block_out_channels": widths,
        "layers_per_block": len(levels[0]),
        "down_block_types": ["CrossAttnDownBlock2D" if attend else "DownBlock2D" for attend in attends],
        "up_block_types": ["CrossAttnUpBlock2D" if attend else "UpBlock2D" for attend in reversed(attends)],
        "cross_attention_dim": shapes[f"{block}transformer_blocks.0.attn2.to_k.weight"][1],
        "use_linear_projection": linear,
        # diffusers' name for the number of heads
        "attention_head_dim": [max(1, width // HEAD) for width in widths] if linear else SD1_HEADS,
    }


def _levels(shapes: Shapes) -> list[list[int]]:
    """The numbers of the input blocks with a ResBlock, level by level; a Downsample ends a level."""
    count = _count(shapes, rf"{re.escape(UNET)}input_blocks\.(\d+)\.")
    levels: list[list[int]] = [[]]
    for number in range(1, count):
        if f"{UNET}input_blocks.{number}.0.op.weight" in shapes:
            levels.append([])
        else:
            levels[-1].append(number)
    if not all(len(level) == len(levels[0]) > 0 for level in levels):
        raise ForeignLayout("its UNet has other numbers of blocks at other levels")
    return levels


def first_stage(shapes: Shapes) -> dict[str, Any]:
    """Of `AutoencoderKL`."""
    down = f"{FIRST_STAGE}encoder.down."
    levels = _count(shapes, rf"{re.escape(down)}(\d+)\.")
    return {
        "_class_name": "AutoencoderKL",
        "in_channels": 3,
        "out_channels": 3,
        "block_out_channels": [shapes[f"{down}{level}.block.0.conv1.weight"][0] for level in range(levels)],
        "layers_per_block": _count(shapes, rf"{re.escape(down)}0\.block\.(\d+)\."),
        "latent_channels": shapes[f"{FIRST_STAGE}post_quant_conv.weight"][0],
        "down_block_types": ["DownEncoderBlock2D"] * levels,
        "up_block_types": ["UpDecoderBlock2D"] * levels,
        "sample_size": 512,
        "scaling_factor": SCALE,
    }


def text_encoder(shapes: Shapes) -> dict[str, Any]:
    """Of `CLIPTextModel`: OpenAI's in SD 1, OpenCLIP's without its last layer in SD 2."""
    if any(key.startswith(OPEN_CLIP) for key in shapes):
        rows, width = shapes[f"{OPEN_CLIP}token_embedding.weight"]
        layers = _count(shapes, rf"{re.escape(OPEN_CLIP)}transformer\.resblocks\.(\d+)\.") - 1
        inner = shapes[f"{OPEN_CLIP}transformer.resblocks.0.mlp.c_fc.weight"][0]
    else:
        rows, width = shapes[f"{CLIP}embeddings.token_embedding.weight"]
        layers = _count(shapes, rf"{re.escape(CLIP)}encoder\.layers\.(\d+)\.")
        inner = shapes[f"{CLIP}encoder.layers.0.mlp.fc1.weight"][0]
    if rows != SIZE:
        raise ForeignLayout(f"its text encoder knows {rows:,} tokens, and CLIP's {SIZE:,} are needed")
    return {
        "architectures": ["CLIPTextModel"],
        "model_type": "clip_text_model",
        "vocab_size": rows,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": max(1, width // HEAD),
        "max_position_embeddings": LENGTH,
        "hidden_act": "gelu" if OPEN_CLIP + "token_embedding.weight" in shapes else "quick_gelu",
        "projection_dim": width,
        "layer_norm_eps": 1e-5,
    }


def needed(shapes: Shapes, layers: int) -> dict[str, int]:
    """How many numbers the file has for each network, without what only training needs."""
    last = f"{OPEN_CLIP}transformer.resblocks.{layers}."
    unused = (last, OPEN_CLIP + "text_projection", OPEN_CLIP + "logit_scale", OPEN_CLIP + "attn_mask")
    used = {k: v for k, v in shapes.items() if not k.startswith(unused) and not k.endswith("position_ids")}
    kinds = {"unet": (UNET,), "vae": (FIRST_STAGE,), "text_encoder": (CLIP, OPEN_CLIP)}
    return {name: sum(_size(v) for k, v in used.items() if k.startswith(kind)) for name, kind in kinds.items()}


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size


def _count(shapes: Shapes, pattern: str) -> int:
    """One more than the highest number at the group of the pattern."""
    return 1 + max((int(found[1]) for key in shapes if (found := re.match(pattern, key))), default=-1)
