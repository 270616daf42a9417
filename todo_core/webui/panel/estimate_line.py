"""The line in the panel's header: what the settings would do to a generation of the size on the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ...errors import UnsupportedModelError
from ...hosts import Host, detect
from ...hosts.host import IMAGE_PIXELS
from ...patching.estimate import USUAL_STEPS, Estimate
from ...patching.facts import Pass
from ...patching.plan import Plan
from ...patching.planning import make_plan
from ...patching.what_ran import less_work, nothing_to_reduce
from ...reason import Reason, Why
from ...settings import SETTINGS, Settings
from ...token_grid import TokenGrid

BY_BUTTON = "Hires fix is off. With \N{SPARKLES} "  # the button under an image runs the hires pass alone
PREDICTION = {"predict"}  # settings without effect where nothing can be predicted


class Answer(NamedTuple):
    """The line, and whether something can be predicted on this page; also as long as that is not known."""

    line: str
    can_predict: bool = True
    changes: bool = False  # by itself: a checkpoint is still being loaded


class PageRun(NamedTuple):
    """A pass in which ToDo acts: the size of its image in pixels, its steps and sampler. Only several have names.

    One that begins with an image runs the last ``steps`` of so many, ``of_steps``. ``alternates`` is whether its prompt
    has "[a|b]", and so changes in each step.
    """

    name: str
    width: int
    height: int
    steps: int
    sampler: str
    alternates: bool
    controlnet: bool
    scheduler: str
    of_steps: int | None = None
    kind: str = "first"  # "hr" or "img2img"

    @property
    def latent(self) -> TokenGrid:
        """Its size in latent pixels."""
        return TokenGrid(max(1, self.height // IMAGE_PIXELS), max(1, self.width // IMAGE_PIXELS))


def estimate_line(
    page: str,
    settings: Settings,
    model: Any,
    known: Callable[[PageRun], tuple[Pass, Why | None]],
    *,
    is_img2img: bool,
) -> Answer:
    """``page`` is JSON from todo.js: the WebUI's fields. ``settings`` are those of the panel.

    ``known`` tells the facts of a pass, and what else acts in it.
    """
    passes = _passes(settings, json.loads(page or "{}"), is_img2img=is_img2img)
    if isinstance(passes, Reason):
        return Answer(f"Nothing to reduce: {passes}.")
    if not passes:
        return Answer("Estimate: once the size is known.")
    if model is None:
        return Answer("Estimate: once the checkpoint is loaded.", changes=True)
    try:
        host = detect(model)
    except UnsupportedModelError as error:
        return Answer(f"ToDo cannot reduce {error.model_name}: {error.reason}.")
    told = [(each, *known(each)) for each in passes]
    text = "; ".join(_estimate(page, make_plan(settings, host, facts), host, note) for page, facts, note in told)
    choices: tuple[Any, ...] = SETTINGS["predict"].choices
    parts = [replace(settings, predict=part) for part in choices]
    can_predict = any(make_plan(part, host, facts).predicts for _, facts, _ in told for part in parts)
    return Answer(text.replace(".; ", ". "), can_predict)  # why a pass is not reduced is a sentence


def _passes(settings: Settings, fields: Any, *, is_img2img: bool) -> list[PageRun] | Reason:
    """The passes in which ToDo acts, or why in none; an empty list while the page has no size."""
    if settings.method == "none":
        return Reason.METHOD_NONE
    if not fields.get("width") or not fields.get("height"):
        return []
    width, height = int(fields["width"]), int(fields["height"])
    steps = int(fields.get("steps") or USUAL_STEPS)
    page = PageRun(
        "", width, height, steps, fields.get("sampler", ""), fields.get("alternates"),
        fields.get("controlnet"), fields.get("scheduler"),
    )  # fmt: skip
    if is_img2img:  # of its steps, those of the denoising strength run
        ran = min(steps, int(steps * fields.get("denoising", 1)) + 1)
        return [page._replace(steps=ran, of_steps=steps, kind="img2img")]
    passes = [page._replace(name="First pass ")] if settings.includes("first") else []
    by_button = fields.get("upscale_button") and not fields.get("hires") and not passes
    if settings.includes("hires") and (fields.get("hires") or by_button):
        name = BY_BUTTON if by_button else "Hires pass " if passes else ""
        passes.append(_hires(page, fields)._replace(name=name))
    return passes or Reason.HIRES_OFF


def _hires(page: PageRun, fields: Any) -> PageRun:
    """The hires pass: all its steps run, and are the last ones of a longer schedule."""
    steps, (width, height) = int(fields.get("hires_steps") or page.steps), _hires_size(page.width, page.height, fields)
    return page._replace(
        width=width,
        height=height,
        steps=steps,
        of_steps=int(steps / min(fields.get("hires_denoising") or 1, 0.999)),
        sampler=fields.get("hires_sampler") or page.sampler,
        scheduler=fields.get("hires_scheduler") or page.scheduler,
        alternates=fields.get("hires_alternates"),
        kind="hr",
    )


def _hires_size(width: int, height: int, fields: Any) -> tuple[int, int]:
    """The WebUI's rule: a scale, or a width, a height or both; a side that is 0 follows the other side."""
    to_x, to_y = int(fields.get("resize_x") or 0), int(fields.get("resize_y") or 0)
    if not to_x and not to_y:
        scale = fields.get("scale") or 1
        return int(width * scale), int(height * scale)
    return to_x or to_y * width // height, to_y or to_x * height // width


