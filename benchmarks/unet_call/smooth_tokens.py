"""Tokens to time reductions on: random, but smooth over the grid, as an image's are."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def smooth_tokens(batch: int, size: tuple[int, int], channels: int) -> torch.Tensor:
    """(batch, h*w, channels) float32 on the CPU, the same at every call."""
    drawn = torch.Generator().manual_seed(size[0])
    coarse = torch.randn(batch, channels, *(-(-side // 8) for side in size), generator=drawn)
    smooth = F.interpolate(coarse, size, mode="bicubic")
    smooth += 0.2 * torch.randn(smooth.shape, generator=drawn)
    return smooth.flatten(2).transpose(1, 2).contiguous()
