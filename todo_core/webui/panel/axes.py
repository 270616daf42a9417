"""Axes of the X/Y/Z plot: the preset, on or off, and every setting. Values are checked before the first image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import SettingsError
from ...settings import SETTINGS
from ...settings.setting import Setting
from ..generation import request
from ..presets import Presets
from .error_text import PanelError

PREFIX = "[ToDo] "


def register(module: Any, presets: Callable[[], Presets]) -> None:
    """Add the axes to the WebUI's ``xyz_grid`` module, once: Reload UI calls this again."""
    present = {option.label for option in module.axis_options}
    for axis in _axes(module.AxisOption, presets):
        if axis.label not in present:
            module.axis_options.append(axis)


def _axes(option: Callable[..., Any], presets: Callable[[], Presets]) -> list[Any]:
    check_preset, check_flag = _confirm(lambda name: presets().get(name)), _confirm(request.parse_enabled)
    return [
        option(PREFIX + "Preset", str, _apply("preset"), confirm=check_preset, choices=lambda: presets().names),
        option(PREFIX + "Enabled", str, _apply("enabled"), confirm=check_flag, choices=lambda: ["True", "False"]),
        *(_axis(option, setting) for setting in SETTINGS.values()),
    ]


def _axis(option: Callable[..., Any], setting: Setting) -> Any:
    # the WebUI reads ranges such as "0.1-0.5 [3]" for float and int only
    kind = {"number": float, "integer": int}.get(setting.kind, str)
    extra: dict[str, Any] = {}
    if setting.kind == "choice":
        extra["choices"] = lambda: list(setting.choices)
    if setting.kind == "flag":
        extra["choices"] = lambda: ["True", "False"]
    return option(PREFIX + setting.label, kind, _apply(setting.name), confirm=_confirm(setting.parse), **extra)


def _apply(name: str) -> Callable[[Any, Any, Any], None]:
    """Set a cell's value on the cell's processing object; the values of other axes stay."""
    label = SETTINGS[name].label if name in SETTINGS else name.capitalize()

    def apply(p: Any, value: Any, values: Any) -> None:
        request.override_in_cell(p, name, value, label)

    return apply


def _confirm(parse: Callable[[Any], Any]) -> Callable[[Any, list[Any]], None]:
    """Check the values of an axis with ``parse``. The WebUI shows the text of an exception on the page."""

    def confirm(p: Any, values: list[Any]) -> None:
        try:
            for value in values:
                parse(value)
        except SettingsError as error:
            raise PanelError(error) from None

    return confirm
