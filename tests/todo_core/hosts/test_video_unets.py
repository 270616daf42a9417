"""diffusers' UNets for video: spatial transformers see each frame as a row, and are reduced like those of images."""

import diffusers
import pytest
import torch

from tests.models import TEXT_WIDTH, noise, randomised
from todo_core import patched
from todo_core.patching.steps import rows_of

FRAMES, SIDE = 3, 16
SMALL = {"block_out_channels": (32, 64), "cross_attention_dim": TEXT_WIDTH, "sample_size": 16, "layers_per_block": 1}
NORM = {"norm_num_groups": 8}


def blocks(kind):
    return {
        "down_block_types": (f"CrossAttnDownBlock{kind}", f"DownBlock{kind}"),
        "up_block_types": (f"UpBlock{kind}", f"CrossAttnUpBlock{kind}"),
    }


def text(rows):
    return {"encoder_hidden_states": noise(rows, 7, TEXT_WIDTH)}


HEAD = {"attention_head_dim": 8}
HEADS = {"num_attention_heads": 4, "motion_num_attention_heads": 4}
I2V = {"image_latents": noise(1, 4, FRAMES, SIDE, SIDE, seed=3), "image_embeddings": noise(1, TEXT_WIDTH, seed=4)}
I2V |= text(1) | {"fps": torch.tensor([8])}
WIDTHS = {"addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 24, "num_attention_heads": (2, 4)}
WIDTHS |= {"in_channels": 4, "num_frames": FRAMES}
SVD = {"encoder_hidden_states": noise(1, 1, TEXT_WIDTH), "added_time_ids": torch.ones(1, 3)}
# the class, its config, and what a call gets beside video and timestep
KINDS = [
    (diffusers.UNetMotionModel, blocks("Motion") | NORM | HEADS, text(FRAMES)),
    (diffusers.UNet3DConditionModel, blocks("3D") | NORM | HEAD, text(1)),
    (diffusers.I2VGenXLUNet, blocks("3D") | NORM | HEAD, I2V),
    (diffusers.UNetSpatioTemporalConditionModel, blocks("SpatioTemporal") | WIDTHS, SVD),
]


@pytest.mark.parametrize(("kind", "config", "more"), KINDS)
@pytest.mark.parametrize("target", ["keys/values", "all"])
def test_the_spatial_attention_of_each_frame_gets_fewer_keys_and_deep_layers_are_predicted(kind, config, more, target):
    """In place of whole steps."""
    unet, axes = randomised(kind(**SMALL, **config)), (1, FRAMES, 4) if more is SVD else (1, 4, FRAMES)
    call, video = (lambda x: unet(x, torch.tensor(500.0), **more).sample), noise(*axes, SIDE, SIDE)
    plain, seen = call(video), []
    transformers = ("Transformer2DModel", "TransformerSpatioTemporalModel")
    spatial = [name for name, m in unet.named_modules() if type(m).__name__ in transformers]
    for name in spatial:
        key = unet.get_submodule(name).transformer_blocks[0].attn1.to_k
        key.register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape[:2])))
    settings = {"factor_1": 2, "start": 0, "end": 1, "target": target, "predict": "whole", "interval": 2}
    with torch.no_grad(), patched(unet, **settings) as session:
        for step in range(6):
            session.begin_step(step, 6, rows_of([0]))
            call(video + 0.1 * step)
    assert set(seen) == {(FRAMES, SIDE * SIDE // 4)}
    assert len(seen) == 6 * len(spatial) - 2, "the middle is predicted twice"
    why = "whole steps of a video model cannot be predicted"
    assert session.record.notes == [f"{why}: layers below level 1 are predicted"]
    assert session.record.deep.predicted_in == {2, 4}
    assert call(video).equal(plain)
