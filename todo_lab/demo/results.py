"""The result of a comparison or of a single picture: figures, the table of the plan, sentences, and files."""

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

from todo_core import __version__
from todo_core.patching.level_plan import LevelPlan
from todo_core.patching.record import Record
from todo_core.settings import VERSION_KEY, Settings

from ..sampling.comparison import Comparison
from ..sampling.infotext import PNG_KEY, format_infotext
from ..sampling.passes import Pass
from ..sampling.request import Request
from . import pictures
from .model_runner import GeneratedImage

IMAGE, DATA = "image.png", "figures.json"
NOT_REDUCED = "not reduced"
BUSY = "This machine is busy: the figure is uncertain."
FASTER = 1.05  # a lower speed is not told as a gain
HARD_TO_SEE, EASY_TO_SEE = 40, 30  # dB; the rule of thumb of README.md
PLAN_HEAD = ("level", "tokens", "keys", "method", "blocks", "outcome")


@dataclass(frozen=True)
class PlanRow:
    """One level of the plan. `outcome` counts the steps in which it was reduced, or says why it was not."""

    level: str
    tokens: str
    keys: str
    method: str
    blocks: int
    outcome: str


def plan_rows(passes: Iterable[Pass], request: Request) -> list[PlanRow]:
    """The rows of every pass that has a plan."""
    return [row for each in passes for row in _pass_rows(each, request)]


def _pass_rows(sampled: Pass, request: Request) -> list[PlanRow]:
    plan = sampled.plan
    if plan is None:
        return []
    steps, suffix = (request.hires_steps, "") if sampled.name == "hires" else (request.steps, f", {sampled.name} pass")
    rows = [_row(sampled.record, level, f"{level.level}{suffix}", steps) for level in plan.levels]
    if plan.deep.predicts:
        outcome = f"{_steps(sampled.record.predicted_in)} of {steps} steps"
        where = "all" if plan.deep.is_whole else "below 1"
        rows.append(PlanRow(f"{where}{suffix}", "-", "-", "predicted", plan.deep.transformers, outcome))
    after = f", after {plan.settings.end:g}"
    return rows + [_row(sampled.record, level, f"{level.level}{suffix}{after}", steps) for level in plan.after]


def _row(record: Record, planned: LevelPlan, name: str, steps: int) -> PlanRow:
    ran = {p: s for p, s in record.ran_in.items() if (p.level, p.method) == (planned.level, planned.method)}
    level = next(reversed(ran), planned)  # an odd size can make another grid than was planned
    if level.why:
        return PlanRow(name, _grid(level.grid), f"{level.keys:,}", NOT_REDUCED, level.blocks, level.why)
    keys = _grid(level.target_grid) if level.target_grid else f"{level.keys:,}"
    outcome = f"{_steps(set().union(*ran.values()))} of {steps} steps"
    return PlanRow(name, _grid(level.grid), keys, level.method, level.blocks, outcome)


def _grid(grid: Any) -> str:
    return f"{grid.tokens:,} ({grid})"


def _steps(reduced: set[int]) -> str:
    """The number of reduced steps, and their range if it does not start at the first step: "3 (5-7)"."""
    if not reduced or max(reduced) + 1 == len(reduced):
        return str(len(reduced))
    return f"{len(reduced)} ({min(reduced) + 1}-{max(reduced) + 1})"


def why_not_reduced(settings: Settings, hires: Pass) -> str:
    """Why nothing was reduced in the hires pass; empty if something was."""
    if hires.plan is None:
        return "the method is none" if settings.method == "none" else "the settings act in the first pass only"
    if hires.record.acted:
        return ""
    return hires.plan.reason or "none of its steps is between start and end"


def unique_notes(passes: Iterable[Pass]) -> list[str]:
    """The notes of all passes, each once."""
    return list(dict.fromkeys(note for each in passes for note in each.record.notes))


