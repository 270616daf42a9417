"""Weights: float16 safetensors files with the names of a CompVis checkpoint, and the UNet's settings as metadata.

A file may hold a UNet alone. Then the other networks are the shipped ones.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from . import config
from .vocabulary import vocabulary

if TYPE_CHECKING:
    from .networks import PocketModel

UNET_PREFIX = "model.diffusion_model."
TEXT_PREFIX = "cond_stage_model.transformer."
NESTED = TEXT_PREFIX + "text_model."  # the name in transformers 4 and in every SD 1 checkpoint


def shipped() -> Path:
    """Path of the shipped weights."""
    return Path(str(resources.files("todo_lab.pocket").joinpath("weights/pocket.safetensors")))


def load(path: Path | None = None, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> PocketModel:
    """The pocket model, ready to sample. Raises FileNotFoundError without weights."""
    from .networks import PocketModel  # needs ldm, which the export must not import

    path = path or shipped()
    model = PocketModel(len(vocabulary().tokens), unet_settings(path))
    state = read(path)
    nested = any(key.startswith(NESTED) for key in model.state_dict())
    model.load_state_dict({key if nested else key.replace(NESTED, TEXT_PREFIX): row for key, row in state.items()})
    return model.to(device=device, dtype=dtype).eval().requires_grad_(False)


def unet_settings(path: Path) -> dict[str, Any]:
    """The settings of the file's UNet, which tell its layout."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
    return json.loads(metadata["unet"]) if "unet" in metadata else config.UNET


def read(path: Path) -> dict[str, Tensor]:
    """The file's tensors, with the shipped ones of all other networks if it holds a UNet alone."""
    state = load_file(path)
    if all(key.startswith(UNET_PREFIX) for key in state):
        state |= {key: row for key, row in load_file(shipped()).items() if not key.startswith(UNET_PREFIX)}
    return state


def save(model: PocketModel, path: Path, *, unet_alone: bool = False) -> None:
    """Write the weights in float16."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {key: row.cpu().half().contiguous() for key, row in named(model).items()}
    kept = {key: row for key, row in rows.items() if key.startswith(UNET_PREFIX) or not unet_alone}
    save_file(kept, path, metadata={"unet": json.dumps(model.unet_settings)})


def named(model: PocketModel) -> dict[str, Tensor]:
    """The state dict with the names of an SD 1 checkpoint, for any version of transformers."""

    def name(key: str) -> str:
        inside = key.startswith(TEXT_PREFIX) and not key.startswith(NESTED)
        return key.replace(TEXT_PREFIX, NESTED) if inside else key

    skipped = ("position_ids",)
    return {name(key): row for key, row in model.state_dict().items() if not key.endswith(skipped)}
