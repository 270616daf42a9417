"""What came out of a comparison: what was planned, figures, and words about them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from todo_core.reason import Reason
from todo_core.settings import seen

from ..sampling.comparison import Comparison
from ..sampling.request import Request

BASELINE = "baseline"
BUSY = "This machine is busy: the speeds are uncertain."
FASTER = 1.05  # a lower speed is not told as a gain


def plan_lines(comparison: Comparison) -> list[str]:
    """What was planned for each level of each pass, then why less was done, each once."""
    passes = [each for each in (comparison.reduced_first, comparison.reduced) if each.plan]
    lines = [f"{each.name} pass, {line}" for each in passes for line in str(each.plan).splitlines()]
    return list(dict.fromkeys([*lines, *(why for each in passes for why in each.why_less)]))


def what_acted(comparison: Comparison) -> str:
    """What acted in the hires pass and in how many steps, or why nothing did."""
    if comparison.plain:
        return f"all tokens in {comparison.plain} steps"
    driver, is_off = comparison.reduced.driver, comparison.settings.method == "none"
    why = str(Reason.METHOD_NONE) if is_off else "the settings act in the first pass only"
    told = "; ".join(map(str, driver.in_words(comparison.request.hires_steps))) if driver else why
    return told if comparison.reduced.record.acted else f"nothing reduced: {told}"


def comparison_data(comparisons: Sequence[Comparison], model: str) -> dict[str, Any]:
    """The whole result in JSON types: the baseline, then each variant by its name."""
    first = comparisons[0]
    return {
        "model": model,
        "request": asdict(first.request),
        "seconds": first.timing.seconds[0],
        "step_seconds": {"first": first.first.step_seconds, BASELINE: first.baseline.step_seconds},
        "variants": {each.name: _variant_data(each) for each in comparisons},
    }


def _variant_data(comparison: Comparison) -> dict[str, Any]:
    """The seconds are those that are shown, without disturbances; the PSNR of equal images becomes None."""
    differences = asdict(comparison.difference).items()
    return {
        "settings": comparison.settings.to_dict(),
        "seconds": comparison.timing.seconds[1],
        "step_seconds": comparison.reduced.step_seconds,
        "speed": comparison.timing.speed,
        "uncertain": comparison.timing.is_uncertain,
        "difference": {name: value if math.isfinite(value) else None for name, value in differences},
        "plan": plan_lines(comparison),
        "acted": _caption(comparison).acted,
    }


class Caption(NamedTuple):
    """What stands under a picture: its name, time, speed and difference, and what acted in how many steps."""

    name: str
    time: str
    speed: str
    difference: str
    acted: str

    @property
    def short(self) -> str:
        """One line for the overview."""
        return ", ".join(filter(None, (self.name, self.time, self.difference.partition(":")[0])))


def captions(comparisons: Sequence[Comparison]) -> list[Caption]:
    """The caption of the baseline, then one for each variant."""
    before, _ = comparisons[0].timing.seconds
    acted = f"all tokens in {comparisons[0].request.hires_steps} steps"
    return [Caption(BASELINE, seconds(before), "", "", acted), *map(_caption, comparisons)]


def _caption(comparison: Comparison) -> Caption:
    timing = comparison.timing
    speed = f"{timing.speed:.2f}x faster" if timing.speed >= FASTER else f"not faster ({timing.speed:.2f}x)"
    return Caption(
        name=comparison.name,
        time=seconds(timing.seconds[1]),
        speed=speed if comparison.acted else "",
        difference=difference_words(comparison),
        acted=what_acted(comparison),
    )


def seconds(value: float) -> str:
    """Seconds with about three digits."""
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} s"


def difference_words(comparison: Comparison) -> str:
    """The PSNR, and how visible the difference is, by README's rule of thumb."""
    if not comparison.difference.mse:
        return "equal to the baseline"
    psnr = comparison.difference.psnr
    return f"{psnr:.1f} dB: {seen(psnr)}"


def doubt(comparisons: Sequence[Comparison]) -> str:
    """A warning that a speed is uncertain; empty if none is, or if none is told."""
    return BUSY if any(each.timing.is_uncertain and each.acted for each in comparisons) else ""


def summary(comparisons: Sequence[Comparison], paths: Sequence[Path]) -> str:
    """The comparison as lines for the terminal: two for each picture, then the files; the last one is the data."""
    lines = []
    for each in captions(comparisons):
        figures = "; ".join(filter(None, (each.time, each.speed, each.difference)))
        lines += [f"{each.name}: {figures}", f"  {each.acted}"]
    lines += filter(None, [doubt(comparisons)])
    names = ", ".join([str(paths[0]), *(path.name for path in paths[1:-1])])
    return "\n".join([*lines, f"Pictures: {names}. All figures: {paths[-1].name}"])


def title(request: Request, model: str) -> str:
    """Model and request in one line."""
    width, height = request.hires_size
    sizes = f"{request.width} x {request.height} to {width} x {height}"
    return f"{model}: {request.prompt!r}, seed {request.seed}, {sizes}, {request.hires_steps} hires steps"
