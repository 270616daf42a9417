"""torch.autocast would cast the same tokens again for each part of a search. The search casts them once, itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def uncast(device: torch.device) -> Iterator[torch.dtype | None]:
    """No autocast on ``device``; gives the dtype that autocast multiplies in on a GPU, or None for the tensors' own.

    A CPU keeps its precision: its search in float32 is faster.
    """
    if device.type not in ("cpu", "cuda"):
        yield None
        return
    dtype = None
    if device.type == "cuda" and torch.is_autocast_enabled():
        dtype = torch.get_autocast_gpu_dtype()
    with torch.autocast(device.type, enabled=False):
        yield dtype