def comparison_data(comparison: Comparison, model: str) -> dict[str, Any]:
    """The whole result in JSON types. The PSNR of equal images is infinite and becomes None."""
    passes = {"first": comparison.first, "baseline": comparison.baseline, "reduced": comparison.reduced}
    timing, values = comparison.timing, asdict(comparison.difference)
    return {
        **_input_data(model, comparison.request, comparison.settings),
        **_times(passes),
        "speed": timing.speed,
        "typical_speed": timing.typical_speed,
        "uncertain": timing.is_uncertain,
        "difference": {name: value if math.isfinite(value) else None for name, value in values.items()},
        **_plan_data(comparison.request, comparison.settings, (comparison.reduced_first, comparison.reduced)),
    }


def image_data(generated: GeneratedImage, model: str) -> dict[str, Any]:
    """The result of a single picture in JSON types."""
    return {
        **_input_data(model, generated.request, generated.settings),
        **_times({"first": generated.first, "hires": generated.hires}),
        **_plan_data(generated.request, generated.settings, generated.passes),
    }


def _input_data(model: str, request: Request, settings: Settings) -> dict[str, Any]:
    return {"model": model, "request": asdict(request), "settings": settings.to_dict()}


def _times(passes: dict[str, Pass]) -> dict[str, Any]:
    return {
        "seconds": {name: each.total_seconds for name, each in passes.items()},
        "step_seconds": {name: each.step_seconds for name, each in passes.items()},
    }


def _plan_data(request: Request, settings: Settings, passes: Sequence[Pass]) -> dict[str, Any]:
    rows = [asdict(row) for row in plan_rows(passes, request)]
    return {"plan": rows, "why_not_reduced": why_not_reduced(settings, passes[-1]), "notes": unique_notes(passes)}


@dataclass(frozen=True)
class Measurement:
    """One figure with its label and an explanation."""

    name: str
    text: str
    meaning: str


def measurements(comparison: Comparison) -> list[Measurement]:
    """The figures of a comparison, times first."""
    timing = comparison.timing
    baseline, reduced = map(seconds, timing.seconds)
    return [
        Measurement("baseline", baseline, "time of all steps of the hires pass"),
        Measurement("reduced", reduced, "time of all steps of the hires pass"),
        Measurement("speed", f"{timing.speed:.2f}x", "time of the baseline over time of the reduced pass"),
        Measurement("typical speed", f"{timing.typical_speed:.2f}x", "with the median time of each kind of step"),
        Measurement("PSNR", psnr(comparison), "peak signal-to-noise ratio; higher is closer to the baseline"),
    ]


def seconds(value: float) -> str:
    """Seconds with about three digits."""
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} s"


def psnr(comparison: Comparison) -> str:
    """The PSNR to the baseline."""
    return f"{comparison.difference.psnr:.1f} dB" if comparison.difference.mse else "equal"


def speed_sentence(comparison: Comparison) -> str:
    """How much faster the reduced pass was, or why nothing was reduced."""
    if why := why_not_reduced(comparison.settings, comparison.reduced):
        return f"Nothing was reduced: {why}"
    timing = comparison.timing
    if timing.speed < FASTER:
        verdict = f"Not faster ({timing.speed:.2f}x)"
    else:  # one slow baseline step can make the pass slower, and not its steps
        verdict = f"{timing.speed:.1f}x faster" if timing.typical_speed >= FASTER else "Not clearly faster"
    return f"{verdict}: {' -> '.join(map(seconds, timing.seconds))}"


def doubt(comparison: Comparison) -> str:
    """A warning that the speed is uncertain; empty if it is not, or if no speed is told."""
    if why_not_reduced(comparison.settings, comparison.reduced):
        return ""
    return BUSY if comparison.timing.is_uncertain else ""


