"""What was measured, as a file that further runs add to, and as Markdown with the goals at the end."""

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
from unet_call.variants import LIMITS, NAMES, OURS, WHOLE

Row = dict[str, Any]
NO_MEMORY = "memory failed"  # beside ``failed``, so that the time measured before is kept
GROUP = ("layout", "batch", "dtype", "torch", "device")
FACTORS = tuple(LIMITS.values())
COLUMNS = {
    "seconds": ("seconds", "{:.3f}"),
    "speed": ("speed", "{:.2f}x"),
    "attention": ("level-1 attention, s", "{:.3f}"),
    "peak": ("peak beyond the model, MiB", "{:.0f}"),
}


@dataclass
class Results:
    """Rows of calls and of reductions, one for each group, latent and setting."""

    rows: list[Row] = field(default_factory=list)
    reductions: list[Row] = field(default_factory=list)

    @classmethod
    def read(cls, *folders: Path) -> Results:
        """All that lies in these folders; of what several have, the last one's."""
        found = cls()
        for path in [folder / "unet.json" for folder in folders]:
            if path.is_file():
                found.add(**json.loads(path.read_text("utf-8")))
        return found

    def add(self, rows: Iterable[Row] = (), reductions: Iterable[Row] = ()) -> None:
        """New figures take the place of old ones. Memory is measured apart from time, and joins its row."""
        self.rows = _merged(self.rows, rows, "setting")
        self.reductions = _merged(self.reductions, reductions, "reduction")

    def write(self, folder: Path) -> None:
        """``unet.json``, whole or not at all."""
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
    """Every group's table, what was left out, and the goals; the reductions alone behind them."""
    parts: list[str] = []
    for title, rows in results.groups.items():
        parts += [f"## {title}", *overview(rows), table(rows), *left_out(rows)]
        checks = goals(rows)
        parts += ["### Goals", goals_table(checks)] if checks else []
    for title, rows in _by_title(results.reductions).items():
        parts += [f"## Reductions alone: {title}", reductions_table(rows)]
    return "\n\n".join(parts) + "\n"


def overview(rows: Sequence[Row]) -> list[str]:
    """A table of speed by setting and latent, under the seconds of the whole UNet, if anything was timed."""
    timed = {(row["setting"], row["latent"]): row for row in rows if "turns" in row}
    sides = sorted({latent for _, latent in timed})
    lines = []
    for name in sorted({name for name, _ in timed}, key=NAMES.index):
        here = [timed.get((name, side)) for side in sides]
        form = "{seconds:.2f} s" if name == WHOLE else "{speed:.2f}x"
        lines.append([name, *(form.format(**row) if row else "" for row in here)])
    return [_table(["latent", *(f"{side} ({side * PIXELS} px)" for side in sides)], lines)] if timed else []


def table(rows: Sequence[Row]) -> str:
    """One line a latent and setting, with the columns that anything was measured for."""
    columns = {key: column for key, column in COLUMNS.items() if any(key in row for row in rows)}
    heads = ["latent", "setting", *(head for head, _ in columns.values())]
    heads[4:4] = ["its quartiles"] if "speed" in columns else []
    lines = []
    for row in (row for row in rows if COLUMNS.keys() & row.keys()):
        cells = [form.format(row[key]) if key in row else "" for key, (_, form) in columns.items()]
        cells[2:2] = [spread(speeds(row, rows))] if "speed" in columns else []
        lines.append([str(row["latent"]), row["setting"], *cells])
    return _table(heads, lines)


def left_out(rows: Sequence[Row]) -> list[str]:
    """A sentence about what could not run, if anything."""
    failed = [
        f"- {row['setting']} at latent {row['latent']}, {part}: {row[key]}"
        for row in rows
        for part, key in (("all of it", "failed"), ("its memory", NO_MEMORY))
        if key in row
    ]
    return ["Left out:\n\n" + "\n".join(failed)] if failed else []


def reductions_table(rows: Sequence[Row]) -> str:
    """Milliseconds of each part, and of all together."""
    lines = []
    for row in rows:
        parts = [row.get(part) for part in PARTS]
        cells = ["" if ms is None else f"{ms:.2f}" for ms in (*parts, sum(ms for ms in parts if ms is not None))]
        lines.append([str(row["latent"]), f"{row['tokens']:,}", row["reduction"], *cells])
    return _table(["latent", "tokens", "reduction", *(f"{part}, ms" for part in PARTS), "together, ms"], lines)


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*head, *("| " + " | ".join(line) + " |" for line in lines)])


# ratios -------------------------------------------------------------------------------------------------------------


