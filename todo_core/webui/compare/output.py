"""The output of Compare: the labelled grid, the images with their own infotexts, and a table."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ...image_difference import HEAT_GAIN, heat_map
from .. import compat
from .table import BASELINE_NAME, ComparisonTable, MeasuredVariant

log = logging.getLogger("todo_core")

INFO_KEY = "todo_compare"  # in the JSON of a result
INFOTEXT_KEY = "ToDo compare"


@dataclass
class Outcome:
    """One variant, and the images that the WebUI made of it."""

    variant: MeasuredVariant
    p: Any  # the processing object of this variant alone
    processed: Any = None
    images: list[Any] = field(default_factory=list)  # PIL, without the WebUI's own grid
    infotexts: list[str] = field(default_factory=list)


def assemble(p: Any, outcomes: Sequence[Outcome], comparison: ComparisonTable, *, title: str, heat_maps: bool) -> Any:
    """The WebUI's Processed: the grid, then every image of every variant."""
    from modules import processing, shared

    with_images = [outcome for outcome in outcomes if outcome.images]
    picture = grid(with_images, comparison, heat_maps=heat_maps)
    infotext = _grid_infotext(with_images, title)
    if shared.opts.enable_pnginfo:
        picture.info["parameters"] = infotext
    first = with_images[0]
    lists = ("all_prompts", "all_negative_prompts", "all_seeds", "all_subseeds")
    processed = processing.Processed(
        first.p,
        [picture, *chain.from_iterable(outcome.images for outcome in with_images)],
        first.processed.seed,
        infotext,
        subseed=first.processed.subseed,
        **{name: _joined(with_images, name) for name in lists},
        index_of_first_image=1,
        infotexts=[infotext, *chain.from_iterable(outcome.infotexts for outcome in with_images)],
    )
    lines = [*p.comments, *_comments(outcomes, comparison)]
    if getattr(p, "txt2img_upscale", False):  # the WebUI drops this result's JSON, and the table with it
        lines += [": ".join((row.name, ", ".join(row.label()[1:]))) for row in comparison.rows]
    processed.comments = "".join(f"{line}\n" for line in lines)
    _save(p, processed, first, comparison)
    compat.add_to_info(processed, comments=processed.comments, **{INFO_KEY: comparison.to_dict()})
    return processed


