"""diffusers' UNets for video: spatial transformers see each frame as a row, and are reduced like those of images."""

from __future__ import annotations

import diffusers
import pytest
import torch

from tests.models import TEXT_WIDTH, hook_count, noise, randomised
from todo_core import UnsupportedModelError, apply_patch, patched

FRAMES, SIDE = 3, 16
SMALL = {"block_out_channels": (32, 64), "cross_attention_dim": TEXT_WIDTH, "sample_size": 16, "layers_per_block": 1}
NORM = {"norm_num_groups": 8}


def blocks(kind):
    return {
        "down_block_types": (f"CrossAttnDownBlock{kind}", f"DownBlock{kind}"),
        "up_block_types": (f"UpBlock{kind}", f"CrossAttnUpBlock{kind}"),
    }


def motion():
    heads = {"num_attention_heads": 4, "motion_num_attention_heads": 4}
    unet = diffusers.UNetMotionModel(**SMALL, **NORM, **blocks("Motion"), **heads)
    return unet, lambda x: unet(x, 500.0, encoder_hidden_states=noise(FRAMES, 7, TEXT_WIDTH)).sample


def three_d():
    unet = diffusers.UNet3DConditionModel(**SMALL, **NORM, **blocks("3D"), attention_head_dim=8)
    return unet, lambda x: unet(x, 500.0, encoder_hidden_states=noise(1, 7, TEXT_WIDTH)).sample


def i2v():
    unet = diffusers.I2VGenXLUNet(**SMALL, **NORM, **blocks("3D"), attention_head_dim=8)

    def call(x):
        extra = {"image_latents": noise(*x.shape, seed=3), "image_embeddings": noise(1, TEXT_WIDTH, seed=4)}
        text = noise(1, 7, TEXT_WIDTH)
        return unet(x, torch.tensor(500.0), torch.tensor([8]), encoder_hidden_states=text, **extra).sample

    return unet, call


def svd():
    widths = {"addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 24, "num_attention_heads": (2, 4)}
    unet = diffusers.UNetSpatioTemporalConditionModel(
        in_channels=4, num_frames=FRAMES, **SMALL, **blocks("SpatioTemporal"), **widths
    )

    def call(x):
        return unet(x.transpose(1, 2), 500.0, noise(1, 1, TEXT_WIDTH), added_time_ids=torch.ones(1, 3)).sample

    return unet, call


@pytest.mark.parametrize("build", [motion, three_d, i2v, svd])
@pytest.mark.parametrize("target", ["keys/values", "all"])
def test_the_spatial_attention_of_each_frame_gets_fewer_keys_and_deep_layers_are_predicted(build, target):
    """In place of whole steps."""
    torch.manual_seed(0)
    unet, call = build()
    randomised(unet)
    video = noise(1, 4, FRAMES, SIDE, SIDE)
    plain, seen = call(video), []
    spatial = [name for name, m in unet.named_modules() if type(m).__name__ in TRANSFORMERS]
    for name in spatial:
        key = unet.get_submodule(name).transformer_blocks[0].attn1.to_k
        key.register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape[:2])))
    with torch.no_grad(), patched(unet, factor_1=2, target=target, predict="whole", interval=2) as session:
        for step in range(6):
            session.begin_step(step, 6, [0])
            call(video + 0.1 * step)
    assert set(seen) == {(FRAMES, SIDE * SIDE // 4)}
    assert len(seen) == 6 * len(spatial) - 2, "the middle is predicted twice"
    why = "whole steps of a video model cannot be predicted"
    assert session.record.notes == [f"{why}: layers below level 1 are predicted"]
    assert session.record.predicted_in == {2, 4}
    assert call(video).equal(plain)


TRANSFORMERS = ("Transformer2DModel", "TransformerSpatioTemporalModel")


def test_a_controlnet_xs_is_refused_by_name_and_left_as_it_was():
    config = {**SMALL, **NORM, **blocks("2D"), "layers_per_block": 2}
    unet = diffusers.UNet2DConditionModel(attention_head_dim=4, **config)
    adapter = diffusers.ControlNetXSAdapter.from_unet(unet, size_ratio=1.0, conditioning_embedding_out_channels=(8, 8))
    both = diffusers.UNetControlNetXSModel.from_unet(unet, adapter)
    with pytest.raises(UnsupportedModelError, match="side by side"):
        apply_patch(both)
    assert hook_count(both) == 0
