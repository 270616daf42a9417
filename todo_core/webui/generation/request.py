"""What a job asks for: the script's arguments, by position from the panel or by name from the API, as Settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import SettingsError
from ...settings import SETTINGS, Settings

POSITIONS = ("enabled", *SETTINGS)
"""Names of the positional arguments, as the panel lists its controls."""

_OVERRIDES = "todo_overrides"  # attribute of a processing object, where an axis or another script leaves its values

GetPreset = Callable[[str], Settings]


@dataclass(frozen=True)
class Request:
    """Whether to act, and how."""

    enabled: bool
    settings: Settings


OFF = Request(False, Settings(method="none"))


def read(args: Sequence[Any], get_preset: GetPreset, overrides: Mapping[str, Any] | None = None) -> Request:
    """The request in ``args``: one value for each of POSITIONS, or a mapping of names first and anything behind it.

    A mapping need not name everything: it is enabled unless it says otherwise, and settings keep their defaults, or
    those of the "preset" that it names. ``overrides``, a mapping too, goes over either and switches it on.
    Raises SettingsError.
    """
    named = args[0] if args and isinstance(args[0], Mapping) else _by_position(args)
    enabled, settings = True, {}
    for layer in (named, overrides) if overrides else (named,):
        if "preset" in layer:
            settings = get_preset(layer["preset"]).to_dict()
        settings |= {name: value for name, value in layer.items() if name not in ("enabled", "preset")}
        enabled = _flag("enabled", layer.get("enabled", True))
    return Request(True, Settings.parse(settings)) if enabled else OFF


def override(p: Any, name: str, value: Any) -> None:
    """Let ``name`` (a setting, "enabled" or "preset") have this value in the generation of ``p``, and switch it on."""
    setattr(p, _OVERRIDES, {**overrides_of(p), name: value})  # a new one: axes copy p, and what it refers to is shared


def overrides_of(p: Any) -> dict[str, Any]:
    """What ``override`` has left on ``p``."""
    return getattr(p, _OVERRIDES, {})


def _by_position(args: Sequence[Any]) -> dict[str, Any]:
    if len(args) > len(POSITIONS):
        raise SettingsError("args", f"{len(args)} values", f"at most {len(POSITIONS)} values, or one object of names")
    return {"enabled": False, **dict(zip(POSITIONS, args, strict=False))}


def _flag(name: str, value: Any) -> bool:
    flag = {"true": True, "false": False}.get(value.strip().lower(), value) if isinstance(value, str) else value
    if not isinstance(flag, bool):
        raise SettingsError(name, value, "True or False")
    return flag
