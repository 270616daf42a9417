"""Draw the sheet of docs/pocket.md: ``python -m todo_lab pocket pictures --out docs/images``."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from tqdm import tqdm

from ..sampling.passes import decode_image, first_pass, hires_pass
from ..sampling.request import Request
from .data.captions import caption
from .data.dataset import unseen_scenes
from .model.config import BASE_SIZE
from .model.pocket_model import Pocket

COLUMNS = 6


def _captioned(image: np.ndarray, text: str) -> np.ndarray:
    size, band, margin = image.shape[1], 56, 4
    cell = Image.new("RGB", (size + 2 * margin, image.shape[0] + band + margin), "white")
    cell.paste(Image.fromarray(image), (margin, margin))
    draw, font = ImageDraw.Draw(cell), ImageFont.load_default(13)
    lines = textwrap.fill(text, size // 7)  # a letter is about 7 pixels wide
    draw.multiline_text((margin, image.shape[0] + margin + 2), lines, fill="black", font=font)
    return np.asarray(cell)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--weights", type=Path, help="other weights than the shipped ones")
    parser.add_argument("--out", type=Path, required=True, help="folder for the sheet")
    parser.add_argument("--count", type=int, default=24, help="number of samples (%(default)s)")
    parser.add_argument("--side", type=int, default=BASE_SIZE, help="of the first pass in pixels (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Draw the sheet: hires pictures of the first unseen captions, each with its caption below."""
    options.out.mkdir(parents=True, exist_ok=True)
    model, cells = Pocket(options.weights, device="cuda" if torch.cuda.is_available() else "cpu"), []
    for number, scene in enumerate(tqdm(unseen_scenes(options.count), desc="samples", unit="picture")):
        request = Request(prompt=caption(scene), seed=number, width=options.side, height=options.side)
        image = decode_image(model, hires_pass(model, request, first_pass(model, request)))
        cells.append(_captioned(image, request.prompt))
    rows = [np.concatenate(cells[start : start + COLUMNS], 1) for start in range(0, len(cells), COLUMNS)]
    Image.fromarray(np.concatenate(rows, 0)).save(options.out / "pocket-samples.webp", quality=75, method=6)
    return 0
