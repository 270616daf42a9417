"""The files of a comparison: PNGs with their infotexts, and the figures."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..sampling.comparison import Comparison
from ..sampling.infotext import PNG_KEY, encode_png, format_infotext
from ..sampling.passes import what_ran
from . import pictures, results

DATA = "figures.json"
BASELINE, ZOOM, OVERVIEW = "baseline.png", "zoom.png", "overview.png"


def _image(pixels: np.ndarray, text: str) -> Image.Image:
    """A Pillow image that carries its infotext as a PNG does."""
    picture = Image.fromarray(pixels)
    picture.info[PNG_KEY] = text
    return picture


def images(comparisons: Sequence[Comparison], model: str) -> dict[str, Any]:
    """The images of a comparison, by file name: the baseline, each variant, its map, what is enlarged, and all.

    A variant has the name of its preset: "todo-fast.png", "todo-fast-difference.png".
    """
    request, baseline = comparisons[0].request, comparisons[0].baseline_image
    plain = format_infotext(request, model)
    made = {BASELINE: _image(baseline, plain)}
    maps = pictures.difference_maps(baseline, [each.reduced_image for each in comparisons])
    for each, its_map in zip(comparisons, maps, strict=True):
        name = each.name.lower().replace(" ", "-")
        text = format_infotext(each.request, model, what_ran(each.reduced_first, each.reduced))
        made |= {f"{name}.png": _image(each.reduced_image, text), f"{name}-difference.png": _image(its_map, text)}
    captions, pixels = results.captions(comparisons), [baseline, *(each.reduced_image for each in comparisons)]
    zoom = pictures.zoom(dict(zip((told.name for told in captions), pixels, strict=True)))
    overview = pictures.overview(dict(zip((told.short for told in captions), pixels, strict=True)))
    return made | {ZOOM: _image(zoom, plain), OVERVIEW: _image(overview, plain)}


def write(folder: Path, comparisons: Sequence[Comparison], model: str) -> list[Path]:
    """Write the images and the data of a comparison. Drafts come first, so that a failure leaves no incomplete file.

    Raises OSError.
    """
    made = images(comparisons, model)
    data = json.dumps(results.comparison_data(comparisons, model), indent=1, ensure_ascii=False)
    folder.mkdir(parents=True, exist_ok=True)
    drafts = {folder / name: folder / f".{name}.part" for name in (*made, DATA)}
    try:
        for name, picture in made.items():
            drafts[folder / name].write_bytes(encode_png(np.asarray(picture), picture.info[PNG_KEY]))
        drafts[folder / DATA].write_text(f"{data}\n", "utf-8")
        for path, draft in drafts.items():
            os.replace(draft, path)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
    return list(drafts)
