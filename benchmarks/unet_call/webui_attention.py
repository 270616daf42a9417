"""The attention of a WebUI in ldm's classes: one of its Settings > Optimizations, by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch


def optimize(folder: Path, name: str, device: str, dtype: torch.dtype) -> None:
    """Load the WebUI in ``folder`` as far as its attention, and replace ldm's attention by the one called ``name``.

    Call it in a process of the WebUI's own Python, before ldm is imported. Exits if ``name`` is not available.
    """
    arguments, sys.argv = sys.argv, [sys.argv[0], *(["--use-cpu", "all", "--no-half"] if device == "cpu" else [])]
    sys.path.insert(0, str(folder))
    try:
        from modules import initialize  # it reads sys.argv

        initialize.imports()
        from modules import devices, sd_hijack_optimizations
    finally:
        sys.argv = arguments
    devices.dtype_unet = dtype  # of the time embedding; the WebUI sets it when it loads a checkpoint
    optimizers: list[Any] = []
    sd_hijack_optimizations.list_optimizers(optimizers)
    usable = {each.name: each for each in optimizers if each.is_available()}
    if name not in usable:
        raise SystemExit(f"--optimization: {name!r} is none of {', '.join(usable)}")
    usable[name].apply()
