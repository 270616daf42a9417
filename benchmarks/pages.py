"""Write all that is generated from code and stored rows into the files that have it: python benchmarks/pages.py

The table of settings, the stub for editors, and the tables of README.md, docs/performance.md and docs/results. A table
takes the place of the next one with the same head: change a head on the page first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import performance
import results

from todo_lab.evaluation.report.document import markdown_table
from todo_lab.settings_command import stub, table

ROOT = Path(__file__).resolve().parents[1]
COLUMNS: dict[str, tuple[str, str, int, dict[str, Any]]] = {  # layout of images and UNet, side of the latent, rows
    "SD 1.5, 512 to 1024 px": ("SD 1.5", "sd1", 128, {"width": 512}),
    "SD 1.5, 512 to 2048 px": ("SD 1.5", "sd1", 256, {"hires_scale": 4}),
    "SDXL, 1024 to 2048 px": ("SDXL", "sdxl", 256, {"width": 512}),
}
OF_DEEP = "ToDo 2, deep layers, tolerance 0.08"  # predicts 4 of 10 steps, as interval 2 does
PLAIN = "as many plain steps"
ROWS = ("baseline", "**ToDo 2**", PLAIN, "ToDo 4", "ToMe 0.5", "tomesd 0.5", "**ToDo 2, interval 2**", PLAIN)


def speed_and_difference() -> performance.Table:
    """Speed on a GPU, of a pass where deep layers are predicted, and PSNR at users' settings."""
    columns = [_column(*column) for column in COLUMNS.values()]
    return [["", *COLUMNS], *([name, *cells] for name, *cells in zip(ROWS, *columns, strict=True))]


def _column(layout: str, unet: str, side: int, change: dict[str, Any]) -> list[str]:
    calls, passes = (performance.on_gpu(part, unet) for part in ("calls", "passes"))
    part, cells, speed = results.at(layout, **change), [], 0.0
    for name in (name.strip("*") for name in ROWS):
        variant = OF_DEEP if "interval" in name else name
        if name == "baseline":
            cells.append(performance.milliseconds(calls[name, side]))
            continue
        if name == PLAIN:  # those of the row above
            told, variant = f"{round(10 / speed)} of 10" if speed else "", f"fewer steps 0.{round(10 / (speed or 1))}"
        else:
            whole, own = passes.get(("unpatched", side)), passes.get((name, side))
            predicts = "interval" in name
            speed = (whole["pass"] / own["pass"] if whole and own else 0) if predicts else calls[name, side]["speed"]
            told = f"{speed:.2f}x"
        psnr = results.decibels(results.of(variant, part))
        cells.append(f"{told}, {psnr} dB" if speed and psnr else told if speed else "")
    return cells


def replaced(page: str, tables: Iterable[str]) -> str:
    """The page with each table in the place of the next one that has its head."""
    end = 0
    for new in tables:
        head = f"\n{new.partition(chr(10))[0]}\n"
        if head not in page[end:]:
            raise SystemExit(f"the page has no table with the head {head}")
        start = page.index(head, end) + 1
        old = re.match(r"(?:\|.*\n)+", page[start:])[0]  # type: ignore[index]
        page, end = f"{page[:start]}{new.rstrip()}\n{page[start + len(old) :]}", start + len(new)
    return page


GENERATED: dict[str, Callable[[str], str]] = {
    "todo_core/__init__.pyi": lambda page: stub(),
    "docs/settings.md": lambda page: replaced(page, [table()]),
    "docs/performance.md": lambda page: replaced(page, [markdown_table(t()) for t in performance.TABLES.values()]),
    "docs/results/README.md": lambda page: replaced(page, [markdown_table(t()) for t in results.TABLES.values()]),
    "README.md": lambda page: replaced(page, [markdown_table(t()) for t in (speed_and_difference, results.of_aims)]),
}


if __name__ == "__main__":
    for name, generated in GENERATED.items():
        path = ROOT / name
        before = path.read_text("utf-8")
        if (after := generated(before)) != before:
            path.write_text(after, "utf-8")
            sys.stdout.write(f"changed: {name}\n")
