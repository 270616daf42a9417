"""What Compare shows and saves: the labelled grid, the images with their own infotexts, a table as CSV and JSON."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from copy import copy
from itertools import chain
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from ...image_difference import HEAT_GAIN, heat_map
from .. import compat
from .outcome import Outcome, comments_of
from .table import UNREDUCED, ComparisonTable

log = logging.getLogger("todo_core")

ANSWER = "todo_compare"  # its place in the JSON of a result
INFOTEXT_KEY = "ToDo compare"


def assemble(p: Any, outcomes: Sequence[Outcome], comparison: ComparisonTable, *, title: str, heat_maps: bool) -> Any:
    """The host's Processed: the grid, then every image of every variant."""
    from modules import processing, shared

    shown = [outcome for outcome in outcomes if outcome.images]
    picture = grid(shown, comparison, heat_maps=heat_maps)
    text = _grid_infotext(shown, title)
    if shared.opts.enable_pnginfo:
        picture.info["parameters"] = text
    own = shown[0].processed
    done = processing.Processed(
        shown[0].p,
        [picture, *chain.from_iterable(outcome.images for outcome in shown)],
        own.seed,
        text,
        subseed=own.subseed,
        **{name: _joined(shown, name) for name in ("all_prompts", "all_negative_prompts", "all_seeds", "all_subseeds")},
        index_of_first_image=1,
        infotexts=[text, *chain.from_iterable(outcome.infotexts for outcome in shown)],
    )
    lines = [*p.comments, *_told(outcomes, comparison)]
    if getattr(p, "txt2img_upscale", False):  # the host drops this answer's JSON, and the table with it
        lines += [": ".join((row.name, ", ".join(row.label()[1:]))) for row in comparison.rows]
    done.comments = "".join(f"{line}\n" for line in lines)
    _save(p, done, shown, comparison)
    compat.add_to_answer(done, comments=done.comments, **{ANSWER: comparison.to_dict()})
    return done


