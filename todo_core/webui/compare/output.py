"""The output of Compare: the labelled grid, the images with their own infotexts, and a table."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from copy import copy
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from modules import images, processing, shared
from PIL import Image, ImageDraw

from ...image_difference import HEAT_GAIN, heat_map
from .. import compat
from .table import BASELINE_NAME, ComparisonTable, Variant, baseline_of

log = logging.getLogger("todo_core")

INFO_KEY = "todo_compare"  # in the JSON of a result
INFOTEXT_KEY = "ToDo compare"


def assemble(p: Any, variants: Sequence[Variant], comparison: ComparisonTable, *, title: str, heat_maps: bool) -> Any:
    """The WebUI's Processed: the grid, then every image of every variant."""
    shown = [variant for variant in variants if variant.images]
    first, picture, infotext = shown[0], grid(shown, comparison, heat_maps=heat_maps), _grid_infotext(shown, title)
    if shared.opts.enable_pnginfo:
        picture.info["parameters"] = infotext
    lists = ("all_prompts", "all_negative_prompts", "all_seeds", "all_subseeds")
    processed = processing.Processed(
        first.p,
        [picture, *chain.from_iterable(variant.images for variant in shown)],
        first.processed.seed,
        infotext,
        subseed=first.processed.subseed,
        **{name: _joined(shown, name) for name in lists},
        index_of_first_image=1,
        infotexts=[infotext, *chain.from_iterable(variant.infotexts for variant in shown)],
    )
    lines = [*p.comments, *_comments(variants)]
    if getattr(p, "txt2img_upscale", False):  # the WebUI drops this result's JSON, and the table with it
        lines += [": ".join((row.name, ", ".join(row.label()[1:]))) for row in comparison.rows]
        lines += [comparison.verdict] if comparison.verdict else []
    processed.comments = "".join(f"{line}\n" for line in lines)
    _save(p, processed, shown, comparison)
    compat.add_to_info(processed, **{INFO_KEY: comparison.to_dict()})
    return processed


def grid(variants: Sequence[Variant], comparison: ComparisonTable, *, heat_maps: bool) -> Any:
    """One column for each variant, with a label; one row for each image, with its difference map under it."""
    baseline = baseline_of(variants) if heat_maps and len(variants) > 1 else None
    count = max(len(variant.images) for variant in variants)
    cells, seeds = [], []
    for number, seed in enumerate(variants[0].processed.all_seeds[:count]):
        cells += [_image_cell(variant, number) for variant in variants]
        seeds.append(f"seed {seed}" if count > 1 else "")
        if baseline:
            cells += [_map_cell(variant, baseline, number) for variant in variants]
            seeds.append("")
    cells, labels = _within_limit(cells), {row.name: row.label() for row in comparison.rows}
    over = [[images.GridAnnotation(line) for line in labels[variant.name]] for variant in variants]
    beside = [[images.GridAnnotation(seed)] for seed in seeds]
    width, height = cells[0].size
    plain = images.image_grid(cells, rows=len(seeds))
    return images.draw_grid_annotations(plain, width, height, over, beside, margin=max(2, width // 100))


def _image_cell(variant: Variant, number: int) -> Any:
    pictures = variant.images
    return pictures[number].convert("RGB") if number < len(pictures) else _blank(pictures[0].size)


def _map_cell(variant: Variant, baseline: Variant, number: int) -> Any:
    if variant is baseline:
        return legend(baseline.images[0].size)
    if variant.trouble or number >= len(variant.images):
        return _blank(baseline.images[0].size)
    return Image.fromarray(heat_map(baseline.pictures[number], variant.pictures[number]))


def _blank(size: tuple[int, int]) -> Any:
    return Image.new("RGB", size, shared.opts.grid_background_color)


def legend(size: tuple[int, int]) -> Any:
    """The meaning of the colours in the difference maps; it fills the baseline's cell, which has no difference."""
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
    width, height = (max(cell.size[side] for cell in cells) for side in (0, 1))
    scale = min(1.0, math.sqrt(shared.opts.img_max_size_mp * 1e6 / (width * height * len(cells))))
    size = (max(1, int(width * scale)), max(1, int(height * scale)))
    return [cell if cell.size == size else cell.resize(size, Image.Resampling.LANCZOS) for cell in cells]


def _grid_infotext(variants: Sequence[Variant], title: str) -> str:
    """The first image's infotext, with the names of what was compared."""
    p = copy(variants[0].p)
    others = {BASELINE_NAME, *(variant.plain for variant in variants)}
    names = "; ".join(variant.name for variant in variants if variant.name not in others)
    compared = {INFOTEXT_KEY: names} if names else {}  # an interrupt may leave the baseline alone
    p.extra_generation_params = {**p.extra_generation_params, "Script": title, **compared}
    return processing.create_infotext(p, p.all_prompts, p.all_seeds, p.all_subseeds)


def _joined(variants: Sequence[Variant], name: str) -> list[Any]:
    """One of the WebUI's lists with an entry for each image, over all variants."""
    return list(chain.from_iterable(getattr(v.processed, name)[: len(v.images)] for v in variants))


def _comments(variants: Sequence[Variant]) -> list[str]:
    names_of: dict[str, list[str]] = {}  # several variants may have one comment
    for variant in variants:
        for comment in variant.p.comments:
            names_of.setdefault(comment.removeprefix("ToDo "), []).append(variant.name)
    lines = [f"{', '.join(names)}: {comment}" for comment, names in names_of.items()]
    if len(variants) > 1 and not any(variant.reduced for variant in variants):
        lines.insert(0, "ToDo compare: nothing was reduced in any variant. The lines below say why.")
    return lines + [f"{variant.name} {variant.trouble}" for variant in variants if variant.trouble]


def _save(p: Any, processed: Any, variants: Sequence[Variant], comparison: ComparisonTable) -> None:
    """Save the grid if the WebUI saves grids. The table goes beside the grid, or else beside the first saved image.

    It has the infotext of each variant, and so the model and all settings.
    """
    first = variants[0]
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
            told = {**comparison.to_dict(), "infotexts": {each.name: each.infotexts[0] for each in variants}}
            Path(saved_as).with_suffix(".json").write_text(json.dumps(told, indent=1), "utf-8")
    except OSError as error:  # a full disk must not cost the images on the page
        log.error("ToDo compare: %s", error)
        processed.comments += f"ToDo compare could not save its files: {error}\n"