def grid(outcomes: Sequence[Outcome], comparison: ComparisonTable, *, heat_maps: bool) -> Any:
    """One column for each variant, with a label; one row for each image, with its difference map under it."""
    from modules import images

    rows = {row.name: row for row in comparison.rows}
    baseline = next((o for o in outcomes if o.variant.name == BASELINE_NAME and not o.variant.trouble), None)
    with_maps = heat_maps and baseline is not None and len(outcomes) > 1
    size = outcomes[0].images[0].size
    count = max(len(outcome.images) for outcome in outcomes)
    cells = []
    for number in range(count):
        cells += [_image_cell(outcome.images, number, size) for outcome in outcomes]
        cells += [_map_cell(outcome, baseline, number, size) for outcome in outcomes] if with_maps else []
    cells = _within_limit(cells)
    lines = count * (2 if with_maps else 1)
    width, height = cells[0].size
    column_labels = [[images.GridAnnotation(line) for line in rows[o.variant.name].label()] for o in outcomes]
    row_labels = _seed_labels(outcomes[0], lines, count)
    plain = images.image_grid(cells, rows=lines)
    return images.draw_grid_annotations(plain, width, height, column_labels, row_labels, margin=max(2, width // 100))


def _seed_labels(outcome: Outcome, lines: int, count: int) -> list[list[Any]]:
    """The seed beside each image's row, if there are several images."""
    from modules import images

    texts = [""] * lines
    if count > 1:
        texts[:: lines // count] = [f"seed {seed}" for seed in outcome.processed.all_seeds[:count]]
    return [[images.GridAnnotation(text)] for text in texts]


def _image_cell(pictures: Sequence[Any], number: int, size: tuple[int, int]) -> Any:
    return pictures[number].convert("RGB") if number < len(pictures) else _blank(size)


def _map_cell(outcome: Outcome, baseline: Any, number: int, size: tuple[int, int]) -> Any:
    if outcome is baseline:
        return legend(size)
    if outcome.variant.trouble or number >= len(outcome.images):
        return _blank(size)
    return Image.fromarray(heat_map(baseline.variant.pictures[number], outcome.variant.pictures[number]))


def _blank(size: tuple[int, int]) -> Any:
    from modules import shared

    return Image.new("RGB", size, shared.opts.grid_background_color)


def legend(size: tuple[int, int]) -> Any:
    """The meaning of the colours in the difference maps; it fills the baseline's cell, which has no difference."""
    from modules import images, shared

    width, height = size
    picture = _blank(size)
    draw, font = ImageDraw.Draw(picture), images.get_font(max(8, width // 18))
    ink = shared.opts.grid_text_active_color
    ramp = np.linspace(0, 255 / HEAT_GAIN, width * 8 // 10)[None, :, None].repeat(3, 2).round().astype(np.uint8)
    bar = Image.fromarray(heat_map(np.zeros_like(ramp), ramp)).resize((ramp.shape[1], max(4, height // 16)))
    left, top = (width - bar.width) // 2, (height - bar.height) // 2
    picture.paste(bar, (left, top))
    draw.rectangle((left - 1, top - 1, left + bar.width, top + bar.height), outline=ink)
    draw.text((width // 2, top - height // 32), "difference to baseline", font=font, fill=ink, anchor="mb")
    below = top + bar.height + height // 32
    draw.text((left, below), "0", font=font, fill=ink, anchor="lt")
    draw.text((left + bar.width, below), f"{100 / HEAT_GAIN:g} % or more", font=font, fill=ink, anchor="rt")
    return picture


def _within_limit(cells: list[Any]) -> list[Any]:
    """All cells at one size that fits the WebUI's largest grid."""
    from modules import shared

    width, height = (max(cell.size[side] for cell in cells) for side in (0, 1))
    scale = min(1.0, math.sqrt(shared.opts.img_max_size_mp * 1e6 / (width * height * len(cells))))
    size = (max(1, int(width * scale)), max(1, int(height * scale)))
    return [cell if cell.size == size else cell.resize(size, Image.Resampling.LANCZOS) for cell in cells]


def _grid_infotext(outcomes: Sequence[Outcome], title: str) -> str:
    """The first image's infotext, with the names of what was compared."""
    from modules import processing

    p = copy(outcomes[0].p)
    names = "; ".join(outcome.variant.name for outcome in outcomes if outcome.variant.name != BASELINE_NAME)
    compared = {INFOTEXT_KEY: names} if names else {}  # an interrupt may leave the baseline alone
    p.extra_generation_params = {**p.extra_generation_params, "Script": title, **compared}
    return processing.create_infotext(p, p.all_prompts, p.all_seeds, p.all_subseeds)


def _joined(outcomes: Sequence[Outcome], name: str) -> list[Any]:
    """One of the WebUI's lists with an entry for each image, over all variants."""
    return list(chain.from_iterable(getattr(o.processed, name)[: len(o.images)] for o in outcomes))


def _comments(outcomes: Sequence[Outcome], comparison: ComparisonTable) -> list[str]:
    names_of: dict[str, list[str]] = {}  # several variants may have one comment
    for outcome in outcomes:
        for comment in outcome.p.comments:
            names_of.setdefault(comment.removeprefix("ToDo "), []).append(outcome.variant.name)
    lines = [f"{', '.join(names)}: {comment}" for comment, names in names_of.items()]
    if len(outcomes) > 1 and not any(outcome.variant.reduced for outcome in outcomes):
        lines.insert(0, "ToDo compare: nothing was reduced in any variant. The lines below say why.")
    return lines + [f"{row.name} {row.trouble}" for row in comparison.rows if row.trouble]


def _save(p: Any, processed: Any, first: Outcome, comparison: ComparisonTable) -> None:
    """Save the grid if the WebUI saves grids. The table goes beside the grid, or else beside the first saved image."""
    from modules import images, shared

    try:
        saved_as = getattr(first.images[0], "already_saved_as", None)
        if shared.opts.grid_save and not p.do_not_save_grid:
            saved_as, _ = images.save_image(
                processed.images[0],
                p.outpath_grids,
                "todo_compare",
                seed=processed.seed,
                prompt=processed.prompt,
                extension=shared.opts.grid_format,
                info=processed.infotexts[0],
                grid=True,
                p=first.p,
            )
        if saved_as:
            Path(saved_as).with_suffix(".csv").write_text(comparison.csv(), "utf-8")
    except OSError as error:  # a full disk must not cost the images on the page
        log.error("ToDo compare: %s", error)
        processed.comments += f"ToDo compare could not save its files: {error}\n"
