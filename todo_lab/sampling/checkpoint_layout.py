"""Diffusers configs for a Stable Diffusion 1, 2 or XL checkpoint, derived from the shapes of its tensors.

The shapes allow any width and depth of the layout, and an error can name the tensor that does not fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from .clip_tokenizer import MAX_TOKENS, VOCABULARY_SIZE

UNET, FIRST_STAGE = "model.diffusion_model.", "first_stage_model."
CLIP, OPEN_CLIP = "cond_stage_model.transformer.text_model.", "cond_stage_model.model."
CONDITIONER = "conditioner.embedders."
XL_CLIP, XL_OPEN_CLIP = f"{CONDITIONER}0.transformer.text_model.", f"{CONDITIONER}1.model."
TEXT_NAMES = {  # an encoder's embedding, its layers, and the first matrix of their feed-forward, by its activation
    "quick_gelu": ("embeddings.token_embedding", "encoder.layers.", "mlp.fc1"),  # OpenAI's, in SD 1 and XL
    "gelu": ("token_embedding", "transformer.resblocks.", "mlp.c_fc"),  # OpenCLIP's, in SD 2 and XL
}
HEAD_CHANNELS = 64  # in the UNets of SD 2 and XL, and in every CLIP text encoder
SD1_HEADS = 8
LATENT_SCALE, XL_LATENT_SCALE = 0.18215, 0.13025  # checkpoints do not contain it
XL_SIZES = 6  # numbers that the UNet of XL takes: the image's size, its cropping, and the size again

Shapes = Mapping[str, tuple[int, ...]]


class UnsupportedLayout(ValueError):
    """The state dict is not one of SD 1, SD 2 or SDXL. The message says why."""


def is_xl(shapes: Shapes) -> bool:
    """Whether it is an SDXL checkpoint."""
    return any(key.startswith(CONDITIONER) for key in shapes)


def configs(shapes: Shapes) -> dict[str, dict[str, Any]]:
    """The config of each network, by the name of its folder in a pipeline. Raises UnsupportedLayout."""
    if not any(key.startswith(UNET) for key in shapes):
        raise UnsupportedLayout(f"it has no UNet: no tensor begins with {UNET}")
    if is_xl(shapes) and not any(key.startswith(XL_CLIP) for key in shapes):
        raise UnsupportedLayout(f"it has no first text encoder, as SDXL's refiner: no tensor begins with {XL_CLIP}")
    try:
        found = {"unet": unet_config(shapes), "vae": vae_config(shapes)}
        if is_xl(shapes):
            found["text_encoder"] = _text_encoder_config(shapes, XL_CLIP, "quick_gelu")
            found["text_encoder_2"] = _text_encoder_config(shapes, XL_OPEN_CLIP, "gelu")
            found["text_encoder_2"]["projection_dim"] = shapes[f"{XL_OPEN_CLIP}text_projection"][1]
        elif any(key.startswith(OPEN_CLIP) for key in shapes):
            found["text_encoder"] = _text_encoder_config(shapes, OPEN_CLIP, "gelu")
            found["text_encoder"]["num_hidden_layers"] -= 1  # SD 2 does without the last one
        else:
            found["text_encoder"] = _text_encoder_config(shapes, CLIP, "quick_gelu")
    except KeyError as missing:
        raise UnsupportedLayout(f"it lacks the tensor {missing.args[0]}") from missing
    return found


def unet_config(shapes: Shapes) -> dict[str, Any]:
    """Config of the `UNet2DConditionModel`."""
    stem = shapes[f"{UNET}input_blocks.0.0.weight"]
    if stem[1] != 4:
        raise UnsupportedLayout(f"its UNet takes {stem[1]} channels instead of 4, as for inpainting or editing")
    levels = _levels(shapes)
    attends = [any(f"{UNET}input_blocks.{n}.1.norm.weight" in shapes for n in level) for level in levels]
    widths = [shapes[f"{UNET}input_blocks.{level[0]}.0.out_layers.3.weight"][0] for level in levels]
    first = next((level[0] for level, attend in zip(levels, attends, strict=True) if attend), None)
    if first is None:
        raise UnsupportedLayout("its UNet has no attention")
    block = f"{UNET}input_blocks.{first}.1."
    depths = [_count(shapes, f"{UNET}input_blocks.{level[0]}.1.transformer_blocks.") for level in levels]
    linear = len(shapes[f"{block}proj_in.weight"]) == 2  # SD 2 projects with a linear layer
    config = {
        "_class_name": "UNet2DConditionModel",
        "sample_size": 64,
        "in_channels": 4,
        "out_channels": 4,
        "block_out_channels": widths,
        "layers_per_block": len(levels[0]),
        "down_block_types": ["CrossAttnDownBlock2D" if attend else "DownBlock2D" for attend in attends],
        "up_block_types": ["CrossAttnUpBlock2D" if attend else "UpBlock2D" for attend in reversed(attends)],
        "cross_attention_dim": shapes[f"{block}transformer_blocks.0.attn2.to_k.weight"][1],
        "transformer_layers_per_block": [depth or 1 for depth in depths],  # not read where there is no transformer
        "use_linear_projection": linear,
        # in diffusers this is the number of heads, despite its name
        "attention_head_dim": [max(1, width // HEAD_CHANNELS) for width in widths] if linear else SD1_HEADS,
    }
    if not is_xl(shapes):
        return config
    # that of XL takes more beside the text: the second encoder's pooled text, and the sizes
    added, pooled = shapes[f"{UNET}label_emb.0.0.weight"][1], shapes[f"{XL_OPEN_CLIP}text_projection"][1]
    return config | {
        "sample_size": 128,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": (added - pooled) // XL_SIZES,
        "projection_class_embeddings_input_dim": added,
    }


def _levels(shapes: Shapes) -> list[list[int]]:
    """Indices of the input blocks with a ResBlock, by level. A Downsample block ends a level."""
    levels: list[list[int]] = [[]]
    for number in range(1, _count(shapes, f"{UNET}input_blocks.")):
        if f"{UNET}input_blocks.{number}.0.op.weight" in shapes:
            levels.append([])
        else:
            levels[-1].append(number)
    if not all(len(level) == len(levels[0]) > 0 for level in levels):
        raise UnsupportedLayout("its UNet levels have different numbers of blocks")
    return levels


def vae_config(shapes: Shapes) -> dict[str, Any]:
    """Config of the `AutoencoderKL`."""
    down = f"{FIRST_STAGE}encoder.down."
    levels = _count(shapes, down)
    return {
        "_class_name": "AutoencoderKL",
        "in_channels": 3,
        "out_channels": 3,
        "block_out_channels": [shapes[f"{down}{level}.block.0.conv1.weight"][0] for level in range(levels)],
        "layers_per_block": _count(shapes, f"{down}0.block."),
        "latent_channels": shapes[f"{FIRST_STAGE}post_quant_conv.weight"][0],
        "down_block_types": ["DownEncoderBlock2D"] * levels,
        "up_block_types": ["UpDecoderBlock2D"] * levels,
        "sample_size": 512,
        "scaling_factor": XL_LATENT_SCALE if is_xl(shapes) else LATENT_SCALE,
    }


def _text_encoder_config(shapes: Shapes, prefix: str, activation: str) -> dict[str, Any]:
    embedding, layers, inner = TEXT_NAMES[activation]
    rows, width = shapes[f"{prefix}{embedding}.weight"]
    if rows != VOCABULARY_SIZE:
        raise UnsupportedLayout(f"its text encoder has {rows:,} tokens instead of CLIP's {VOCABULARY_SIZE:,}")
    return {
        "model_type": "clip_text_model",
        "vocab_size": rows,
        "hidden_size": width,
        "intermediate_size": shapes[f"{prefix}{layers}0.{inner}.weight"][0],
        "num_hidden_layers": _count(shapes, f"{prefix}{layers}"),
        "num_attention_heads": max(1, width // HEAD_CHANNELS),
        "max_position_embeddings": MAX_TOKENS,
        "hidden_act": activation,
        "projection_dim": width,
        "layer_norm_eps": 1e-5,
    }


def weight_counts(shapes: Shapes, layers: int) -> dict[str, int]:
    """How many weights the file has for each network, without those that only training uses.

    ``layers`` is the number of them that the first text encoder uses.
    """
    unused = (f"{OPEN_CLIP}transformer.resblocks.{layers}.", f"{OPEN_CLIP}text_projection")
    for_training = ("position_ids", "logit_scale", "attn_mask")
    used = {k: v for k, v in shapes.items() if not k.startswith(unused) and not k.endswith(for_training)}
    prefixes = {"unet": (UNET,), "vae": (FIRST_STAGE,), "text_encoder": (CLIP, OPEN_CLIP, XL_CLIP)}
    prefixes |= {"text_encoder_2": (XL_OPEN_CLIP,)} if is_xl(shapes) else {}
    return {name: sum(math.prod(v) for k, v in used.items() if k.startswith(p)) for name, p in prefixes.items()}


def _count(shapes: Shapes, prefix: str) -> int:
    """One more than the highest number behind a prefix."""
    numbered = re.compile(rf"{re.escape(prefix)}(\d+)\.")
    return 1 + max((int(found[1]) for key in shapes if (found := numbered.match(key))), default=-1)
