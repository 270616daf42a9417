"""Named settings: the built-in ones, and those of the user in one JSON file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from ..settings import BUILT_IN, Settings, preset_name
from ..settings.declaration import CUSTOM, find_preset

LONGEST_NAME = 60


class Presets:
    """The built-in presets and those of the user, in the JSON file ``path``: {name: {setting: value}}.

    A file with other content is renamed. One that cannot be opened stays, and nothing is saved. ``trouble`` says so.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._is_closed = path, False
        self.trouble = ""
        self._own = self._load()

    @property
    def names(self) -> list[str]:
        """All names, the built-in ones first."""
        return [*BUILT_IN, *self._own]

    def get(self, name: str) -> Settings:
        """The settings of a preset. Raises SettingsError for an unknown name."""
        return find_preset(name, {**BUILT_IN, **self._own})

    def name_of(self, settings: Settings, chosen: str = "") -> str:
        """The name of ``preset_name``, of all of them."""
        return preset_name(settings, {**BUILT_IN, **self._own}, chosen)

    def save(self, name: str, settings: Settings) -> None:
        """Save under a new name, or replace one of the user's presets."""
        self._store({**self._own, new_name(name): settings})

    def delete(self, name: str) -> None:
        """Delete one of the user's presets. Raises SettingsError if there is none."""
        if name not in self._own:
            allowed = ", ".join(map(repr, self._own)) or "none yet: save one first"
            raise SettingsError("preset", name, f"one of your own ({allowed})")
        self._store({other: settings for other, settings in self._own.items() if other != name})

    def is_own(self, name: str) -> bool:
        """Whether this is one of the user's presets."""
        return name in self._own

    def _store(self, own: dict[str, Settings]) -> None:
        """Write a new file, then replace the old one by it: a crash leaves no incomplete file."""
        if self._is_closed:
            raise OSError(self.trouble)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new_file = self._path.with_suffix(".tmp")
        new_file.write_text(json.dumps({n: s.to_dict() for n, s in own.items()}, indent=1, ensure_ascii=False), "utf-8")
        os.replace(new_file, self._path)
        self._own = own

    def _load(self) -> dict[str, Settings]:
        try:
            return self._read()
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._is_closed, self.trouble = True, f"Your presets could not be opened ({error}). Restart to try again."
            return {}

    def _read(self) -> dict[str, Settings]:
        content = self._path.read_bytes()
        try:
            return _parsed(json.loads(content.decode()))
        except (ValueError, TypeError) as error:  # SettingsError is a ValueError
            renamed = _free_name(self._path.with_suffix(".broken.json"))
            os.replace(self._path, renamed)
            self.trouble = f"Your presets could not be read ({error}). The file is kept as {renamed.name}."
            return {}


def _parsed(content: Any) -> dict[str, Settings]:
    if not isinstance(content, dict):
        raise TypeError(f"expected an object of presets, got {type(content).__name__}")
    for name, values in content.items():
        if not isinstance(values, dict):
            raise TypeError(f"expected the settings of {name!r}, got {type(values).__name__}")
    # a later version may have a built-in preset of a stored one's name
    names = (f"{name} (own)" if name in BUILT_IN else name for name in content)
    return {new_name(name): Settings.parse(values) for name, values in zip(names, content.values(), strict=True)}


def new_name(name: str) -> str:
    """The name that a preset gets, without spaces round it. Raises SettingsError."""
    name = name.strip()
    if not name or name in BUILT_IN or name.lower() == CUSTOM or any(ord(c) < 32 for c in name):
        raise SettingsError("name", name, f"any name but {CUSTOM!r} and the built-in ones")
    if len(name) > LONGEST_NAME or ";" in name:
        raise SettingsError("name", name, f"at most {LONGEST_NAME} characters, without semicolon")
    return name


def _free_name(path: Path) -> Path:
    """``path``, or the first of path-2, path-3 ... that does not exist."""
    tries = (path if n == 1 else path.with_name(f"{path.stem}-{n}{path.suffix}") for n in range(1, 10_000))
    return next(candidate for candidate in tries if not candidate.exists())
