"""Pictures that show a difference: the place where it is largest, enlarged, and a map with its scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from todo_core.image_difference import heat_map

from ..sampling.comparison import most_different

CROP = 1 / 8  # of the shorter side
SMALLEST_CROP = 16  # pixels
ZOOMED = 256  # pixels, about; an enlargement is a whole number
WHITE_SHARE = 0.002  # of the map's pixels
MARGIN = 6  # pixels
SMALLEST_TEXT, TEXT = 12, 1 / 25  # pixels; of the width
WHITE = (255, 255, 255)


def zoom(shown: Mapping[str, np.ndarray]) -> np.ndarray:
    """The squares where each image (h, w, 3) differs most from the first one, of all side by side, a row for each."""
    baseline, *others = shown.values()
    side = max(SMALLEST_CROP, round(min(baseline.shape[:2]) * CROP))
    times = max(1, round(ZOOMED / side))
    rows = []
    for window in (most_different(baseline, image, side) for image in others):
        rows.append(overview({name: image[window].repeat(times, 0).repeat(times, 1) for name, image in shown.items()}))
    return np.concatenate(rows)


def overview(shown: Mapping[str, np.ndarray]) -> np.ndarray:
    """Images side by side, each above its caption."""
    columns = [np.concatenate([panel, _strip(panel.shape[1], text)]) for text, panel in shown.items()]
    line = np.zeros((len(columns[0]), MARGIN, 3), np.uint8)
    return np.concatenate([part for column in columns for part in (line, column)][1:], 1)


def difference_maps(baseline: np.ndarray, images: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Where each image (h, w, 3) differs, above one scale of colours for all. The most different pixels are white."""
    apart = [np.abs(baseline.astype(int) - image).max(-1) for image in images]
    top = max(1, *(round(float(np.quantile(each, 1 - WHITE_SHARE))) for each in apart))
    return [_difference_map(baseline, image, top) for image in images]


def _difference_map(baseline: np.ndarray, image: np.ndarray, top: int) -> np.ndarray:
    gain, width = 255 / top, baseline.shape[1]
    levels = np.linspace(0, top, width).round().astype(np.uint8)
    scale = np.broadcast_to(levels[None, :, None], (2 * MARGIN, width, 3))
    text = _strip(width, "equal", f"{top} of 255 levels, or more")
    rows = [heat_map(baseline, image, gain), np.zeros((MARGIN, width, 3), np.uint8)]
    return np.concatenate([*rows, heat_map(np.zeros_like(scale), scale, gain), text])


def _strip(width: int, left: str, right: str = "") -> np.ndarray:
    """A black strip with a text at each end."""
    size = max(SMALLEST_TEXT, round(width * TEXT))
    strip = Image.new("RGB", (width, size * 2))
    draw, font = ImageDraw.Draw(strip), ImageFont.load_default(size)
    draw.text((MARGIN, size), left, WHITE, font, "lm")
    draw.text((width - MARGIN, size), right, WHITE, font, "rm")
    return np.asarray(strip)
