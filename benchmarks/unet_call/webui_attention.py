"""A WebUI's own attention in ldm's classes: one of its Settings > Optimizations, by the name that it has there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch


def optimize(folder: Path, name: str, device: str, dtype: torch.dtype) -> None:
    """Load the WebUI in ``folder`` as far as its attention, and put the one called ``name`` in the place of ldm's.

    For a process that the WebUI's own Python runs, and before ldm is imported. Ends it if there is no such one here.
    """
    words, sys.argv = sys.argv, [sys.argv[0], *(["--use-cpu", "all", "--no-half"] if device == "cpu" else [])]
    sys.path.insert(0, str(folder))
    try:
        from modules import initialize  # it reads the command line as its own

        initialize.imports()
        from modules import devices, sd_hijack_optimizations
    finally:
        sys.argv = words
    devices.dtype_unet = dtype  # that of the time embedding, which the WebUI sets when it loads a checkpoint
    found: list[Any] = []
    sd_hijack_optimizations.list_optimizers(found)
    usable = {one.name: one for one in found if one.is_available()}
    if name not in usable:
        raise SystemExit(f"--optimization: {name!r} is none of {', '.join(usable)}")
    usable[name].apply()
