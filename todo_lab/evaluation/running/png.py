"""The images of the rows as PNG files with their infotext."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, PngImagePlugin

from ...sampling.infotext import PNG_KEY


def encode_png(image: np.ndarray, infotext: str) -> bytes:
    """The content of a PNG file."""
    info = PngImagePlugin.PngInfo()
    info.add_text(PNG_KEY, infotext)
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="png", pnginfo=info)
    return file.getvalue()


def load_png(path: Path) -> np.ndarray:
    """uint8 (h, w, 3)."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))
