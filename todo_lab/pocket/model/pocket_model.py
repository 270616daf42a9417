"""The pocket model with the interface that sampling needs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from . import config, weights_file
from .vocabulary import vocabulary

EDGE = 2  # cells of latents


class Pocket:
    """A `LatentModel` with the shipped weights or those of `path`."""

    name = "pocket"
    prediction = "v_prediction"
    channels = 4
    multiple = config.FACTOR * 2 ** (len(config.UNET["channel_mult"]) - 1)  # ldm's UNet joins only grids of equal size

    def __init__(self, path: Path | None = None, *, device: str = "cpu", dtype: torch.dtype = torch.float32):
        self.target = weights_file.load(path, device=device, dtype=dtype)
        self.device, self.dtype = torch.device(device), dtype

    def context(self, prompts: list[str]) -> Tensor:
        """Text encodings (b, 77, 128). Raises CaptionError for unknown words."""
        return self.target.cond_stage_model(vocabulary().encode(prompts).to(self.device))

    def predict(self, latents: Tensor, timestep: Tensor, context: Tensor) -> Tensor:
        """The predicted v."""
        return self.target.unet(latents, timesteps=timestep, context=context)

    def decode(self, latents: Tensor) -> Tensor:
        """Images in -1..1. The edges are repeated: the zeros around them made a speck in a corner."""
        around = functional.pad(latents, (EDGE,) * 4, mode="replicate") / self.target.scale_factor
        cut = EDGE * config.FACTOR
        return self.target.first_stage_model.decode(around)[..., cut:-cut, cut:-cut]
