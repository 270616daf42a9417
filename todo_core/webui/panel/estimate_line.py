"""The line in the panel's header: what the settings would do to a generation of the size on the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...errors import SettingsError, UnsupportedModelError
from ...estimate import USUAL_STEPS, Estimate
from ...hosts import Host, detect
from ...hosts.host import IMAGE_PIXELS
from ...patching.plan import Pass, make_plan
from ...settings import Settings
from ...token_grid import TokenGrid
from .error_text import page_text

BY_BUTTON = "Hires fix is off. With \N{SPARKLES} "  # the button under an image runs the hires pass alone
NOT_LOADED = "Estimate: once the checkpoint is loaded."


class PagePass(NamedTuple):
    """A pass in which ToDo acts: the size of its image in pixels, its steps and sampler. Only several have names."""

    name: str
    width: int
    height: int
    steps: int
    sampler: str


class _NoPass(Exception):
    """Why ToDo acts in no pass."""


def estimate_line(
    page: str, values: Mapping[str, Any], model: Any, why_not_whole: Callable[[str], str], *, is_img2img: bool
) -> str:
    """One line. ``page`` is JSON from todo.js: the WebUI's fields. ``values`` are those of the panel.

    ``why_not_whole`` tells for a sampler's name why whole steps cannot be predicted; it is empty where they can.
    """
    try:
        settings, fields = Settings.parse(values), json.loads(page or "{}")
        passes = _passes(settings, fields, is_img2img=is_img2img)
    except SettingsError as error:
        return page_text(error)
    except _NoPass as reason:
        return f"Nothing to reduce: {reason}."
    if not passes:
        return "Estimate: once the size is known."
    if model is None:
        return NOT_LOADED
    try:
        host = detect(model)
    except UnsupportedModelError as error:
        return f"ToDo cannot reduce {error.model_name}: {error.reason}."
    text = "; ".join(_estimate(each, settings, host, why_not_whole(each.sampler)) for each in passes)
    return text.replace(".; ", ". ")  # why a pass is not reduced is a sentence


def _passes(settings: Settings, fields: Mapping[str, Any], *, is_img2img: bool) -> list[PagePass]:
    """The passes in which ToDo acts; none while the page has no size."""
    if settings.method == "none":
        raise _NoPass("the method is none")
    if not fields.get("width") or not fields.get("height"):
        return []
    width, height = int(fields["width"]), int(fields["height"])
    steps, sampler = int(fields.get("steps") or USUAL_STEPS), fields.get("sampler", "")
    if is_img2img:  # of its steps, those of the denoising strength run
        steps = min(steps, int(steps * fields.get("denoising", 1)) + 1)
        return [PagePass("", width, height, steps, sampler)]
    passes = [PagePass("First pass ", width, height, steps, sampler)] if settings.includes("first") else []
    by_button = fields.get("upscale_button") and not fields.get("hires") and not passes
    if settings.includes("hires") and (fields.get("hires") or by_button):
        name = BY_BUTTON if by_button else "Hires pass " if passes else ""
        steps = int(fields.get("hires_steps") or steps)
        sampler = fields.get("hires_sampler") or sampler
        passes.append(PagePass(name, *_hires_size(width, height, fields), steps, sampler))
    if not passes:
        raise _NoPass("hires fix is off")
    return passes


def _hires_size(width: int, height: int, fields: Mapping[str, Any]) -> tuple[int, int]:
    """The WebUI's rule: a scale, or a width, a height or both; a side that is 0 follows the other side."""
    to_x, to_y = int(fields.get("resize_x") or 0), int(fields.get("resize_y") or 0)
    if not to_x and not to_y:
        scale = fields.get("scale") or 1
        return int(width * scale), int(height * scale)
    return to_x or to_y * width // height, to_y or to_x * height // width


def _estimate(page: PagePass, settings: Settings, host: Host, why_not_whole: str) -> str:
    latent = TokenGrid(max(1, page.height // IMAGE_PIXELS), max(1, page.width // IMAGE_PIXELS))
    plan = make_plan(settings, host, Pass(latent, page.steps, why_not_whole))
    if not plan.reduces:
        return plan.nothing_to_reduce[0].upper() + plan.nothing_to_reduce[1:]
    text = f"{page.name}{page.width} x {page.height}: {Estimate.of(host, plan)}"
    return f"{text} ({plan.deep.note})" if plan.deep.note else text
