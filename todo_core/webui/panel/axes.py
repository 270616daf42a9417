"""Axes of the X/Y/Z plot: the preset, on or off, and every setting. Values are checked before the first image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...errors import SettingsError
from ...settings import SETTINGS
from ..generation import request
from ..presets import Presets
from .error_text import page_text

PREFIX = "[ToDo] "


def register(module: Any, presets: Callable[[], Presets]) -> None:
    """Add the axes to the WebUI's ``xyz_grid`` module, once: Reload UI calls this again."""
    present = {option.label for option in module.axis_options}
    for axis in _axes(module.AxisOption, presets):
        if axis.label not in present:
            module.axis_options.append(axis)


def _axes(option: Callable[..., Any], presets: Callable[[], Presets]) -> Iterator[Any]:
    flags = ["True", "False"]
    yield _axis(option, "preset", "Preset", str, lambda name: presets().get(name), lambda: presets().names)
    yield _axis(option, "enabled", request.ENABLED.label, str, request.ENABLED.parse, lambda: flags)
    for name, setting in SETTINGS.items():
        kind = str if setting.kind in ("choice", "flag", "seed") else _Number(float if setting.is_real else int)
        listed = {"choice": list(setting.choices), "flag": flags}.get(setting.kind)
        yield _axis(option, name, setting.label, kind, setting.parse, listed.copy if listed else None)


class _Number:
    """Numbers and "auto". For a type that equals float or int, the WebUI reads ranges such as "0.1-0.5 [3]"."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __eq__(self, other: object) -> bool:
        return other is self._kind

    def __call__(self, value: Any) -> Any:
        return round(value, 8) if isinstance(value, float) else value


def _axis(
    option: Callable[..., Any],
    name: str,
    label: str,
    kind: Callable[[Any], Any],
    parse: Callable[[Any], Any],
    choices: Callable[[], list[str]] | None,
) -> Any:
    def apply(p: Any, value: Any, values: Any) -> None:
        """Set a cell's value on the cell's processing object; the values of other axes stay."""
        request.override(p, name, value, label)

    def confirm(p: Any, values: list[Any]) -> None:
        """Check the values of an axis. The WebUI shows the text of an exception on the page."""
        try:
            for value in values:
                parse(value)
        except SettingsError as error:
            raise ValueError(page_text(error)) from None

    return option(PREFIX + label, kind, apply, confirm=confirm, choices=choices)
