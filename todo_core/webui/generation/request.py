"""Reads the script's arguments as Settings: by position from the panel, or by name from the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import SettingsError, unknown_name
from ...settings import SETTINGS, Setting, Settings

ENABLED = Setting("Enabled", name="enabled", type=bool)
POSITIONS = ("enabled", *SETTINGS)
"""Names of the positional arguments, as the panel lists its controls."""

NAMES = ("enabled", "preset", *SETTINGS)
"""Names in an object of names."""

# attributes of a processing object
_OVERRIDES = "todo_overrides"  # values from an axis or another script
_CELL = "todo_cell"  # the values of the axes as text

GetPreset = Callable[[str], Settings]


def settings_of(
    args: Sequence[Any], get_preset: GetPreset, overrides: Mapping[str, Any] | None = None
) -> Settings | None:
    """The settings in ``args``: one value for each of POSITIONS, or a mapping of names. None where ToDo is off.

    What follows a mapping is ignored. It is enabled unless it sets "enabled" to False. Settings that it does not name
    have their defaults, or the values of its "preset". ``overrides`` is a mapping too; it has priority over ``args``
    and enables ToDo. Raises SettingsError.
    """
    values = args[0] if has_names(args) else _by_position(args)
    enabled, settings = True, {}
    for layer in (values, overrides) if overrides else (values,):
        if unknown := [name for name in layer if name not in NAMES]:
            raise unknown_name(unknown[0], layer[unknown[0]], NAMES)
        if "preset" in layer:
            settings = get_preset(layer["preset"]).to_dict()
        settings |= {name: value for name, value in layer.items() if name not in ("enabled", "preset")}
        enabled = ENABLED.parse(layer.get("enabled", True))
    return Settings.parse(settings) if enabled else None


def has_names(args: Sequence[Any]) -> bool:
    """Whether ``args`` are a mapping of names, as only the API sends it."""
    return bool(args) and isinstance(args[0], Mapping)


def override(p: Any, name: str, value: Any, label: str = "") -> None:
    """Set ``name`` (a setting, "enabled" or "preset") for the generation of ``p``, and enable ToDo in it.

    In a cell of an X/Y/Z plot, the comments name the value by ``label``.
    """
    setattr(p, _OVERRIDES, {**overrides_of(p), name: value})  # a new dict: the copies of p that axes make share it
    if label:
        setattr(p, _CELL, {**getattr(p, _CELL, {}), label: value})


def cell_of(p: Any) -> str:
    """The values with a label that ``override`` has set: "Factor, level 1 = 2; End = 0.5". Empty outside of a plot."""
    return "; ".join(f"{label} = {value}" for label, value in getattr(p, _CELL, {}).items())


def overrides_of(p: Any) -> dict[str, Any]:
    """The values that ``override`` has set."""
    return getattr(p, _OVERRIDES, {})


def _by_position(args: Sequence[Any]) -> dict[str, Any]:
    if len(args) > len(POSITIONS):
        raise SettingsError("args", f"{len(args)} values", f"at most {len(POSITIONS)} values, or one object of names")
    return {"enabled": False, **dict(zip(POSITIONS, args, strict=False))}
