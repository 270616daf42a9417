"""The rows on disk, one JSON object per line. A kill or a full disk loses at most the current row.

Several folders of rows can be joined into one.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from todo_core.errors import SettingsError

from ...sampling.infotext import load_png
from ..variants import BASELINE
from .jobs import Job
from .measurement import Result, Row

log = logging.getLogger(__name__)
RUN_FILE = "run.json"
ROWS_FILE = "rows.jsonl"
SAME, LISTED = ("model", "runs", "device", "dtype", "machine"), ("versions", "command")  # in folders that are joined


class RowStore:
    """A folder of results. Opening it drops an incomplete last line."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._path = folder, folder / ROWS_FILE
        self.rows = _complete_rows(self._path)

    @classmethod
    def begin(cls, folder: Path, jobs: Sequence[Job], about: dict[str, Any], *, resume: bool) -> RowStore:
        """Open a new folder, or continue one whose rows all belong to these jobs.

        ``about`` describes the run for the report. Raises SettingsError for existing results without ``resume``, and
        for results of other jobs.
        """
        store = cls.check(folder, jobs, about, resume=resume)
        folder.joinpath("images").mkdir(parents=True, exist_ok=True)
        write_atomically(folder / RUN_FILE, json.dumps({**about, "rows": len(jobs)}, indent=1))
        return store

    @classmethod
    def check(cls, folder: Path, jobs: Sequence[Job], about: dict[str, Any], *, resume: bool) -> RowStore:
        """What `begin` would open, with its errors. Makes no folder."""
        path = folder / RUN_FILE
        if path.exists():
            _must_fit(folder, json.loads(path.read_text("utf-8")), about, resume)
        store = cls(folder)
        store._must_be_among(jobs)
        return store

    def done(self, *, failed: bool = True) -> set[str]:
        """Keys of the jobs that have a row. Failed rows count only if ``failed``."""
        return {row["key"] for row in self.rows if failed or not row["error"]}

    def add(self, result: Result) -> None:
        """Write the image, then the row, so that every row has its image. Raises OSError."""
        if result.png is not None:
            write_atomically(self.folder / result.row["image"], result.png)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result.row, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(result.row)

    def latest(self) -> list[Row]:
        """The last row of each job; a retried job has several."""
        return list({row["key"]: row for row in self.rows}.values())

    def load_image(self, row: Row) -> np.ndarray:
        """The image of a row, uint8 (h, w, 3)."""
        return load_png(self.folder / row["image"])[0]

    def _must_be_among(self, jobs: Sequence[Job]) -> None:
        numbers = {job.key: job.scene.number for job in jobs}
        foreign = [row for row in self.rows if numbers.get(row["key"]) != row["scene"]]
        if foreign:
            row = f"{foreign[0]['variant']!r} of {foreign[0]['prompt']!r}"
            allowed = f"a folder whose rows all belong to this run (its row {row} does not)"
            raise SettingsError("resume", str(self.folder), allowed)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file completely or not at all, and wait until the disk has it."""
    draft = path.with_name(path.name + ".part")
    try:
        with draft.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _must_fit(folder: Path, stored: dict[str, Any], about: dict[str, Any], resume: bool) -> None:
    if not resume:
        raise SettingsError("out", str(folder), "a folder without results; --resume continues existing ones")
    if changed := _changes(stored, about, ("runs", "model")):
        raise SettingsError("resume", str(folder), f"results of the same runs and model (there, {changed})")


def _changes(run: dict[str, Any], other: dict[str, Any], names: Sequence[str]) -> str:
    changed = [name for name in names if run.get(name) != other.get(name)]
    return ", ".join(f"{name} is {run.get(name)}, not {other.get(name)}" for name in changed)


def _complete_rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    if len(complete) < len(content):
        log.warning("%s ends with an incomplete row; it is made again", path)
        with path.open("r+b") as file:
            file.truncate(len(complete))
    return [json.loads(line) for line in complete.splitlines()]


def join_results(folders: Sequence[Path], out: Path) -> None:
    """Write the rows of ``folders`` into the new folder ``out``; the images stay where they are.

    A scene that several folders have keeps the baseline row of the first one; its baseline images must be equal. A
    setting may be in one folder only. Baseline steps scale its seconds, as within one run. Raises SettingsError.
    """
    if (out / RUN_FILE).exists() or (out / ROWS_FILE).exists():
        raise SettingsError("out", str(out), "a folder without results")
    runs = [_about(folder) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if changed := _changes(run, runs[0], SAME):
            raise SettingsError("join", str(folder), f"results like those of {folders[0]} ({changed})")
    joined: dict[str, Row] = {}
    scenes: dict[str, int] = {}
    stored = [RowStore(folder).latest() for folder in folders]
    for folder, rows in zip(folders, stored, strict=True):
        _add(joined, scenes, rows, folder, out)
    lacking = sum(run["rows"] - len(rows) for run, rows in zip(runs, stored, strict=True))
    about = {**runs[0], **{n: "; ".join(dict.fromkeys(run[n] for run in runs if n in run)) for n in LISTED}}
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / ROWS_FILE, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in joined.values()))
    write_atomically(out / RUN_FILE, json.dumps({**about, "rows": len(joined) + lacking}, indent=1))


def _about(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / RUN_FILE).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError("join", str(folder), f"a folder of results ({error})") from error


def _add(joined: dict[str, Row], scenes: dict[str, int], rows: Sequence[Row], folder: Path, out: Path) -> None:
    """Add a folder's rows, with the scene numbers of ``scenes``, which has them by the key of the baseline."""
    baselines = {row["scene"]: row["key"] for row in rows if row["variant"] == BASELINE.name}
    for row in rows:
        named = f"{row['variant']!r} of {row['prompt']!r}, seed {row['seed']}"
        if row["scene"] not in baselines:
            raise SettingsError("join", str(folder), f"results with all baselines ({named} has none)")
        row = {**row, "scene": scenes.setdefault(baselines[row["scene"]], len(scenes))}
        if row.get("image"):
            row["image"] = Path(os.path.relpath(folder / row["image"], out)).as_posix()
        known = joined.setdefault(row["key"], row)
        if known is not row and row["variant"] != BASELINE.name:
            raise SettingsError("join", str(folder), f"other jobs ({named} is in two folders)")
        if known is not row and not _equal_images(out, known, row):
            raise SettingsError("join", str(folder), f"the same baseline images ({named} differs)")


def _equal_images(out: Path, *rows: Row) -> bool:
    if not all(row.get("image") for row in rows):
        return True  # a failed row has none
    first, second = (load_png(Path(os.path.normpath(out / row["image"]))) for row in rows)  # "out/.." may be missing
    return np.array_equal(first[0], second[0])
