"""Variants of the same images beside the baseline: times, differences, and tables of them."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np

from ...image_difference import Difference, difference

BASELINE_NAME = "baseline"
PASSES = {"first": "First pass", "hires": "Hires pass", "img2img": "img2img pass"}


@dataclass
class MeasuredVariant:
    """The result of one variant. ``trouble`` says why its time and differences do not count; it is empty otherwise."""

    name: str
    pictures: list[np.ndarray] = field(default_factory=list)  # uint8 (h, w, 3), in the order of the seeds
    seconds: list[dict[str, float]] = field(default_factory=list)  # by pass, of each round
    reduced: set[str] = field(default_factory=set)  # the passes in which anything was reduced
    trouble: str = ""


@dataclass(frozen=True)
class ComparisonRow:
    """One variant in numbers; None where there is no number. The differences are means over its images."""

    name: str
    seconds: float | None = None  # the median of the rounds
    spread: float | None = None  # half of the distance between the fastest and the slowest round
    ratio: float | None = None  # baseline's seconds / this variant's
    mse: float | None = None
    psnr: float | None = None  # of the mean MSE; also None for equal images, since JSON has no infinity
    ssim: float | None = None
    trouble: str = ""
    images: tuple[Difference, ...] = ()

    def cells(self) -> list[str]:
        """Name, seconds, ratio, MSE, PSNR and SSIM as text for the page."""
        psnr = "equal" if self.mse == 0 else _text(self.psnr, ".1f")
        spread = f" ± {self.spread:.2f}" if self.spread is not None else ""
        numbers = [_text(self.seconds, ".2f") + spread, _text(self.ratio, ".2f", "x"), _text(self.mse, ".2g")]
        return [self.name, *numbers, psnr, _text(self.ssim, ".4f")]

    def label(self) -> list[str]:
        """The lines above a column of the grid."""
        if self.trouble:
            return [self.name, self.trouble]
        _, seconds, ratio, mse, psnr, ssim = self.cells()
        lines = [self.name]
        if self.seconds is not None:
            lines.append(
                f"{seconds} s" + (f", {ratio}" if self.ratio is not None and self.name != BASELINE_NAME else "")
            )
        if self.mse == 0:
            lines.append("identical")
        elif self.mse is not None:
            lines += [f"MSE {mse}, PSNR {psnr}", f"SSIM {ssim}"]
        return lines


@dataclass(frozen=True)
class ComparisonTable:
    """The rows, and the passes whose times they sum: those that any variant reduced."""

    passes: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]

    @classmethod
    def of(cls, variants: Sequence[MeasuredVariant]) -> ComparisonTable:
        """Compare each variant with the baseline, if the baseline is complete."""
        passes = _timed_passes(variants)
        baseline = next((v for v in variants if v.name == BASELINE_NAME and not v.trouble), None)
        return cls(passes, tuple(_row(variant, baseline, passes) for variant in variants))

    @property
    def head(self) -> list[str]:
        """Titles of ``ComparisonRow.cells``."""
        timed = " and ".join(PASSES[name] for name in self.passes) or "Time"
        return ["", f"{timed}, s", "speed", "MSE", "PSNR, dB", "SSIM"]

    def html(self) -> str:
        """A table for the page."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.head)
        body = "".join(_html_row(row) for row in self.rows)
        return f'<table class="todo-comparison"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'

    def csv(self) -> str:
        """The numbers at full precision, one line a variant."""
        names = ("name", "seconds", "spread", "ratio", "mse", "psnr", "ssim", "trouble")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(row, name) for name in names] for row in self.rows)
        return text.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        rows = [_finite(asdict(row)) for row in self.rows]
        return {"passes": list(self.passes), "rows": rows}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ComparisonTable:
        """Read the result of ``to_dict``, without the single images."""
        rows = (
            ComparisonRow(**{name: value for name, value in row.items() if name != "images"}) for row in values["rows"]
        )
        return cls(tuple(values["passes"]), tuple(rows))


def _timed_passes(variants: Sequence[MeasuredVariant]) -> tuple[str, ...]:
    """The passes that any variant reduced, in running order; the last pass if none was reduced."""
    ran = [name for name in PASSES if any(name in seconds for variant in variants for seconds in variant.seconds)]
    reduced = set().union(*(variant.reduced for variant in variants))
    return tuple(name for name in ran if name in reduced) or tuple(ran[-1:])


def _row(variant: MeasuredVariant, baseline: MeasuredVariant | None, passes: tuple[str, ...]) -> ComparisonRow:
    if variant.trouble:
        return ComparisonRow(variant.name, trouble=variant.trouble)
    seconds, spread = _seconds(variant, passes)
    if not baseline:
        return ComparisonRow(variant.name, seconds, spread)
    ratio = _seconds(baseline, passes)[0] / seconds if seconds else None
    if variant is baseline:
        return ComparisonRow(variant.name, seconds, spread, ratio)
    differences = tuple(difference(a, b) for a, b in zip(baseline.pictures, variant.pictures, strict=True))
    mse, ssim = _mean([d.mse for d in differences]), _mean([d.ssim for d in differences])
    psnr = -10 * math.log10(mse) if mse else None
    return ComparisonRow(variant.name, seconds, spread, ratio, mse, psnr, ssim, images=differences)


def _seconds(variant: MeasuredVariant, passes: tuple[str, ...]) -> tuple[float, float | None]:
    """The median of the rounds and half of their range; None for the latter if there was one round."""
    rounds = [sum(seconds.get(name, 0.0) for name in passes) for seconds in variant.seconds]
    return median(rounds), (max(rounds) - min(rounds)) / 2 if len(rounds) > 1 else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _text(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"


def _html_row(row: ComparisonRow) -> str:
    name, *numbers = map(html.escape, row.cells())
    if row.trouble:
        return f'<tr><th>{name}</th><td colspan="{len(numbers)}">{html.escape(row.trouble)}</td></tr>'
    return f"<tr><th>{name}</th>{''.join(f'<td>{number}</td>' for number in numbers)}</tr>"


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Replace the infinite PSNR of equal images by None, since JSON has no infinity."""
    images = [{name: v if math.isfinite(v) else None for name, v in image.items()} for image in row["images"]]
    return {**row, "images": images}
