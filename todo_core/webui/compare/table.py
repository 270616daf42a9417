"""Variants of the same images beside the baseline: times, differences, and tables of them."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Any

import numpy as np

from ...image_difference import difference

BASELINE_NAME = "baseline"
PASSES = {"first": "First pass", "hires": "Hires pass", "img2img": "img2img pass"}


@dataclass
class Variant:
    """One variant, and what the WebUI made of it.

    ``trouble`` says why its time and differences do not count; it is empty otherwise.
    """

    name: str
    p: Any  # the processing object of this variant alone
    processed: Any = None
    images: list[Any] = field(default_factory=list)  # PIL, without the WebUI's own grid
    infotexts: list[str] = field(default_factory=list)
    pictures: list[np.ndarray] = field(default_factory=list)  # the images as uint8 (h, w, 3)
    seconds: list[dict[str, float]] = field(default_factory=list)  # by pass, of each round
    reduced: set[str] = field(default_factory=set)  # the passes in which anything was reduced
    trouble: str = ""
    plain: str = ""  # the variant with fewer steps that take its time


def baseline_of(variants: Sequence[Variant]) -> Variant | None:
    """The baseline, if it is complete."""
    return next((v for v in variants if v.name == BASELINE_NAME and not v.trouble), None)


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
    images: Sequence[dict[str, float | None]] = ()  # mse, psnr and ssim of each
    plain: str = ""  # the row of as many plain steps

    def is_faster_than(self, other: ComparisonRow) -> bool:
        """Whether its time is less, by more than the spread of both."""
        return (self.seconds or 0) + (self.spread or 0) < (other.seconds or 0) - (other.spread or 0)

    def cells(self) -> list[str]:
        """Name, seconds, ratio, MSE, PSNR and SSIM as text for the page."""
        seconds = _text(self.seconds, "{:.2f}") + _text(self.spread, " ± {:.2f}")
        psnr = "equal" if self.mse == 0 else _text(self.psnr, "{:.1f}")
        ratio, mse, ssim = _text(self.ratio, "{:.2f}x"), _text(self.mse, "{:.2g}"), _text(self.ssim, "{:.4f}")
        return [self.name, seconds, ratio, mse, psnr, ssim]

    def label(self) -> list[str]:
        """The lines above a column of the grid."""
        if self.trouble:
            return [self.name, self.trouble]
        name, seconds, ratio, mse, psnr, ssim = self.cells()
        time = f"{seconds} s, {ratio}" if ratio and name != BASELINE_NAME else f"{seconds} s"
        if self.mse == 0:
            return [name, time, "identical"]
        return [name, time, f"MSE {mse}, PSNR {psnr}", f"SSIM {ssim}"] if mse else [name, time]

    def html(self) -> str:
        """An HTML row, with a cell for each of `cells`, or for what went wrong."""
        name, *numbers = map(html.escape, self.cells())
        if self.trouble:
            return f'<tr><th>{name}</th><td colspan="{len(numbers)}">{html.escape(self.trouble)}</td></tr>'
        return f"<tr><th>{name}</th>{''.join(f'<td>{number}</td>' for number in numbers)}</tr>"


@dataclass(frozen=True)
class ComparisonTable:
    """The rows, and the passes whose times they sum: those that any variant reduced."""

    passes: Sequence[str]
    rows: Sequence[ComparisonRow]

    @classmethod
    def of(cls, variants: Sequence[Variant]) -> ComparisonTable:
        """Compare each variant with the baseline, if the baseline is complete."""
        passes, baseline = _timed_passes(variants), baseline_of(variants)
        return cls(passes, [_row(variant, baseline, passes) for variant in variants])

    def html(self) -> str:
        """The HTML table, with the verdict under it."""
        timed = " and ".join(PASSES[name] for name in self.passes) or "Time"
        titles = ("", f"{timed}, s", "speed", "MSE", "PSNR, dB", "SSIM")  # of ComparisonRow.cells
        head = "".join(f"<th>{html.escape(title).replace(', ', ',&nbsp;')}</th>" for title in titles)
        body = "".join(row.html() for row in self.rows)
        table = f'<table class="todo-comparison"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        return f"{table}<p>{html.escape(self.verdict)}</p>" if self.verdict else table

    @property
    def verdict(self) -> str:
        """Which variant is the best for its time, in one sentence; empty without rows of plain steps.

        A variant whose time is that of the baseline, within their spreads, is the closest for no time.
        """
        rows, found = {row.name: row for row in self.rows}, []
        for row in self.rows:
            plain = rows.get(row.plain)
            if plain and plain.mse is not None and row.mse is not None:
                found.append((math.log((row.mse + 1e-12) / (plain.mse + 1e-12)), row, plain))
        if not found:
            return ""
        found = [each for each in found if each[1].is_faster_than(rows[BASELINE_NAME])]
        if not found:
            return "No verdict: the times differ by no more than their spread. More repeats or larger images may help."
        gain, row, plain = min(found, key=lambda each: each[0])
        if gain >= 0:
            return "Plain steps are closer to the baseline than each variant in its time."
        return (
            f"Best for its time: {row.name}, {row.ratio:.2f}x and PSNR {_text(row.psnr, '{:.1f}') or 'equal'}; "
            f"{plain.name}: {plain.ratio:.2f}x and {_text(plain.psnr, '{:.1f}') or 'equal'}."
        )

    def to_dict(self) -> dict[str, Any]:
        """The table for an API answer: JSON types only."""
        return {**asdict(self), "verdict": self.verdict}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ComparisonTable:
        """Read the result of ``to_dict``."""
        return cls(values["passes"], [ComparisonRow(**row) for row in values["rows"]])


def _timed_passes(variants: Sequence[Variant]) -> list[str]:
    """The passes that any variant reduced, in running order; the last pass if none was reduced."""
    ran = [name for name in PASSES if any(name in seconds for variant in variants for seconds in variant.seconds)]
    return [name for name in ran if any(name in variant.reduced for variant in variants)] or ran[-1:]


def _row(variant: Variant, baseline: Variant | None, passes: Sequence[str]) -> ComparisonRow:
    if variant.trouble:
        return ComparisonRow(variant.name, trouble=variant.trouble)
    seconds, spread = _seconds(variant, passes)
    if not baseline:
        return ComparisonRow(variant.name, seconds, spread)
    ratio = _seconds(baseline, passes)[0] / seconds if seconds else None
    if variant is baseline:
        return ComparisonRow(variant.name, seconds, spread, ratio)
    differences = [difference(a, b) for a, b in zip(baseline.pictures, variant.pictures, strict=True)]
    mse, ssim = fmean(each.mse for each in differences), fmean(each.ssim for each in differences)
    psnr = -10 * math.log10(mse) if mse else None
    # JSON has no infinity, which is the PSNR of equal images
    images = [{name: v if math.isfinite(v) else None for name, v in asdict(each).items()} for each in differences]
    return ComparisonRow(variant.name, seconds, spread, ratio, mse, psnr, ssim, images=images, plain=variant.plain)


def speeds(variant: Variant, baseline: Variant | None) -> dict[str, float]:
    """How many times faster than the baseline each pass was that a variant has reduced; empty if unknown."""
    if variant.trouble or not baseline:
        return {}
    seconds = {name: _seconds(variant, [name])[0] for name in variant.reduced}
    return {name: _seconds(baseline, [name])[0] / took for name, took in seconds.items() if took}


def _seconds(variant: Variant, passes: Sequence[str]) -> tuple[float, float | None]:
    """The median of the rounds and half of their range; None for the latter if there was one round."""
    rounds = [sum(seconds.get(name, 0.0) for name in passes) for seconds in variant.seconds]
    return median(rounds), (max(rounds) - min(rounds)) / 2 if len(rounds) > 1 else None


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