def _estimate(page: PageRun, plan: Plan, host: Host, note: Why | None) -> str:
    if not plan.reduces:
        text = f"{nothing_to_reduce(plan)}."
        return text[0].upper() + text[1:]
    text = f"{page.name}{page.width} x {page.height}: {_summary(Estimate.of(host, plan))}"
    notes = "; ".join(map(str, filter(None, (plan.note, note))))
    return f"{text} ({notes})" if notes else text


def _summary(estimate: Estimate) -> str:
    """The steps that are predicted, those with fewer tokens, and the work that both save: one line of the header."""
    plan, parts, of_all = estimate.plan, list[str](), f" of {estimate.steps} steps"
    about = "about " if estimate.is_usual else ""
    if plan.predicts and not any(estimate.predicted.values()):
        about = ""
        parts.append("hardly a step predicted")
    if whole := len(estimate.predicted["whole"]):
        parts.append(f"{whole}{of_all} predicted")
    if deep := len(estimate.predicted["deep"]):
        parts.append(f"{deep}{' partly' if whole else f'{of_all} partly predicted'}")
    if tokens := _fewer_tokens(estimate, is_short=bool(whole or deep)):
        parts.append(tokens)
    return about + ", ".join([*parts, str(less_work(estimate.saved))])


def _fewer_tokens(estimate: Estimate, *, is_short: bool) -> str:
    """The factor of each level, and in how many of the steps that run it is reduced; empty where none is."""
    plan, steps, whole = estimate.plan, estimate.steps, estimate.predicted["whole"]
    levels = [level for level in plan.levels if level.reduces] or [level for level in plan.after if level.reduces]
    if not levels:
        return ""
    acting = sum(bool(plan.at(step / steps)) for step in range(steps) if step not in whole)
    if is_short:
        return f"{acting} reduced"
    times = " and ".join(dict.fromkeys(_times(level.grid.tokens / level.keys) for level in levels))
    where = "" if levels[0].level == 1 else " at level 2"
    return f"{times} fewer tokens{where} in {f'all {steps}' if acting == steps else f'{acting} of {steps}'} steps"


def _times(factor: float) -> str:
    """A factor in words, to two digits: 1.7x, 8.9x, 16x."""
    return f"{round(factor, 1 if factor < 10 else 0):g}x"
