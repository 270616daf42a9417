"""Draw the pictures of docs/pocket.md: ``python -m todo_lab pocket pictures RUN_FOLDER --out docs/images``."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from tqdm import tqdm

from ..sampling.passes import decode_image, first_pass, hires_pass
from ..sampling.request import Request
from .data.captions import caption
from .data.dataset import unseen_scenes
from .model.pocket_model import Pocket

COLUMNS = 6
HIRES_SCALE, SHOWN = 4, 256  # the pictures have 512 px; the sheet shows them at half the size
STAGES = ("autoencoder", "diffusion")


def loss_curves(run: Path, path: Path) -> None:
    """Plot the loss of both stages over hours. A point is the mean of 20 steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(STAGES), figsize=(10, 3.4), layout="constrained")
    for stage, axes in zip(STAGES, panels, strict=True):
        with (run / f"{stage}.csv").open() as file:
            rows = list(csv.DictReader(file))
        hours = np.array([float(row["seconds"]) / 3600 for row in rows])
        losses = np.array([float(row["loss"]) for row in rows])
        axes.plot(hours, losses, color="0.75", linewidth=0.8, label="mean of 20 steps")
        axes.plot(hours, _smoothed(losses, 25), color="black", linewidth=1.4, label="running mean of 25 points")
        axes.set(title=stage, xlabel="training time (hours)", ylabel="loss", yscale="log")
        axes.grid(alpha=0.3, which="both")
        axes.legend()
    figure.savefig(path, dpi=110)


def _smoothed(values: np.ndarray, width: int) -> np.ndarray:
    sums = np.cumsum(np.insert(values, 0, 0.0))
    first = np.maximum(np.arange(len(values)) - width + 1, 0)
    return (sums[1:] - sums[first]) / (np.arange(len(values)) - first + 1)


def samples(model: Pocket, path: Path, count: int) -> None:
    """Hires pictures of the first unseen captions, each with its caption below."""
    cells = []
    for number, scene in enumerate(tqdm(unseen_scenes(count), desc="samples", unit="picture")):
        request = Request(prompt=caption(scene), seed=number, hires_scale=HIRES_SCALE)
        image = decode_image(model, hires_pass(model, request, first_pass(model, request)))
        small = Image.fromarray(image).resize((SHOWN, SHOWN), Image.Resampling.LANCZOS)
        cells.append(_captioned(np.asarray(small), request.prompt))
    rows = [np.concatenate(cells[start : start + COLUMNS], 1) for start in range(0, count, COLUMNS)]
    Image.fromarray(np.concatenate(rows, 0)).save(path, quality=90)


def _captioned(image: np.ndarray, text: str) -> np.ndarray:
    size, band, margin = image.shape[1], 56, 4
    cell = Image.new("RGB", (size + 2 * margin, image.shape[0] + band + margin), "white")
    cell.paste(Image.fromarray(image), (margin, margin))
    draw, font = ImageDraw.Draw(cell), ImageFont.load_default(13)
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if draw.textlength(longer, font=font) > size:
            lines, longer = [*lines, line], word
        line = longer
    draw.multiline_text((margin, image.shape[0] + margin + 2), "\n".join([*lines, line]), fill="black", font=font)
    return np.asarray(cell)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("training", type=Path, help="folder of the training run, which has the losses")
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--count", type=int, default=36, help="number of samples (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Draw the loss curves and the samples."""
    options.out.mkdir(parents=True, exist_ok=True)
    loss_curves(options.training, options.out / "pocket-loss.png")
    samples(Pocket(), options.out / "pocket-samples.webp", options.count)
    return 0
