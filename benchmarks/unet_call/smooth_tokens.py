"""Tokens for timing reductions: random, but smooth over the grid, like those of an image."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def smooth_tokens(batch: int, size: tuple[int, int], channels: int) -> torch.Tensor:
    """(batch, h*w, channels) float32 on the CPU, the same at every call."""
    generator = torch.Generator().manual_seed(size[0])
    coarse = torch.randn(batch, channels, *(-(-side // 8) for side in size), generator=generator)
    smooth = F.interpolate(coarse, size, mode="bicubic")
    smooth += 0.2 * torch.randn(smooth.shape, generator=generator)
    return smooth.flatten(2).transpose(1, 2).contiguous()
