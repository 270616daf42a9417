"""What a job asks for: the script's arguments, by position from the panel or by name from the API, as Settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SettingsError
from ..settings import SETTINGS, Settings

POSITIONS = ("enabled", *SETTINGS)
"""Names of the positional arguments, as the panel lists its controls."""


@dataclass(frozen=True)
class Request:
    """Whether to act, and how."""

    enabled: bool
    settings: Settings


OFF = Request(False, Settings(method="none"))


def read(args: Sequence[Any]) -> Request:
    """The request in ``args``: one value for each of POSITIONS, or a mapping of names first and anything behind it.

    A mapping need not name everything: it is enabled unless it says otherwise, and settings keep their defaults.
    Raises SettingsError.
    """
    named = dict(args[0]) if args and isinstance(args[0], Mapping) else _by_position(args)
    enabled = named.pop("enabled", True)
    if isinstance(enabled, str):
        enabled = {"true": True, "false": False}.get(enabled.strip().lower(), enabled)
    if not isinstance(enabled, bool):
        raise SettingsError("enabled", enabled, "True or False")
    return Request(True, Settings.parse(named)) if enabled else OFF


def _by_position(args: Sequence[Any]) -> dict[str, Any]:
    if len(args) > len(POSITIONS):
        raise SettingsError("args", f"{len(args)} values", f"at most {len(POSITIONS)} values, or one object of names")
    return {"enabled": False, **dict(zip(POSITIONS, args, strict=False))}
