"""The tables of docs/performance.md, from the stored rows of speed.py; pages.py writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

SDXL, SD1, CPU = (128, 192, 256), (64, 96, 128, 192, 256), (96, 128, 256)  # sides of the latent
ON_CPU = ("**ToDo 2**", "ToDo 4", "ToMe 0.5", "tomesd 0.5", "token-downsampling 2", "BiGain 2", "HyperTile 256")
REDUCED = ("**ToDo 2**", "ToDo 4", "ToDo 2 and 2", "ToMe 0.5", "tomesd 0.5")
Row = dict[str, Any]
Table = list[list[str]]
FILE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "speed.json"
STORED: list[Row] = json.loads(FILE.read_text("utf-8"))  # what speed.py has measured


def pixels(sides: Iterable[int], of: str = "") -> list[str]:
    return [f"{of}{8 * side} px" for side in sides]


def seconds(row: Row) -> str:
    return f"{row['seconds']:.{0 if row['seconds'] >= 100 else 1}f} s"


def milliseconds(row: Row) -> str:
    return f"{1000 * row['seconds']:.0f} ms"


def share(row: Row) -> str:
    return f"{100 * row['attention'] / row['seconds']:.0f} %"


def rows(**same: Any) -> dict[tuple[str, int], Row]:
    """The stored rows with these values, by setting and side."""
    mine = [row for row in STORED if same.items() <= row.items() and "failed" not in row]
    return {(row["setting"], row["side"]): row for row in mine}


def on_gpu(part: str, layout: str) -> dict[tuple[str, int], Row]:
    return rows(part=part, layout=layout, kernel="flash", **({"steps": 10} if part == "passes" else {}))


def of_calls(head: list[str], columns: list[dict[str, Row]], time: Callable[[Row], str], names: Sequence[str]) -> Table:
    """The baseline's time and share, and the speed of each setting."""
    found = [["", *head]]
    found.append(["unpatched", *(time(column["baseline"]) for column in columns)])
    found.append(["share of level-1 attention", *(share(column["baseline"]) for column in columns)])
    for name in names:
        found.append([name, *(f"{column[name.strip('*')]['speed']:.2f}x" for column in columns)])
    return found


def columns_of(found: dict[tuple[str, int], Row], sides: Iterable[int]) -> list[dict[str, Row]]:
    return [{setting: row for (setting, at), row in found.items() if at == side} for side in sides]


def gpu_calls() -> Table:
    head = pixels(SDXL, "SDXL, ") + pixels(SD1, "SD 1.5, ")
    columns = columns_of(on_gpu("calls", "sdxl"), SDXL) + columns_of(on_gpu("calls", "sd1"), SD1)
    return of_calls(head, columns, milliseconds, REDUCED)


def gpu_passes() -> Table:
    """Steps and passes of SDXL, with predicted steps."""
    columns, both = columns_of(on_gpu("passes", "sdxl"), SDXL), "ToDo 2, interval 2"
    found = [["", *pixels(SDXL)], ["unpatched step", *(milliseconds(c["unpatched"]["computed"]) for c in columns)]]
    for kind in ("computed", "predicted"):
        found.append([f"{kind} step, {both}", *(milliseconds(column[both][kind]) for column in columns)])
    ways = {"10 steps: ToDo 2": "ToDo 2", "10 steps: interval 2": "interval 2", f"**10 steps: {both}**": both}
    for shown, name in ways.items():
        found.append([shown, *(f"{c['unpatched']['pass'] / c[name]['pass']:.2f}x" for c in columns)])
    return found


def cpu_calls() -> Table:
    found = rows(part="calls", layout="sd1-ldm", dtype="bfloat16", kernel="any", batch=1)
    return of_calls(pixels(CPU), columns_of(found, CPU), seconds, ON_CPU)


TABLES = (gpu_calls, gpu_passes, cpu_calls)
