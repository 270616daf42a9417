"""The results: a JSON file that further runs add to, and Markdown tables with the goals."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from todo_lab.evaluation.running.row_store import write_atomically
from unet_call.models import PIXELS
from unet_call.reductions import PARTS
from unet_call.variants import BASELINE, LOWER_BOUNDS, NAMES, OURS

Row = dict[str, Any]
MIN_TURNS = 5  # for an answer
NO_MEMORY = "memory failed"  # not ``failed``: the time measured before is kept
GROUP = ("layout", "batch", "dtype", "torch", "device")
FACTORS = tuple(LOWER_BOUNDS.values())
COLUMNS = {
    "seconds": ("seconds", "{:.3f}"),
    "speed": ("speed", "{:.2f}x"),
    "attention": ("level-1 attention, s", "{:.3f}"),
    "peak": ("peak beyond the model, MiB", "{:.0f}"),
}


@dataclass
class Results:
    """Rows of UNet calls and of reductions: one for each group, latent and setting."""

    rows: list[Row] = field(default_factory=list)
    reductions: list[Row] = field(default_factory=list)

    @classmethod
    def read(cls, *folders: Path) -> Results:
        """The results in these folders, joined; the last folder has precedence."""
        found = cls()
        for path in [folder / "unet.json" for folder in folders]:
            if path.is_file():
                found.add(**json.loads(path.read_text("utf-8")))
        return found

    def add(self, rows: Iterable[Row] = (), reductions: Iterable[Row] = ()) -> None:
        """Add rows, and values to rows that are there: time and memory of a row are measured apart."""
        self.rows = _merged(self.rows, rows, "setting")
        self.reductions = _merged(self.reductions, reductions, "reduction")

    def write(self, folder: Path) -> None:
        """Write ``unet.json`` atomically."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "unet.json", json.dumps({"rows": self.rows, "reductions": self.reductions}, indent=1))

    @property
    def groups(self) -> dict[str, list[Row]]:
        """The rows of each title."""
        return _by_title(self.rows)


def _merged(old: Iterable[Row], new: Iterable[Row], name: str) -> list[Row]:
    rows = {_key(row, name): row for row in old}
    for row in new:
        before = rows.get(_key(row, name), {})
        kept = {} if "failed" in row or "failed" in before else {k: v for k, v in before.items() if k != NO_MEMORY}
        rows[_key(row, name)] = kept | row
    rank = {setting: number for number, setting in enumerate(NAMES)}
    order = {title: number for number, title in enumerate(dict.fromkeys(map(title_of, rows.values())))}
    return sorted(rows.values(), key=lambda r: (order[title_of(r)], r["latent"], rank.get(r[name], len(rank))))


def _key(row: Row, name: str) -> tuple[Any, ...]:
    return *(row[key] for key in GROUP), row["latent"], row[name]


def title_of(row: Row) -> str:
    """What all rows of a group have in common."""
    return "{layout} layout, batch {batch}, {dtype}, torch {torch}, {device}".format(**row)


def _by_title(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(title_of(row), []).append(row)
    return found


def markdown(results: Results) -> str:
    """For each group the tables, what was left out, and the goals; then the reductions alone."""
    parts: list[str] = []
    for title, rows in results.groups.items():
        parts += [f"## {title}", *overview(rows), table(rows), *left_out(rows)]
        checks = goals(rows)
        parts += ["### Goals", goals_table(checks)] if checks else []
    for title, rows in _by_title(results.reductions).items():
        parts += [f"## Reductions alone: {title}", reductions_table(rows)]
    return "\n\n".join(parts) + "\n"


def overview(rows: Sequence[Row]) -> list[str]:
    """A table of speed by setting and latent, with the seconds of the baseline, if anything was timed."""
    timed = {(row["setting"], row["latent"]): row for row in rows if "turns" in row}
    sides = sorted({latent for _, latent in timed})
    lines = []
    for name in sorted({name for name, _ in timed}, key=NAMES.index):
        here = [timed.get((name, side)) for side in sides]
        form = "{seconds:.2f} s" if name == BASELINE else "{speed:.2f}x"
        lines.append([name, *(form.format(**row) if row else "" for row in here)])
    return [_table(["latent", *(f"{side} ({side * PIXELS} px)" for side in sides)], lines)] if timed else []


def table(rows: Sequence[Row]) -> str:
    """One line for each latent and setting, with the columns that have values."""
    columns = {key: column for key, column in COLUMNS.items() if any(key in row for row in rows)}
    heads = ["latent", "setting", *(head for head, _ in columns.values())]
    heads[4:4] = ["its quartiles"] if "speed" in columns else []
    lines = []
    for row in (row for row in rows if COLUMNS.keys() & row.keys()):
        cells = [form.format(row[key]) if key in row else "" for key, (_, form) in columns.items()]
        cells[2:2] = [quartile_text(speeds(row, rows))] if "speed" in columns else []
        lines.append([str(row["latent"]), row["setting"], *cells])
    return _table(heads, lines)


def left_out(rows: Sequence[Row]) -> list[str]:
    """The list of what could not run, if anything."""
    failed = [
        f"- {row['setting']} at latent {row['latent']}, {part}: {row[key]}"
        for row in rows
        for part, key in (("all of it", "failed"), ("its memory", NO_MEMORY))
        if key in row
    ]
    return ["Left out:\n\n" + "\n".join(failed)] if failed else []


def reductions_table(rows: Sequence[Row]) -> str:
    """Milliseconds of each part, and their sum."""
    lines = []
    for row in rows:
        parts = [row.get(part) for part in PARTS]
        cells = ["" if ms is None else f"{ms:.2f}" for ms in (*parts, sum(ms for ms in parts if ms is not None))]
        lines.append([str(row["latent"]), f"{row['tokens']:,}", row["reduction"], *cells])
    return _table(["latent", "tokens", "reduction", *(f"{part}, ms" for part in PARTS), "sum, ms"], lines)


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*head, *("| " + " | ".join(line) + " |" for line in lines)])