def difference_sentence(comparison: Comparison) -> str:
    """How visible the difference is, by README's rule of thumb."""
    if not comparison.difference.mse:
        return "Equal: every pixel is that of the baseline"
    value = comparison.difference.psnr
    if value >= HARD_TO_SEE:
        seen = "the difference is hard to see"
    else:
        seen = "look closely to see the difference" if value >= EASY_TO_SEE else "the difference is easy to see"
    return f"{value:.0f} dB PSNR: {seen}"


def summary(comparison: Comparison, paths: Sequence[Path]) -> str:
    """The comparison as three lines for the terminal."""
    speed = f"{speed_sentence(comparison)}. {doubt(comparison)}".removesuffix(". ")
    return "\n".join([speed, difference_sentence(comparison), _files(paths)])


def _files(paths: Sequence[Path]) -> str:
    """The first path in full, the others by name; the last one is the data."""
    names = ", ".join([str(paths[0]), *(path.name for path in paths[1:-1])])
    return f"Pictures: {names}. All figures: {paths[-1].name}"


def image_summary(generated: GeneratedImage, model: str, paths: Sequence[Path]) -> str:
    """The single picture as lines for the terminal."""
    times = [
        f"  {name:<13} {each.total_seconds:.2f} s, {statistics.median(each.step_seconds):.3f} s per step"
        for name, each in (("first pass", generated.first), ("hires pass", generated.hires))
    ]
    plan = _plan_lines(generated.request, generated.settings, generated.passes)
    return "\n".join([title(generated.request, model), *times, *plan, _files(paths)])


def title(request: Request, model: str) -> str:
    """Model and request in one line."""
    width, height = request.hires_size
    sizes = f"{request.width} x {request.height} to {width} x {height}"
    return f"{model}: {request.prompt!r}, seed {request.seed}, {sizes}, {request.hires_steps} hires steps"


def _plan_lines(request: Request, settings: Settings, passes: Sequence[Pass]) -> Iterator[str]:
    if why := why_not_reduced(settings, passes[-1]):
        yield f"  nothing was reduced in the hires pass: {why}"
    for row in plan_rows(passes, request):
        keys = (
            f", {NOT_REDUCED}" if row.method == NOT_REDUCED else f" -> {row.keys} by {row.method}, {row.blocks} blocks"
        )
        yield f"  level {row.level}: {row.tokens} tokens{keys}: {row.outcome}"
    yield from (f"  {note}" for note in unique_notes(passes))


def png_text(request: Request, model: str, settings: Settings | None = None, passes: Iterable[Pass] = ()) -> str:
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


def images(comparison: Comparison, model: str) -> dict[str, Any]:
    """The images of a comparison, by file name."""
    passes = comparison.reduced_first, comparison.reduced
    baseline = png_text(comparison.request, model)
    reduced = png_text(comparison.request, model, comparison.settings, passes)
    both = comparison.baseline_image, comparison.reduced_image
    return {
        "baseline.png": image(both[0], baseline),
        "reduced.png": image(both[1], reduced),
        "zoom.png": image(pictures.zoom(*both), reduced),
        "difference.png": image(pictures.difference_map(*both), reduced),
    }


def write(folder: Path, comparison: Comparison, model: str) -> list[Path]:
    """Write the images and the data of a comparison. Raises OSError."""
    made = images(comparison, model)
    both = comparison.baseline_image, comparison.reduced_image
    before, after = map(seconds, comparison.timing.seconds)
    pixels = pictures.overview(*both, (f"baseline, {before}", f"reduced, {after}, {psnr(comparison)}"))
    made["overview.png"] = image(pixels, made["reduced.png"].info[PNG_KEY])
    return _write(folder, made, comparison_data(comparison, model))


def write_image(folder: Path, generated: GeneratedImage, model: str) -> list[Path]:
    """Write a single image and its data. Raises OSError."""
    text = png_text(generated.request, model, generated.settings, generated.passes)
    return _write(folder, {IMAGE: image(generated.image, text)}, image_data(generated, model))


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
