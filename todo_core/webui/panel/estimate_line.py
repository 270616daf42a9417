"""The line in the panel's header: what the settings would do to a generation of the size on the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import SettingsError, UnsupportedModelError
from ...estimate import Estimate, Layout
from ...hosts import Host, detect
from ...hosts.host import IMAGE_PIXELS
from ...patching.plan import make_plan
from ...patching.token_grid import TokenGrid
from ...settings import Settings
from .error_text import page_text

NOT_LOADED = "Estimate: once the checkpoint is loaded."


class PassSize(NamedTuple):
    """A pass in which ToDo acts, and the size of its image in pixels. Only several passes have names."""

    name: str
    width: int
    height: int


class _NoPass(Exception):
    """Why ToDo acts in no pass."""


def estimate_line(page: str, values: Mapping[str, Any], model: Any, *, is_img2img: bool) -> str:
    """One line. ``page`` is JSON from todo.js: the WebUI's fields as numbers. ``values`` are those of the panel."""
    try:
        settings, fields = Settings.parse(values), json.loads(page or "{}")
        sizes = _pass_sizes(settings, fields, is_img2img=is_img2img)
    except SettingsError as error:
        return page_text(error)
    except _NoPass as reason:
        return f"Nothing to reduce: {reason}."
    if not sizes:
        return "Estimate: once the size is known."
    if model is None:
        return NOT_LOADED
    try:
        host = detect(model)
    except UnsupportedModelError as error:
        return f"ToDo cannot reduce {error.model_name}: {error.reason}."
    layout = Layout.of(host)
    text = "; ".join(_estimate(size, settings, host, layout) for size in sizes)
    return text.replace(".; ", ". ")  # why a pass is not reduced is a sentence


def _pass_sizes(settings: Settings, fields: Mapping[str, float], *, is_img2img: bool) -> list[PassSize]:
    """The passes in which ToDo acts; none while the page has no size."""
    if settings.method == "none":
        raise _NoPass("the method is none")
    if not fields.get("width") or not fields.get("height"):
        return []
    width, height = int(fields["width"]), int(fields["height"])
    if is_img2img:
        return [PassSize("", width, height)]
    sizes = [PassSize("First pass ", width, height)] if settings.includes("first") else []
    if fields.get("hires") and settings.includes("hires"):
        sizes.append(PassSize("Hires pass " if sizes else "", *_hires_size(width, height, fields)))
    if not sizes:
        raise _NoPass("hires fix is off")
    return sizes


def _hires_size(width: int, height: int, fields: Mapping[str, float]) -> tuple[int, int]:
    """The WebUI's rule: a scale, or a width, a height or both; a side that is 0 follows the other side."""
    to_x, to_y = int(fields.get("resize_x") or 0), int(fields.get("resize_y") or 0)
    if not to_x and not to_y:
        scale = fields.get("scale") or 1
        return int(width * scale), int(height * scale)
    return to_x or to_y * width // height, to_y or to_x * height // width


def _estimate(size: PassSize, settings: Settings, host: Host, layout: Layout) -> str:
    latent = TokenGrid(max(1, size.height // IMAGE_PIXELS), max(1, size.width // IMAGE_PIXELS))
    plan = make_plan(settings, host, latent)
    if not plan.reduces:
        return plan.nothing_to_reduce[0].upper() + plan.nothing_to_reduce[1:]
    return f"{size.name}{size.width} x {size.height}: {Estimate.of(layout, plan)}"