def grid(outcomes: Sequence[Outcome], comparison: ComparisonTable, *, heat_maps: bool) -> Any:
    """One column a variant, one row an image, and under it how it differs; a label over each column."""
    from modules import images

    rows = {row.name: row for row in comparison.rows}
    whole = next((o for o in outcomes if o.variant.name == UNREDUCED and not o.variant.trouble), None)
    with_heat = heat_maps and whole is not None and len(outcomes) > 1
    size = outcomes[0].images[0].size
    count = max(len(outcome.images) for outcome in outcomes)
    cells = []
    for number in range(count):
        cells += [_nth(outcome.images, number, size) for outcome in outcomes]
        cells += [_heat(outcome, whole, number, size) for outcome in outcomes] if with_heat else []
    cells = _within_limit(cells)
    lines = count * (2 if with_heat else 1)
    width, height = cells[0].size
    over = [[images.GridAnnotation(line) for line in rows[o.variant.name].label()] for o in outcomes]
    beside = _seeds(outcomes[0], lines, count)
    plain = images.image_grid(cells, rows=lines)
    return images.draw_grid_annotations(plain, width, height, over, beside, margin=max(2, width // 100))


def _seeds(outcome: Outcome, lines: int, count: int) -> list[list[Any]]:
    """The seed beside each image's row, where there are several."""
    from modules import images

    texts = [""] * lines
    if count > 1:
        texts[:: lines // count] = [f"seed {seed}" for seed in outcome.processed.all_seeds[:count]]
    return [[images.GridAnnotation(text)] for text in texts]


def _nth(pictures: Sequence[Any], number: int, size: tuple[int, int]) -> Any:
    return pictures[number].convert("RGB") if number < len(pictures) else _blank(size)


def _heat(outcome: Outcome, whole: Any, number: int, size: tuple[int, int]) -> Any:
    if outcome is whole:
        return legend(size)
    if outcome.variant.trouble or number >= len(outcome.images):
        return _blank(size)
    return Image.fromarray(heat_map(whole.variant.pictures[number], outcome.variant.pictures[number]))


def _blank(size: tuple[int, int]) -> Any:
    from modules import shared

    return Image.new("RGB", size, shared.opts.grid_background_color)


def legend(size: tuple[int, int]) -> Any:
    """What the colours of the heat maps mean, in the place that the unreduced image has no difference to show."""
    import numpy as np
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
    draw.text((width // 2, top - height // 32), "difference to unreduced", font=font, fill=ink, anchor="mb")
    below = top + bar.height + height // 32
    draw.text((left, below), "0", font=font, fill=ink, anchor="lt")
    draw.text((left + bar.width, below), f"{100 / HEAT_GAIN:g} % or more", font=font, fill=ink, anchor="rt")
    return picture


def _within_limit(cells: list[Any]) -> list[Any]:
    """All of one size, and small enough for the host's largest grid."""
    from modules import shared

    width, height = (max(cell.size[side] for cell in cells) for side in (0, 1))
    scale = min(1.0, math.sqrt(shared.opts.img_max_size_mp * 1e6 / (width * height * len(cells))))
    size = (max(1, int(width * scale)), max(1, int(height * scale)))
    return [cell if cell.size == size else cell.resize(size, Image.Resampling.LANCZOS) for cell in cells]


def _grid_infotext(outcomes: Sequence[Outcome], title: str) -> str:
    """As the first image's, with what was compared."""
    from modules import processing

    p = copy(outcomes[0].p)
    names = "; ".join(outcome.variant.name for outcome in outcomes if outcome.variant.name != UNREDUCED)
    p.extra_generation_params = {**p.extra_generation_params, "Script": title, INFOTEXT_KEY: names}
    return processing.create_infotext(p, p.all_prompts, p.all_seeds, p.all_subseeds)


def _joined(outcomes: Sequence[Outcome], name: str) -> list[Any]:
    """A list of the host's that has one entry for each image, over all variants."""
    return list(chain.from_iterable(getattr(o.processed, name)[: len(o.images)] for o in outcomes))


def _told(outcomes: Sequence[Outcome], comparison: ComparisonTable) -> list[str]:
    lines = comments_of(outcomes)
    if not any(outcome.variant.reduced for outcome in outcomes):
        lines.insert(0, "ToDo compare: nothing was reduced in any variant; the lines below say why")
    lines += [f"{row.name} {row.trouble}" for row in comparison.rows if row.trouble]
    return lines


def _save(p: Any, done: Any, outcomes: Sequence[Outcome], comparison: ComparisonTable) -> None:
    """The grid, where the host saves grids; the tables beside it, or else beside the first image that was saved."""
    from modules import images, shared

    try:
        beside = getattr(done.images[1], "already_saved_as", None)
        if shared.opts.grid_save and not p.do_not_save_grid:
            beside, _ = images.save_image(
                done.images[0],
                p.outpath_grids,
                "todo_compare",
                seed=done.seed,
                prompt=done.prompt,
                extension=shared.opts.grid_format,
                info=done.infotexts[0],
                grid=True,
                p=outcomes[0].p,
            )
        if beside:
            _save_tables(Path(beside), done, outcomes, comparison)
    except OSError as error:  # a full disk must not cost the images that are on the page
        log.error("ToDo compare: %s", error)
        done.comments += f"ToDo compare could not save its files: {error}\n"


def _save_tables(picture: Path, done: Any, outcomes: Sequence[Outcome], comparison: ComparisonTable) -> None:
    settings = {outcome.variant.name: outcome.variant.settings for outcome in outcomes if outcome.variant.settings}
    picture.with_suffix(".csv").write_text(comparison.csv(), "utf-8")
    text = comparison.json(prompt=done.prompt, seeds=outcomes[0].p.all_seeds, infotext=done.info, settings=settings)
    picture.with_suffix(".json").write_text(text, "utf-8")
