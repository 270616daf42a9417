"""A comparison or a picture as figures, as a table of what was planned and done, as text, and as files."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from todo_core.patching.plan import LevelPlan
from todo_core.patching.record import Record
from todo_core.settings import Settings

from ..sampling.comparison import Pair
from ..sampling.infotext import PNG_KEY, infotext
from ..sampling.passes import Pass
from ..sampling.request import Request
from .models import Made

BASELINE, REDUCED, DIFFERENCE, IMAGE, FIGURES = (
    "baseline.png",
    "reduced.png",
    "difference.png",
    "image.png",
    "figures.json",
)


@dataclass(frozen=True)
class PlanRow:
    """One level of the plan. `outcome` says in which steps it acted, or why not."""

    level: str
    tokens: str
    keys: str
    method: str
    blocks: int
    outcome: str


WHOLE = "left whole"
PLAN_HEAD = ("level", "tokens", "keys", "method", "blocks", "acted")


def plan_rows(passes: Iterable[Pass], request: Request) -> list[PlanRow]:
    """Of every pass that has a plan; none where the settings leave all alone."""
    return [row for made in passes for row in _pass_rows(made, request)]


def _pass_rows(made: Pass, request: Request) -> list[PlanRow]:
    if made.plan is None:
        return []
    steps, where = (request.hires_steps, "") if made.name == "hires" else (request.steps, f", {made.name} pass")
    past = f", past {made.plan.settings.end:g}"
    within = [_row(made.record, level, f"{level.level}{where}", steps) for level in made.plan.levels]
    return within + [_row(made.record, level, f"{level.level}{where}{past}", steps) for level in made.plan.after]


def _row(record: Record, planned: LevelPlan, name: str, steps: int) -> PlanRow:
    ran = {p: s for p, s in record.ran_in.items() if (p.level, p.method) == (planned.level, planned.method)}
    did = next(reversed(ran), planned)  # an odd size can make another grid than was planned
    if did.why:
        return PlanRow(name, _grid(did.grid), f"{did.keys:,}", WHOLE, did.blocks, did.why)
    acted = set().union(*ran.values())
    keys = _grid(did.target_grid) if did.target_grid else f"{did.keys:,}"
    return PlanRow(name, _grid(did.grid), keys, did.method, did.blocks, f"{_steps(acted)} of {steps} steps")


def _grid(grid: Any) -> str:
    return f"{grid.tokens:,} ({grid})"


def _steps(acted: set[int]) -> str:
    """How many, and which where they are not the first ones: "3 (5-7)"."""
    if not acted or max(acted) + 1 == len(acted):
        return str(len(acted))
    return f"{len(acted)} ({min(acted) + 1}-{max(acted) + 1})"


def why_untouched(settings: Settings, hires: Pass) -> str:
    """Why nothing was reduced in the hires pass; empty where something was."""
    if hires.plan is None:
        return "the method is none" if settings.method == "none" else "these settings are for the first pass alone"
    if hires.record.ran_in:
        return ""
    return "; ".join(hires.plan.reasons) or "none of its steps lies in the window of the settings"


def notes_of(passes: Iterable[Pass]) -> list[str]:
    """What was noticed on the way, each once."""
    return list(dict.fromkeys(note for made in passes for note in made.record.notes))


def figures(pair: Pair, model: str) -> dict[str, Any]:
    """All of it, in JSON types; the PSNR of equal pictures, which is infinite, is None."""
    apart = asdict(pair.difference)
    passes = {"first": pair.first, "whole": pair.whole, "reduced": pair.reduced}
    return {
        **_asked(model, pair.request, pair.settings),
        "seconds": {name: made.total for name, made in passes.items()},
        "step_seconds": {name: made.seconds for name, made in passes.items()},
        "ratio": pair.ratio,
        "difference": {name: value if math.isfinite(value) else None for name, value in apart.items()},
        **_done(pair.request, pair.settings, (pair.reduced_first, pair.reduced)),
    }


def image_figures(made: Made, model: str) -> dict[str, Any]:
    """The same of a single picture."""
    passes = {"first": made.first, "hires": made.hires}
    return {
        **_asked(model, made.request, made.settings),
        "seconds": {name: one.total for name, one in passes.items()},
        "step_seconds": {name: one.seconds for name, one in passes.items()},
        **_done(made.request, made.settings, passes.values()),
    }


def _asked(model: str, request: Request, settings: Settings) -> dict[str, Any]:
    return {"model": model, "request": asdict(request), "settings": settings.to_dict()}


def _done(request: Request, settings: Settings, passes: Iterable[Pass]) -> dict[str, Any]:
    *_, hires = passes = tuple(passes)
    rows = [asdict(row) for row in plan_rows(passes, request)]
    return {"plan": rows, "untouched": why_untouched(settings, hires), "notes": notes_of(passes)}


@dataclass(frozen=True)
class Number:
    """One figure as a person reads it."""

    name: str
    text: str
    meaning: str


def numbers_of(pair: Pair) -> list[Number]:
    """The figures, times first."""
    apart = pair.difference
    return [
        Number("whole pass", f"{pair.whole.total:.2f} s", "seconds of all steps of the hires pass"),
        Number("reduced pass", f"{pair.reduced.total:.2f} s", "seconds of all steps of the hires pass"),
        Number("speed", f"{pair.ratio:.2f}x", "median step of the whole pass by that of the reduced one"),
        Number("MSE", f"{apart.mse:.2g}", "mean squared difference of values 0 to 1; 0 is equal"),
        Number(
            "PSNR", f"{apart.psnr:.1f} dB" if apart.mse else "equal", "peak signal to noise ratio; higher is closer"
        ),
        Number("SSIM", f"{apart.ssim:.4f}", "structural similarity; 1 is equal"),
    ]


def summary(pair: Pair, model: str) -> str:
    """Lines for the terminal."""
    numbers = [f"  {number.name:<13} {number.text}" for number in numbers_of(pair)]
    done = _told(pair.request, pair.settings, (pair.reduced_first, pair.reduced))
    return "\n".join([_title(pair.request, model), *numbers, *done])


def image_summary(made: Made, model: str) -> str:
    """Lines for the terminal, of a single picture."""
    times = [
        f"  {name:<13} {one.total:.2f} s, {statistics.median(one.seconds):.3f} s a step"
        for name, one in (("first pass", made.first), ("hires pass", made.hires))
    ]
    return "\n".join([_title(made.request, model), *times, *_told(made.request, made.settings, made.passes)])


def _title(request: Request, model: str) -> str:
    width, height = request.hires_size
    sizes = f"{request.width} x {request.height} to {width} x {height}"
    return f"{model}: {request.prompt!r}, seed {request.seed}, {sizes}, {request.hires_steps} hires steps"


def _told(request: Request, settings: Settings, passes: Sequence[Pass]) -> Iterator[str]:
    if why := why_untouched(settings, passes[-1]):
        yield f"  nothing was reduced in the hires pass: {why}"
    for row in plan_rows(passes, request):
        did = f", {WHOLE}" if row.method == WHOLE else f" -> {row.keys} by {row.method}, {row.blocks} blocks"
        yield f"  level {row.level}: {row.tokens} tokens{did}: {row.outcome}"
    yield from (f"  {note}" for note in notes_of(passes))


def parameters(request: Request, model: str, settings: Settings | None = None, passes: Iterable[Pass] = ()) -> str:
    """The infotext. The settings are part of it where one of the passes was reduced."""
    reduced = settings and any(made.record.levels for made in passes)
    return infotext(request, model, settings.to_infotext() if settings and reduced else None)


def image(pixels: np.ndarray, text: str) -> Any:
    """A Pillow image that carries its infotext where a PNG has it."""
    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.info[PNG_KEY] = text
    return picture


def images(pair: Pair, model: str) -> dict[str, Any]:
    """The three pictures by the name of their file."""
    whole = parameters(pair.request, model)
    reduced = parameters(pair.request, model, pair.settings, (pair.reduced_first, pair.reduced))
    return {
        BASELINE: image(pair.whole_image, whole),
        REDUCED: image(pair.reduced_image, reduced),
        DIFFERENCE: image(pair.heat_map, reduced),
    }


def write(folder: Path, pair: Pair, model: str) -> list[Path]:
    """Write a comparison's pictures and figures. Raises OSError."""
    return _written(folder, images(pair, model), figures(pair, model))


def write_image(folder: Path, made: Made, model: str) -> list[Path]:
    """Write a single picture and its figures. Raises OSError."""
    picture = image(made.image, parameters(made.request, model, made.settings, made.passes))
    return _written(folder, {IMAGE: picture}, image_figures(made, model))


def _written(folder: Path, pictures: dict[str, Any], told: dict[str, Any]) -> list[Path]:
    """Each file is complete before it takes its place."""
    from PIL.PngImagePlugin import PngInfo

    folder.mkdir(parents=True, exist_ok=True)
    drafts = {folder / name: folder / f".{name}.part" for name in (*pictures, FIGURES)}
    for name, picture in pictures.items():
        info = PngInfo()
        info.add_text(PNG_KEY, picture.info[PNG_KEY])
        picture.save(drafts[folder / name], "PNG", pnginfo=info)
    drafts[folder / FIGURES].write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for path, draft in drafts.items():
        os.replace(draft, path)
    return list(drafts)
