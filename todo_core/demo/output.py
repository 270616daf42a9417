"""A comparison as figures, as a table of what was planned and done, as text, and as files."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..evaluation.pair import Pair
from ..plan import LevelPlan

BASELINE, REDUCED, DIFFERENCE, FIGURES = "baseline.png", "reduced.png", "difference.png", "figures.json"


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


def plan_rows(pair: Pair) -> list[PlanRow]:
    """Of the hires pass; none where the settings leave it alone."""
    plan, steps = pair.reduced.plan, pair.request.hires_steps
    if plan is None:
        return []
    within = [_row(pair, level, str(level.level), steps) for level in plan.levels]
    past = f", past {plan.settings.end:g}"
    return within + [_row(pair, level, f"{level.level}{past}", steps) for level in plan.after]


def _row(pair: Pair, planned: LevelPlan, name: str, steps: int) -> PlanRow:
    ran = {
        p: s for p, s in pair.reduced.record.ran_in.items() if (p.level, p.method) == (planned.level, planned.method)
    }
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


def why_untouched(pair: Pair) -> str:
    """Why nothing was reduced in the hires pass; empty where something was."""
    plan = pair.reduced.plan
    if plan is None:
        method = pair.settings.method
        return "the method is none" if method == "none" else "these settings are for the first pass alone"
    if pair.reduced.record.ran_in:
        return ""
    return "; ".join(plan.reasons) or "none of its steps lies in the window of the settings"


def figures(pair: Pair, model: str) -> dict[str, Any]:
    """All of it, in JSON types; the PSNR of equal pictures, which is infinite, is None."""
    apart = asdict(pair.difference)
    return {
        "model": model,
        "request": asdict(pair.request),
        "settings": pair.settings.to_dict(),
        "seconds": {"first": pair.first.total, "whole": pair.whole.total, "reduced": pair.reduced.total},
        "ratio": pair.ratio,
        "difference": {name: value if math.isfinite(value) else None for name, value in apart.items()},
        "plan": [asdict(row) for row in plan_rows(pair)],
        "untouched": why_untouched(pair),
        "notes": pair.reduced.record.notes,
    }


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
    request = pair.request
    width, height = request.hires_size
    lines = [
        f"{model}: {request.prompt!r}, seed {request.seed}, "
        f"{request.width} x {request.height} to {width} x {height}, {request.hires_steps} hires steps",
        *(f"  {number.name:<13} {number.text}" for number in numbers_of(pair)),
    ]
    if why := why_untouched(pair):
        lines.append(f"  nothing was reduced: {why}")
    for row in plan_rows(pair):
        did = f", {WHOLE}" if row.method == WHOLE else f" -> {row.keys} by {row.method}, {row.blocks} blocks"
        lines.append(f"  level {row.level}: {row.tokens} tokens{did}: {row.outcome}")
    return "\n".join([*lines, *(f"  {note}" for note in pair.reduced.record.notes)])


def infotext(pair: Pair, model: str, *, reduced: bool) -> str:
    """The generation parameters as the WebUI writes them, so that its PNG Info reads them."""
    request = pair.request
    values = {
        "Steps": request.steps,
        "Sampler": request.sampler,
        "CFG scale": request.guidance,
        "Seed": request.seed,
        "Size": f"{request.width}x{request.height}",
        "Model": model,
        "Denoising strength": request.denoising,
        "Hires upscale": request.hires_scale,
        "Hires steps": request.hires_steps,
        "Hires upscaler": "Latent (bicubic antialiased)",
    }
    if reduced and (pair.reduced.record.levels or pair.settings.passes == "first"):
        values |= pair.settings.to_infotext()
    pairs = ", ".join(f"{name}: {_quoted(str(value))}" for name, value in values.items())
    negative = [f"Negative prompt: {request.negative}"] if request.negative else []
    return "\n".join([request.prompt, *negative, pairs])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if any(c in text for c in ",:\n") else text


def image(pixels: np.ndarray, parameters: str) -> Any:
    """A Pillow image that carries its infotext where a PNG has it."""
    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.info["parameters"] = parameters
    return picture


def images(pair: Pair, model: str) -> dict[str, Any]:
    """The three pictures by the name of their file."""
    reduced = infotext(pair, model, reduced=True)
    return {
        BASELINE: image(pair.whole_image, infotext(pair, model, reduced=False)),
        REDUCED: image(pair.reduced_image, reduced),
        DIFFERENCE: image(pair.heat_map, reduced),
    }


def write(folder: Path, pair: Pair, model: str) -> list[Path]:
    """Write the pictures and the figures; each is complete before it takes its place. Raises OSError."""
    from PIL.PngImagePlugin import PngInfo

    folder.mkdir(parents=True, exist_ok=True)
    drafts = {folder / name: folder / f".{name}.part" for name in (BASELINE, REDUCED, DIFFERENCE, FIGURES)}
    for name, picture in images(pair, model).items():
        info = PngInfo()
        info.add_text("parameters", picture.info["parameters"])
        picture.save(drafts[folder / name], "PNG", pnginfo=info)
    text = json.dumps(figures(pair, model), indent=1, ensure_ascii=False)
    drafts[folder / FIGURES].write_text(text + "\n", "utf-8")
    for path, draft in drafts.items():
        os.replace(draft, path)
    return list(drafts)