# ratios -------------------------------------------------------------------------------------------------------------


def ratios(row: Row, other: Row) -> list[float]:
    """Seconds of ``row`` to those of ``other`` in each turn; for separate runs, the ratio of the medians."""
    if row.get("run") == other.get("run"):
        return [a / b for a, b in zip(row["turns"], other["turns"], strict=True)]
    return [row["seconds"] / other["seconds"]]


def by_attention(row: Row, other: Row) -> list[float]:
    """The same ratios, if the calls are taken as equal outside the level-1 attention; none for separate runs.

    Variants differ in the level-1 attention alone, so this leaves out the variation of everything else.
    """
    if row.get("run") != other.get("run") or "attentions" not in row:
        return []
    turns = zip(row["attentions"], other["attentions"], other["turns"], strict=True)
    return [1 + (mine - theirs) / call for mine, theirs, call in turns]


def speeds(row: Row, rows: Sequence[Row]) -> list[float]:
    """Speed in each turn, if the baseline of the same run is there."""
    baseline = _timed(rows, row["latent"], BASELINE)
    is_same_run = baseline and "turns" in row and baseline.get("run") == row.get("run")
    return ratios(baseline, row) if baseline and is_same_run else []


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """(lower, upper)."""
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper


def interval(values: Sequence[float], confidence: float = 0.9) -> tuple[float, float]:
    """The confidence interval (lower, upper) of the median, by order statistics; of few values, their range."""
    count = len(values)
    chances = [math.comb(count, below) / 2**count for below in range(count)]
    cut = max((k for k in range(count // 2) if 2 * sum(chances[: k + 1]) <= 1 - confidence), default=0)
    return sorted(values)[cut], sorted(values)[-1 - cut]


def quartile_text(values: Sequence[float]) -> str:
    """The quartiles as text; empty for a single value."""
    return "{:.3f} to {:.3f}".format(*quartiles(values)) if len(values) > 1 else ""


def _timed(rows: Sequence[Row], latent: int, setting: str) -> Row | None:
    return next((r for r in rows if r["latent"] == latent and r["setting"] == setting and "turns" in r), None)


# goals --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """A goal: a ratio of at most ``goal``."""

    latent: int
    what: str
    values: list[float]
    goal: float

    @property
    def reached(self) -> str:
        """An answer needs both ends of the interval on one side of the goal."""
        if len(self.values) < MIN_TURNS:
            return "too few turns"
        lower, upper = interval(self.values)
        return "yes" if upper <= self.goal else "no" if lower > self.goal else "within the spread"


def goals(rows: Sequence[Row]) -> list[Check]:
    """What the rows say about each goal. The goals about the lower bound begin at latent 96."""
    checks: list[Check] = []
    for latent in sorted({row["latent"] for row in rows}):
        pairs = [(f"ToDo {f}", f"lower bound of ToDo {f}", 1.02) for f in FACTORS if latent >= 96]
        pairs += [(f"ToDo {f}", f"token-downsampling {f}", 1.0) for f in FACTORS]
        pairs += [(name, BASELINE, 1.01) for name in ("out of the window", "factor 1")]
        for name, other, goal in pairs:
            row, beside = _timed(rows, latent, name), _timed(rows, latent, other)
            if row and beside:
                what = f"time of {name} / {other}"
                checks.append(Check(latent, what, ratios(row, beside), goal))
                checks.append(Check(latent, f"{what}, by level-1 attention", by_attention(row, beside), goal))
        checks += _memory(rows, latent)
    return [check for check in checks if check.values]


def _memory(rows: Sequence[Row], latent: int) -> list[Check]:
    """Of our settings, the one with the highest peak: one value, and so no answer (on a CPU it varies by 8 %)."""
    peaks = {row["setting"]: row["peak"] for row in rows if row["latent"] == latent and "peak" in row}
    ours = {name: peak for name, peak in peaks.items() if name in OURS}
    if not ours or not peaks.get(BASELINE):
        return []
    most = max(ours, key=lambda name: ours[name])
    what = f"highest peak memory of ours ({most}) / {BASELINE}"
    return [Check(latent, what, [ours[most] / peaks[BASELINE]], 1.0)]


def goals_table(checks: Sequence[Check]) -> str:
    """With the 90 % confidence interval of each median."""
    heads = ["latent", "what", "turns", "median ratio", "90 % interval", "goal: at most", "reached"]
    lines = []
    for c in checks:
        bounds = "{:.3f} to {:.3f}".format(*interval(c.values)) if len(c.values) >= MIN_TURNS else ""
        median = f"{statistics.median(c.values):.3f}"
        lines.append([str(c.latent), c.what, str(len(c.values)), median, bounds, f"{c.goal:.2f}", c.reached])
    return _table(heads, lines)
