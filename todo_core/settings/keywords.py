"""Settings as keywords of a function: how they combine with an object or a preset, and what ``help`` shows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ..errors import SettingsError, unknown_name
from .declaration import SETTINGS, Settings

Function = TypeVar("Function", bound=Callable[..., Any])


def combine(settings: Settings | None, preset: str | None, changes: Mapping[str, Any]) -> Settings:
    """``settings``, a built-in preset or the defaults, with ``changes``. Raises SettingsError."""
    if settings is not None and not isinstance(settings, Settings):
        by_name = f"preset={settings!r}" if isinstance(settings, str) else "settings by name, as in end=0.8"
        raise SettingsError("settings", settings, f"a Settings object, or {by_name}")
    if settings is not None and preset is not None:
        raise SettingsError("preset", preset, "either settings or a preset, not both")
    for name in changes:
        if name not in SETTINGS:
            raise unknown_name(name, changes[name], ("preset", *SETTINGS))
    return replace(settings or (Settings() if preset is None else Settings.preset(preset)), **changes)


def show_settings(function: Function) -> Function:
    """Put every setting into the signature of ``function``, in place of its ``**overrides``, and into its docstring."""
    signature = inspect.signature(function, eval_str=True)
    first = list(signature.parameters.values())[:-1]
    keywords = inspect.signature(Settings).parameters.values()
    function.__signature__ = signature.replace(parameters=[*first, *keywords])  # type: ignore[attr-defined]
    listed = (f"{name} (default {each.default!r}): {each.label}. {each.help}" for name, each in SETTINGS.items())
    function.__doc__ = "\n    ".join([f"{(function.__doc__ or '').rstrip()}\n\n    The settings:\n", *listed])
    return function