def ratios(row: Row, other: Row) -> list[float]:
    """Seconds of ``row`` to those of ``other``, turn by turn; of separate runs the medians' alone."""
    if row.get("run") == other.get("run"):
        return [a / b for a, b in zip(row["turns"], other["turns"], strict=True)]
    return [row["seconds"] / other["seconds"]]


def by_attention(row: Row, other: Row) -> list[float]:
    """The same where only the level-1 attention is counted as different, which is all that differs between variants.

    It is a part of the call, and so are its ups and downs. Nothing for separate runs.
    """
    if row.get("run") != other.get("run") or "attentions" not in row:
        return []
    turns = zip(row["attentions"], other["attentions"], other["turns"], strict=True)
    return [1 + (mine - theirs) / whole for mine, theirs, whole in turns]


def speeds(row: Row, rows: Sequence[Row]) -> list[float]:
    """Speed of each turn, if the whole UNet of its run is still there."""
    whole = _timed(rows, row["latent"], WHOLE)
    return ratios(whole, row) if whole and "turns" in row and whole.get("run") == row.get("run") else []


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """(lower, upper)."""
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper


def interval(values: Sequence[float], sure: float = 0.9) -> tuple[float, float]:
    """(lower, upper) that hold the median so surely, by order statistics; of fewer than five values all of them."""
    count = len(values)
    chances = [math.comb(count, below) / 2**count for below in range(count)]
    cut = max((k for k in range(count // 2) if 2 * sum(chances[: k + 1]) <= 1 - sure), default=0)
    return sorted(values)[cut], sorted(values)[-1 - cut]


def spread(values: Sequence[float]) -> str:
    """The quartiles as text; nothing where there was one value."""
    return "{:.3f} to {:.3f}".format(*quartiles(values)) if len(values) > 1 else ""


def _timed(rows: Sequence[Row], latent: int, setting: str) -> Row | None:
    return next((r for r in rows if r["latent"] == latent and r["setting"] == setting and "turns" in r), None)


# goals --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """A ratio that is to be at most ``goal``."""

    latent: int
    what: str
    values: list[float]
    goal: float
    least: int = 5  # turns that an answer takes

    @property
    def reached(self) -> str:
        """Only where both ends of the interval agree is there an answer."""
        if len(self.values) < self.least:
            return "too few turns"
        lower, upper = interval(self.values)
        return "yes" if upper <= self.goal else "no" if lower > self.goal else "within the spread"


def goals(rows: Sequence[Row]) -> list[Check]:
    """What the rows say about each goal; those about the limit hold from latent 96 on."""
    found: list[Check] = []
    for latent in sorted({row["latent"] for row in rows}):
        pairs = [(f"ToDo {f}", f"limit of ToDo {f}", 1.02) for f in FACTORS if latent >= 96]
        pairs += [(f"ToDo {f}", f"token-downsampling {f}", 1.0) for f in FACTORS]
        pairs += [(name, WHOLE, 1.01) for name in ("out of the window", "factor 1")]
        for name, other, goal in pairs:
            row, beside = _timed(rows, latent, name), _timed(rows, latent, other)
            if row and beside:
                what = f"time of {name} / {other}"
                found.append(Check(latent, what, ratios(row, beside), goal))
                found.append(Check(latent, f"{what}, by level-1 attention", by_attention(row, beside), goal))
        found += _memory(rows, latent)
    return [check for check in found if check.values]


def _memory(rows: Sequence[Row], latent: int) -> list[Check]:
    """The setting of ours that held most."""
    peaks = {row["setting"]: row["peak"] for row in rows if row["latent"] == latent and "peak" in row}
    ours = {name: peak for name, peak in peaks.items() if name in OURS}
    if not ours or not peaks.get(WHOLE):
        return []
    most = max(ours, key=lambda name: ours[name])
    return [
        Check(latent, f"peak memory of {most}, ours with the most / {WHOLE}", [ours[most] / peaks[WHOLE]], 1.0, least=1)
    ]


def goals_table(checks: Sequence[Check]) -> str:
    """With the interval that holds each median by 90 % beside it."""
    heads = ["latent", "what", "turns", "median ratio", "90 % sure", "goal: at most", "reached"]
    lines = []
    for c in checks:
        sure = "{:.3f} to {:.3f}".format(*interval(c.values)) if len(c.values) >= c.least > 1 else ""
        median = f"{statistics.median(c.values):.3f}"
        lines.append([str(c.latent), c.what, str(len(c.values)), median, sure, f"{c.goal:.2f}", c.reached])
    return _table(heads, lines)
