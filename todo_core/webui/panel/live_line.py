"""The panel's live line: what the settings would do to a generation of the size that the page shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...errors import SettingsError, UnsupportedModelError
from ...estimate import Estimate, Layout
from ...hosts import detect
from ...patching.plan import make_plan
from ...patching.token_grid import TokenGrid
from ...settings import SETTINGS, Settings

LATENT = 8  # pixels a side of a latent's cell


def line(page: str, values: Mapping[str, Any], model: Any, *, is_img2img: bool) -> str:
    """One line. ``page`` is the JSON that todo.js gathers: the host's fields as numbers; ``values`` the panel's."""
    try:
        settings, fields = Settings.parse(values), _fields(page)
        if settings.method == "none":
            raise _Idle("the method is none")
        sizes = _img2img(settings, fields) if is_img2img else _txt2img(settings, fields)
    except SettingsError as error:
        return str(error)
    except _Idle as reason:
        return f"Nothing will be reduced: {reason}."
    if model is None:
        return "An estimate needs a checkpoint, and none is loaded yet."
    try:
        host = detect(model)
    except UnsupportedModelError as error:
        return f"Nothing will be reduced: {error}."
    layout = Layout.of(host)
    return " | ".join(_estimate(name, width, height, settings, host, layout) for name, width, height in sizes)


class _Idle(Exception):
    """Why nothing will happen."""


def _fields(page: str) -> dict[str, float]:
    fields = json.loads(page or "{}")
    if not fields.get("width") or not fields.get("height"):
        raise _Idle("the size is not known yet")
    return fields


def _txt2img(settings: Settings, fields: Mapping[str, float]) -> list[tuple[str, int, int]]:
    """(pass, width, height) of the passes in which it acts."""
    width, height = int(fields["width"]), int(fields["height"])
    sizes = [("First", width, height)] if settings.passes in ("first", "all") else []
    if fields.get("hires") and settings.passes in ("hires", "all"):
        sizes.append(("Hires", *_hires(width, height, fields)))
    if not sizes:
        raise _Idle("hires fix is off")
    return sizes


def _hires(width: int, height: int, fields: Mapping[str, float]) -> tuple[int, int]:
    """The host's rule: by the scale, or to a width, a height, or both; one side follows the other if it is 0."""
    to_x, to_y = int(fields.get("resize_x") or 0), int(fields.get("resize_y") or 0)
    if not to_x and not to_y:
        scale = fields.get("scale") or 1
        return int(width * scale), int(height * scale)
    return to_x or to_y * width // height, to_y or to_x * height // width


def _img2img(settings: Settings, fields: Mapping[str, float]) -> list[tuple[str, int, int]]:
    if not settings.img2img:
        raise _Idle(f'"{SETTINGS["img2img"].label}" is off')
    return [("img2img", int(fields["width"]), int(fields["height"]))]


def _estimate(name: str, width: int, height: int, settings: Settings, host: Any, layout: Layout) -> str:
    size = TokenGrid(max(1, height // LATENT), max(1, width // LATENT))
    return f"{name} {width} x {height}: {Estimate.of(layout, make_plan(settings, host, size))}"
