"""Whether a GPU has room for what is remembered, beside the model."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from ...hosts.host import Host, weight_shape
from ...reason import Reason, Why
from ...token_grid import TokenGrid
from .prediction import fit_numbers

SHARE = 1 / 8  # of the free memory of a GPU, that the histories may take; the UNet's call needs the rest


def why_none(host: Host, latent: Tensor) -> Why | None:
    """Why the histories of a call with this latent do not fit on its device."""
    (kept, fit), free = bytes_needed(host, latent), free_bytes(latent.device)
    fits = kept <= SHARE * free and kept + fit <= free
    return None if fits else Reason.NO_ROOM((kept + fit) / 2**20, free / 2**20)


def bytes_needed(host: Host, latent: Tensor) -> tuple[int, int]:
    """Memory of the histories of a call with this latent (b, c, h, w), and what finding their matrices takes besides.

    The histories have four tensors and a matrix a transformer. The matrices of one shape are found at once, when no
    layer of the UNet runs, whose own tensors have that room then.
    """
    rows, size, kept, fits = int(latent.shape[0]), TokenGrid.of(latent.shape), 0, Counter[TokenGrid]()
    for site in {site.transformer: site for site in host.sites if site.level > 1}.values():
        block: Any = site.block
        width, grid = (weight_shape(block.attn1.to_q) or (0, 0))[1], size.halved(host.depth + site.level - 1)
        kept += rows * (4 * width * grid.tokens + width * width)
        fits[grid] += rows * fit_numbers(width, grid.height * -(-grid.width // 2))
    return kept * latent.element_size(), max(fits.values(), default=0) * 4


def free_bytes(device: torch.device) -> float:
    """What torch can still allocate on a CUDA device; elsewhere it is not known, and counts as endless."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return math.inf
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused
