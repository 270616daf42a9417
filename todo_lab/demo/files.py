"""The files of a comparison: PNGs with their infotexts, and the figures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from todo_core import __version__
from todo_core.settings import VERSION_KEY, Settings

from ..sampling.comparison import Comparison
from ..sampling.infotext import PNG_KEY, format_infotext
from ..sampling.passes import Sampled
from ..sampling.request import Request
from . import pictures, results

DATA = "figures.json"
BASELINE, ZOOM, OVERVIEW = "baseline.png", "zoom.png", "overview.png"


def png_text(request: Request, model: str, settings: Settings | None = None, passes: Iterable[Sampled] = ()) -> str:
    """The infotext. It contains the settings if one of the passes was reduced."""
    records = [each.record for each in passes]
    if not settings or not any(record.acted for record in records):
        return format_infotext(request, model, None)
    without = set()
    if settings.interval != "auto" and not any(record.predicted_calls for record in records):
        without |= {"interval"}
    if settings.method == "downsample" and not any(record.ran_in for record in records):
        without |= {"method"}
    ours = settings.to_infotext(without=frozenset(without)) | {VERSION_KEY: __version__}
    return format_infotext(request, model, ours)


def image(pixels: np.ndarray, text: str) -> Any:
    """A Pillow image that carries its infotext as a PNG does."""
    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.info[PNG_KEY] = text
    return picture


def names(comparison: Comparison) -> tuple[str, str]:
    """The files of a variant's picture and of its difference map: "todo-fast.png", "todo-fast-difference.png"."""
    name = results.preset_name(comparison.settings).lower().replace(" ", "-")
    return f"{name}.png", f"{name}-difference.png"


def images(comparisons: Sequence[Comparison], model: str) -> dict[str, Any]:
    """The images of a comparison, by file name: the baseline, each variant, its map, and what is enlarged."""
    request, baseline = comparisons[0].request, comparisons[0].baseline_image
    made = {BASELINE: image(baseline, png_text(request, model))}
    maps = pictures.difference_maps(baseline, [each.reduced_image for each in comparisons])
    for each, its_map in zip(comparisons, maps, strict=True):
        text = png_text(request, model, each.settings, (each.reduced_first, each.reduced))
        made |= {n: image(p, text) for n, p in zip(names(each), (each.reduced_image, its_map), strict=True)}
    shown = {caption.name: pixels for caption, pixels in _pictures(comparisons)}
    return made | {ZOOM: image(pictures.zoom(shown), made[BASELINE].info[PNG_KEY])}


def _pictures(comparisons: Sequence[Comparison]) -> list[tuple[results.Caption, np.ndarray]]:
    """Baseline and variants, each with its caption."""
    pixels = [comparisons[0].baseline_image, *(each.reduced_image for each in comparisons)]
    return [*zip(results.captions(comparisons), pixels, strict=True)]


def write(folder: Path, comparisons: Sequence[Comparison], model: str) -> list[Path]:
    """Write the images and the data of a comparison. Raises OSError."""
    made = images(comparisons, model)
    overview = pictures.overview({caption.short: pixels for caption, pixels in _pictures(comparisons)})
    made[OVERVIEW] = image(overview, made[BASELINE].info[PNG_KEY])
    return _write(folder, made, results.comparison_data(comparisons, model))


def _write(folder: Path, pictures: dict[str, Any], data: dict[str, Any]) -> list[Path]:
    """Write drafts first, so that a failure leaves no incomplete file."""
    from PIL.PngImagePlugin import PngInfo

    folder.mkdir(parents=True, exist_ok=True)
    drafts = {folder / name: folder / f".{name}.part" for name in (*pictures, DATA)}
    try:
        for name, picture in pictures.items():
            info = PngInfo()
            info.add_text(PNG_KEY, picture.info[PNG_KEY])
            picture.save(drafts[folder / name], "PNG", pnginfo=info)
        drafts[folder / DATA].write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
        for path, draft in drafts.items():
            os.replace(draft, path)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
    return list(drafts)
