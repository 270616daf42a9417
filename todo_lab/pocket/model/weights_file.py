"""The shipped weights: a float16 safetensors file with the names of a CompVis checkpoint."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .vocabulary import vocabulary

if TYPE_CHECKING:
    from .networks import PocketModel

TEXT_PREFIX = "cond_stage_model.transformer."
NESTED = TEXT_PREFIX + "text_model."  # the name in transformers 4 and in every SD 1 checkpoint


def shipped() -> Path:
    """Path of the shipped weights."""
    return Path(str(resources.files("todo_lab.pocket").joinpath("weights/pocket.safetensors")))


def load(path: Path | None = None, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> PocketModel:
    """The pocket model, ready to sample. Raises FileNotFoundError without weights."""
    from .networks import PocketModel  # needs ldm, which the export must not import

    model = PocketModel(len(vocabulary().tokens))
    state = load_file(path or shipped())
    nested = any(key.startswith(NESTED) for key in model.state_dict())
    model.load_state_dict({key if nested else key.replace(NESTED, TEXT_PREFIX): row for key, row in state.items()})
    return model.to(device=device, dtype=dtype).eval().requires_grad_(False)


def save(model: PocketModel, path: Path) -> None:
    """Write the weights in float16."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({key: row.half().contiguous() for key, row in named(model).items()}, path)


def named(model: PocketModel) -> dict[str, Tensor]:
    """The state dict with the names of an SD 1 checkpoint, for any version of transformers."""

    def name(key: str) -> str:
        inside = key.startswith(TEXT_PREFIX) and not key.startswith(NESTED)
        return key.replace(TEXT_PREFIX, NESTED) if inside else key

    skipped = ("position_ids",)
    return {name(key): row for key, row in model.state_dict().items() if not key.endswith(skipped)}
