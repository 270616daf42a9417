"""The path of a user's model, as far as it can be checked before torch is installed."""

from __future__ import annotations

from pathlib import Path

ALLOWED = (
    "a .safetensors file of a Stable Diffusion 1, 2 or XL checkpoint (CompVis or sgm layout), or the folder of a "
    "diffusers StableDiffusionPipeline or StableDiffusionXLPipeline with .safetensors weights"
)
PICKLED = (".ckpt", ".pt", ".pth", ".bin", ".pkl")
PICKLE_REASON = "it is a pickle, which can run any code when it is opened; convert it to .safetensors first"


class ModelError(ValueError):
    """A model cannot be read. The message names the path, the reason and what is allowed."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} cannot be used: {why}. Allowed: {ALLOWED}.")


def check_name(path: Path) -> None:
    """Raise ModelError unless this is a folder or a .safetensors file."""
    if path.is_dir():
        return
    if not path.exists():
        raise ModelError(path, "there is no such file or folder")
    if path.suffix in PICKLED:
        raise ModelError(path, PICKLE_REASON)
    if path.suffix != ".safetensors":
        raise ModelError(path, f"it is a {path.suffix or 'nameless'} file")
