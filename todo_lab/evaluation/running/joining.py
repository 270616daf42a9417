"""Join folders of results into one folder with one report."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from todo_core.errors import SettingsError

from ..variants import BASELINE
from .measurement import Row
from .png import load_png
from .row_store import ROWS_FILE, RUN_FILE, RowStore, write_atomically

SAME = ("model", "runs", "device", "dtype", "machine")
LISTED = ("versions", "command")


def join_results(folders: Sequence[Path], out: Path) -> None:
    """Write the rows of ``folders`` into the new folder ``out``; the images stay where they are.

    A scene that several folders have keeps the baseline row of the first one; its baseline images must be equal. A
    setting may be in one folder only. Baseline steps scale its seconds, as within one run. Raises SettingsError.
    """
    if (out / RUN_FILE).exists() or (out / ROWS_FILE).exists():
        raise SettingsError("out", str(out), "a folder without results")
    runs = [_about(folder) for folder in folders]
    for folder, run in zip(folders[1:], runs[1:], strict=True):
        changed = [f"{n} is {run.get(n)}, not {runs[0].get(n)}" for n in SAME if run.get(n) != runs[0].get(n)]
        if changed:
            raise SettingsError("join", str(folder), f"results like those of {folders[0]} ({', '.join(changed)})")
    joined: dict[str, Row] = {}
    scenes: dict[str, int] = {}
    for folder in folders:
        _add(joined, scenes, folder, out)
    lacking = sum(run["rows"] - len(RowStore(folder).latest()) for folder, run in zip(folders, runs, strict=True))
    about = {**runs[0], **{n: "; ".join(dict.fromkeys(run[n] for run in runs if n in run)) for n in LISTED}}
    out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in joined.values()]
    write_atomically(out / ROWS_FILE, "".join(lines))
    write_atomically(out / RUN_FILE, json.dumps({**about, "rows": len(joined) + lacking}, indent=1))


def _about(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / RUN_FILE).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError("join", str(folder), f"a folder of results ({error})") from error


def _add(joined: dict[str, Row], scenes: dict[str, int], folder: Path, out: Path) -> None:
    """Add a folder's rows, with the scene numbers of ``scenes``, which has them by the key of the baseline."""
    rows = RowStore(folder).latest()
    baselines = {row["scene"]: row for row in rows if row["variant"] == BASELINE.name}
    for row in rows:
        baseline = baselines.get(row["scene"])
        if baseline is None:
            raise SettingsError("join", str(folder), f"results with all baselines ({_named(row)} has none)")
        number = scenes.setdefault(baseline["key"], len(scenes))
        row = {**row, "scene": number}
        if row.get("image"):
            row["image"] = Path(os.path.relpath(folder / row["image"], out)).as_posix()
        known = joined.setdefault(row["key"], row)
        if known is row:
            continue
        if row["variant"] != BASELINE.name:
            raise SettingsError("join", str(folder), f"other jobs ({_named(row)} is in two folders)")
        if not _equal_images(out, known, row):
            raise SettingsError("join", str(folder), f"the same baseline images ({_named(row)} differs)")


def _equal_images(out: Path, one: Row, other: Row) -> bool:
    if not (one.get("image") and other.get("image")):
        return True  # a failed row has none
    first, second = (load_png(Path(os.path.normpath(out / row["image"]))) for row in (one, other))  # "out/.." may miss
    return np.array_equal(first, second)


def _named(row: Row) -> str:
    return f"{row['variant']!r} of {row['prompt']!r}, seed {row['seed']}"
