"""The rows on disk: one JSON object a line, safe once written. A kill costs at most the row that was in the making."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from todo_core.errors import SettingsError

from ...sampling.infotext import PNG_KEY
from .jobs import Job
from .measurement import Result, Row

log = logging.getLogger(__name__)
ABOUT = "run.json"
ROWS = "rows.jsonl"


class Journal:
    """A folder of results. Opening it drops a last line that a kill cut short."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._path = folder, folder / ROWS
        self.rows = _whole_rows(self._path)

    @classmethod
    def begin(cls, folder: Path, jobs: Sequence[Job], about: dict[str, Any], *, resume: bool) -> Journal:
        """A new folder, or one to go on with: then its rows must be among these jobs, which may have become more.

        ``about`` is what the report says of the run. Raises SettingsError for results that are there already, and
        for those of other jobs.
        """
        path = folder / ABOUT
        if path.exists():
            _must_fit(folder, json.loads(path.read_text("utf-8")), about, resume)
        journal = cls(folder)
        journal._must_be_among(jobs)
        folder.joinpath("images").mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({**about, "rows": len(jobs)}, indent=1))
        return journal

    def done(self, *, failed: bool = True) -> set[str]:
        """Keys of the jobs that have a row; those whose row is an error only if ``failed``."""
        return {row["key"] for row in self.rows if failed or not row["error"]}

    def add(self, result: Result) -> None:
        """Write the image, then the row: a row on disk has its image."""
        if result.image is not None:
            save_png(self.folder / result.row["image"], result.image, result.infotext)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result.row, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(result.row)

    def latest(self) -> list[Row]:
        """One row a job: the last one, where a failed job was tried again."""
        return list({row["key"]: row for row in self.rows}.values())

    def picture(self, row: Row) -> np.ndarray:
        """The image of a row, uint8 (h, w, 3)."""
        return load_png(self.folder / row["image"])

    def _must_be_among(self, jobs: Sequence[Job]) -> None:
        asked = {job.key: job.scene.number for job in jobs}
        strange = [row for row in self.rows if asked.get(row["key"]) != row["scene"]]
        if strange:
            row = strange[0]
            told = f"{row['variant']!r} of {row['prompt']!r} is there, and not asked for at that place"
            raise SettingsError("resume", str(self.folder), f"results that are all among the jobs ({told})")


def save_png(path: Path, image: np.ndarray, infotext: str) -> None:
    """Write a PNG whose text chunk says how it was made."""
    from PIL import Image, PngImagePlugin

    info = PngImagePlugin.PngInfo()
    info.add_text(PNG_KEY, infotext)
    draft = path.with_suffix(".part")
    with draft.open("wb") as file:
        Image.fromarray(image).save(file, format="png", pnginfo=info)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def load_png(path: Path) -> np.ndarray:
    """uint8 (h, w, 3)."""
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def write_whole(path: Path, text: str) -> None:
    """Put a file in place at once, so that no kill leaves half of it."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, "utf-8")
    os.replace(draft, path)


def _must_fit(folder: Path, there: dict[str, Any], about: dict[str, Any], resume: bool) -> None:
    if not resume:
        raise SettingsError("out", str(folder), "a folder without results; --resume goes on with those")
    other = [name for name in ("runs", "model") if there.get(name) != about.get(name)]
    if other:
        told = ", ".join(f"{name} {there.get(name)} there, {about.get(name)} asked for" for name in other)
        raise SettingsError("resume", str(folder), f"the results of such a run ({told})")


def _whole_rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        log.warning("%s ends in a row that was cut short; that row is made again", path)
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return [json.loads(line) for line in whole.splitlines()]
