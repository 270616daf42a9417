"""The rows on disk, one JSON object per line. A kill or a full disk loses at most the current row."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from todo_core.errors import SettingsError

from .jobs import Job
from .measurement import Result, Row

log = logging.getLogger(__name__)
RUN_FILE = "run.json"
ROWS_FILE = "rows.jsonl"


class RowStore:
    """A folder of results. Opening it drops an incomplete last line."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._path = folder, folder / ROWS_FILE
        self.rows = _complete_rows(self._path)

    @classmethod
    def of(cls, folder: Path, jobs: Sequence[Job], about: dict[str, Any], *, resume: bool) -> RowStore:
        """A new folder, which is not made yet, or one whose rows all belong to these jobs.

        ``about`` describes the run. Raises SettingsError for existing results without ``resume``, and for results of
        other jobs.
        """
        path = folder / RUN_FILE
        if path.exists():
            _must_fit(folder, json.loads(path.read_text("utf-8")), about, resume)
        store, numbers = cls(folder), {job.key: job.scene.number for job in jobs}
        for row in store.rows:
            if numbers.get(row["key"]) != row["scene"]:
                of = f"{row['variant']!r} of {row['prompt']!r}"
                allowed = f"a folder whose rows all belong to this run (its row {of} does not)"
                raise SettingsError("resume", str(folder), allowed)
        return store

    def begin(self, about: dict[str, Any], count: int) -> None:
        """Make the folder, and write down for the report what runs: so many rows."""
        self.folder.joinpath("images").mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / RUN_FILE, json.dumps({**about, "rows": count}, indent=1))

    def done(self) -> dict[str, Row]:
        """The rows without an error, by the keys of their jobs."""
        return {row["key"]: row for row in self.rows if not row["error"]}

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
        """The last row of each job; one that failed and was repeated has several."""
        return list({row["key"]: row for row in self.rows}.values())

    def load_image(self, row: Row) -> np.ndarray:
        """The image of a row, uint8 (h, w, 3)."""
        with Image.open(self.folder / row["image"]) as image:
            return np.asarray(image.convert("RGB"))


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
    changed = [f"{n} is {stored.get(n)}, not {about[n]}" for n in ("runs", "model") if stored.get(n) != about[n]]
    if changed:
        raise SettingsError("resume", str(folder), f"results of the same runs and model (there, {', '.join(changed)})")


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
