"""Axes of the X/Y/Z plot: the preset, on or off, and every setting; each checked before the first image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...settings import SETTINGS
from ...settings.declaration import Setting
from ...settings.presets import Presets
from ..generation import request

PREFIX = "[ToDo] "


def register(module: Any, presets: Callable[[], Presets]) -> None:
    """Add the axes to the host's ``xyz_grid`` module; those already there stay alone (Reload UI comes here again)."""
    present = {option.label for option in module.axis_options}
    for axis in _axes(module.AxisOption, presets):
        if axis.label not in present:
            module.axis_options.append(axis)


def _axes(option: Callable[..., Any], presets: Callable[[], Presets]) -> list[Any]:
    flag = SETTINGS["img2img"]
    return [
        option(PREFIX + "Preset", str, _apply("preset"), confirm=_known(presets), choices=lambda: presets().names),
        option(PREFIX + "Enabled", str, _apply("enabled"), confirm=_checked(flag), choices=lambda: ["True", "False"]),
        *(_axis(option, setting) for setting in SETTINGS.values()),
    ]


def _axis(option: Callable[..., Any], setting: Setting) -> Any:
    # the host reads ranges such as "0.1-0.5 [3]" for float and int only
    kind = {"number": float, "integer": int}.get(setting.kind, str)
    extra: dict[str, Any] = {}
    if setting.kind == "choice":
        extra["choices"] = lambda: list(setting.choices)
    if setting.kind == "flag":
        extra["choices"] = lambda: ["True", "False"]
    return option(PREFIX + setting.label, kind, _apply(setting.name), confirm=_checked(setting), **extra)


def _apply(name: str) -> Callable[[Any, Any, Any], None]:
    """Put a cell's value on its processing object, beside those of the other axes."""

    def apply(p: Any, value: Any, values: Any) -> None:
        request.override(p, name, value)

    return apply


def _checked(setting: Setting) -> Callable[[Any, list[Any]], None]:
    def confirm(p: Any, values: list[Any]) -> None:
        for value in values:
            setting.parse(value)

    return confirm


def _known(presets: Callable[[], Presets]) -> Callable[[Any, list[Any]], None]:
    def confirm(p: Any, values: list[Any]) -> None:
        for value in values:
            presets().get(value)

    return confirm
