"""The pocket model with the interface that sampling needs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from . import config, weights_file
from .vocabulary import vocabulary


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
        """Images in -1..1."""
        return self.target.first_stage_model.decode(latents / self.target.scale_factor)
