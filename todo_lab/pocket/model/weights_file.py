"""Weights: float16 safetensors files with the names of a CompVis checkpoint, and the UNet's settings as metadata.

A file may hold a UNet alone. Then the other networks are the shipped ones. The shipped files are packed: compressed by
xz, with the convolutions of the autoencoder in 8 bits.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from . import config
from .vocabulary import vocabulary

if TYPE_CHECKING:
    from .networks import PocketModel

PACKED = ".xz"
LZMA = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lp": 1, "lc": 0, "pb": 1}]  # a number has two bytes
LONGEST_HEADER = 100_000_000  # bytes; safetensors has the same limit
EIGHT_BITS, SCALE = "first_stage_model.", ".scale"
UNET_PREFIX = "model.diffusion_model."
TEXT_PREFIX = "cond_stage_model.transformer."
NESTED = TEXT_PREFIX + "text_model."  # the name in transformers 4 and in every SD 1 checkpoint


class DamagedWeights(OSError):
    """A file is not a whole one of weights: half of a download, or a pointer of Git LFS."""


def shipped() -> Path:
    """Path of the shipped weights."""
    return Path(str(resources.files("todo_lab.pocket").joinpath("weights/pocket.safetensors.xz")))


def load(path: Path | None = None, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> PocketModel:
    """The pocket model, ready to sample. Raises OSError if the weights cannot be read."""
    from .networks import PocketModel  # needs ldm, which the export must not import

    path = path or shipped()
    model = PocketModel(len(vocabulary().tokens), unet_settings(path))
    state = read(path)
    nested = any(key.startswith(NESTED) for key in model.state_dict())
    model.load_state_dict({key if nested else key.replace(NESTED, TEXT_PREFIX): row for key, row in state.items()})
    return model.to(device=device, dtype=dtype).eval().requires_grad_(False)


def unet_settings(path: Path) -> dict[str, Any]:
    """The settings of the file's UNet, which tell its layout."""
    with _whole(path), lzma.open(path) if path.suffix == PACKED else path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")  # of the header in JSON
        metadata = json.loads(file.read(min(length, LONGEST_HEADER))).get("__metadata__", {})
    return json.loads(metadata["unet"]) if "unet" in metadata else config.UNET


def read(path: Path) -> dict[str, Tensor]:
    """The file's tensors, with the shipped ones of all other networks if it holds a UNet alone."""
    with _whole(path):
        state = _unpacked(safetensors.load(_content(path)))
    if all(key.startswith(UNET_PREFIX) for key in state):
        state |= {key: row for key, row in read(shipped()).items() if not key.startswith(UNET_PREFIX)}
    return state


def save(model: PocketModel, path: Path, *, unet_alone: bool = False) -> None:
    """Write the weights in float16, or packed if the name ends in ".xz"."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {key: row.cpu().half().contiguous() for key, row in named(model).items()}
    kept = {key: row for key, row in rows.items() if key.startswith(UNET_PREFIX) or not unet_alone}
    metadata = {"unet": json.dumps(model.unet_settings)}
    if path.suffix == PACKED:
        path.write_bytes(lzma.compress(safetensors.save(_packed(kept), metadata), filters=LZMA))
    else:
        safetensors.save_file(kept, path, metadata)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Raise DamagedWeights for what the libraries raise of a file that is not whole."""
    try:
        yield
    except (lzma.LZMAError, EOFError, SafetensorError, ValueError) as error:  # ValueError: of the JSON or its bytes
        advice = "Download it again (with Git LFS: git lfs pull)."
        raise DamagedWeights(
            f"{path} is not a whole file of weights: {path.stat().st_size:,} bytes. {advice}"
        ) from error


def _content(path: Path) -> bytes:
    """The bytes of a safetensors file."""
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == PACKED else content


def _packed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state with the autoencoder's matrices as int8 and one scale for each row."""
    packed = dict(state)
    for key, row in state.items():
        if key.startswith(EIGHT_BITS) and row.ndim > 1:
            scale = (row.flatten(1).float().abs().amax(1).clamp_min(1e-6) / 127).half()
            packed[key] = (row.float() / _like(scale, row)).round().clamp(-127, 127).to(torch.int8)
            packed[key + SCALE] = scale
    return packed


def _unpacked(packed: dict[str, Tensor]) -> dict[str, Tensor]:
    state = {key: row for key, row in packed.items() if not key.endswith(SCALE)}
    for key, row in state.items():
        if row.dtype == torch.int8:
            state[key] = (row.float() * _like(packed[key + SCALE], row)).half()
    return state


def _like(scale: Tensor, row: Tensor) -> Tensor:
    return scale.float().view(-1, *[1] * (row.ndim - 1))


def named(model: PocketModel) -> dict[str, Tensor]:
    """The state dict with the names of an SD 1 checkpoint, for any version of transformers."""
    state = {key: row for key, row in model.state_dict().items() if not key.endswith("position_ids")}
    return {key.replace(NESTED, TEXT_PREFIX).replace(TEXT_PREFIX, NESTED): row for key, row in state.items()}
