"""The tables of docs/performance.md, from the stored rows of speed.py; pages.py writes them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

STORED = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "speed.json"
SDXL, SD1 = (128, 192, 256), (64, 96, 128, 192, 256)  # sides of the latent
REDUCED = ("**ToDo 2**", "ToDo 4", "ToDo 2 and 2", "ToMe 0.5", "tomesd 0.5")
Row = dict[str, Any]
Table = list[list[str]]


def pixels(sides: Iterable[int], of: str = "") -> list[str]:
    return [f"{of}{8 * side} px" for side in sides]


def seconds(row: Row) -> str:
    return f"{row['seconds']:.{0 if row['seconds'] >= 100 else 1}f} s"


def milliseconds(row: Row) -> str:
    return f"{1000 * row['seconds']:.0f} ms"


def speed(row: Row | None) -> str:
    """The speed of a call. Empty where nothing was measured."""
    return f"{row['speed']:.2f}x" if row else ""


def share(row: Row) -> str:
    return f"{100 * row['attention'] / row['seconds']:.0f} %"


@functools.cache
def stored() -> list[Row]:
    """The rows that speed.py has measured."""
    return json.loads(STORED.read_text("utf-8"))


def rows(**same: Any) -> dict[tuple[str, int], Row]:
    """The stored rows with these values, by setting and side."""
    mine = [row for row in stored() if same.items() <= row.items() and "failed" not in row]
    return {(row["setting"], row["side"]): row for row in mine}


def on_gpu(part: str, layout: str) -> dict[tuple[str, int], Row]:
    return rows(part=part, layout=layout, kernel="flash", **({"steps": 10} if part == "passes" else {}))


def calls_on_cpu(layout: str) -> dict[tuple[str, int], Row]:
    return rows(part="calls", layout=layout, dtype="bfloat16", kernel="any", batch=1)


def of_calls(head: list[str], columns: list[dict[str, Row]], time: Callable[[Row], str], names: Sequence[str]) -> Table:
    """The baseline's time and share, and the speed of each setting."""
    found = [["", *head]]
    found.append(["unpatched", *(time(column["baseline"]) for column in columns)])
    found.append(["share of level-1 attention", *(share(column["baseline"]) for column in columns)])
    return found + [[name, *(speed(column.get(name.strip("*"))) for column in columns)] for name in names]


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
    found += [[f"{kind} step, {both}", *(milliseconds(c[both][kind]) for c in columns)] for kind in KINDS]
    for name in ("ToDo 2", "interval 2", f"**{both}**"):
        speeds = [f"{c['unpatched']['pass'] / c[name.strip('*')]['pass']:.2f}x" for c in columns]
        found.append([in_ten_steps(name), *speeds])
    return found


KINDS = ("computed", "predicted")


def in_ten_steps(name: str) -> str:
    return f"**10 steps: {name.strip('*')}**" if "*" in name else f"10 steps: {name}"


CPU = (96, 128, 256)
ON_CPU = ("**ToDo 2**", "ToDo 4", "ToMe 0.5", "tomesd 0.5", "token-downsampling 2", "BiGain 2", "HyperTile 256")
TABLES: dict[str, Callable[[], Table]] = {
    "On a GPU": gpu_calls,
    "Passes of SDXL": gpu_passes,
    "One UNet call on a CPU": lambda: of_calls(pixels(CPU), columns_of(calls_on_cpu("sd1-ldm"), CPU), seconds, ON_CPU),
}
