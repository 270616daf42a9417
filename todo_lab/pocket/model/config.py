"""Sizes of the pocket networks, with the names of a CompVis config file. The exported yaml uses them."""

from __future__ import annotations

from typing import Any

FIRST_STAGE: dict[str, Any] = {
    "double_z": True,
    "z_channels": 4,
    "resolution": 128,
    "in_channels": 3,
    "out_ch": 3,
    "ch": 32,
    "ch_mult": [1, 1, 4, 4],
    "num_res_blocks": 1,
    "attn_resolutions": [],
    "dropout": 0.0,
}
UNET: dict[str, Any] = {
    "image_size": 16,
    "in_channels": 4,
    "out_channels": 4,
    "model_channels": 64,
    "attention_resolutions": [1, 2, 4],
    "num_res_blocks": 1,
    "channel_mult": [1, 1, 2],
    "num_heads": 4,
    "use_spatial_transformer": True,
    "transformer_depth": 1,
    "context_dim": 128,
    "use_checkpoint": False,
    "legacy": False,
}
# As in SDXL, level 1 has few transformer blocks, and level 2 and the middle have many (Podell et al. 2023). SDXL's
# level without attention is left out: it is the most work of such a small network, and nothing is reduced there.
UNET_SDXL: dict[str, Any] = {
    **UNET,
    "attention_resolutions": [1, 2],
    "channel_mult": [1, 1],
    "transformer_depth": [1, 6],
}
LAYOUTS = {"sd1": UNET, "sdxl": UNET_SDXL}
TEXT: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 77,
    "projection_dim": 128,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
}
DIFFUSION: dict[str, Any] = {"timesteps": 1000, "linear_start": 0.00085, "linear_end": 0.012}

FACTOR = 8  # pixels per side of a latent cell
BASE_SIZE = 128  # pixels per side of most training pictures
