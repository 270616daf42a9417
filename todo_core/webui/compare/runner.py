"""Compare: makes the same seeds as a baseline and with each chosen preset, and measures time and difference."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
from modules import processing, shared

from ...errors import SettingsError
from .. import compat
from ..generation import request
from ..generation.pass_timer import TIMER, StepTimer
from ..panel.error_text import page_text
from ..presets import Presets
from .output import assemble
from .request import FROM_PANEL, CompareRequest
from .table import BASELINE_NAME, ComparisonTable, Variant, baseline_of, speeds

log = logging.getLogger("todo_core")

WARM_UP_STEPS = 2


def run(p: Any, chosen: CompareRequest, presets: Presets, *, title: str) -> Any:
    """Make all variants of ``p``; returns the WebUI's Processed, grid first. Raises an error if all variants fail."""
    processing.fix_seed(p)
    if compat.downsampling_is_on(p):
        p.comment(f"{compat.DOWNSAMPLING} is on: ToDo compare switches it off")
    variants: dict[str, Variant] = {}
    failures = [_run(variants, name, _prepared(p, name)) for name in _rounds(p, chosen, shared.state)]
    if chosen.plain_steps:
        _add_plain_steps(p, variants, chosen.repeats, shared.state)
    made = [variant for variant in variants.values() if variant.images or variant.trouble]
    if any(variant.images for variant in made):
        return assemble(p, made, ComparisonTable.of(made), title=title, heat_maps=chosen.heat_maps)
    if failed := [*filter(None, failures)]:
        raise failed[-1]
    return _without_images(p, "ToDo compare was interrupted before the first image.")


def refused(p: Any, error: SettingsError) -> Any:
    """A Processed without images that tells why."""
    return _without_images(p, f"ToDo compare: {page_text(error)}")


def _without_images(p: Any, comment: str) -> Any:
    p.comment(comment)
    processed = processing.Processed(p, [], p.seed, "")
    compat.add_to_info(processed)
    return processed


def _rounds(p: Any, chosen: CompareRequest, state: Any) -> Iterator[str]:
    """Warm up, then yield the name of each variant in turn, round after round, until the user stops."""
    names = (BASELINE_NAME, *chosen.names)
    state.job_count = len(names) * (1 + p.n_iter * chosen.repeats)
    state.textinfo = "ToDo compare: warming up"
    for name in names:
        if not (state.interrupted or state.stopping_generation):
            _warm_up(_prepared(p, name))
    for number, name in itertools.product(range(1, chosen.repeats + 1), names):
        if state.interrupted or state.stopping_generation:
            break
        state.textinfo = f"ToDo compare: {name} (round {number} of {chosen.repeats})"
        yield name
    state.textinfo = None


def _warm_up(p: Any) -> None:
    """Run two steps of each pass of a variant and discard them: the first run of a process is slower than later ones.

    So are the first hooks and the first kernels of a preset.
    """
    p.steps, p.n_iter = WARM_UP_STEPS, 1
    p.do_not_save_samples = True
    if getattr(p, "enable_hr", False):
        p.hr_second_pass_steps = WARM_UP_STEPS
    try:
        processing.process_images(p)
    except Exception as error:  # for example a sampler that needs more steps; the real runs report other errors
        log.warning("ToDo compare: no warm-up: %s", error)


def _copy(p: Any) -> Any:
    """A processing object for one run, so that the WebUI and scripts do not write into the other runs."""
    own_p = copy(p)
    own_p.styles = list(p.styles or [])
    own_p.comments, own_p.extra_generation_params = {}, dict(p.extra_generation_params)
    own_p.do_not_save_grid = True
    # without this, masks would come between the images
    own_p.override_settings = {**p.override_settings, "return_mask": False, "return_mask_composite": False}
    compat.disable_downsampling(own_p)
    return own_p


def _add_plain_steps(p: Any, variants: dict[str, Variant], repeats: int, state: Any) -> None:
    """Make the baseline with fewer steps, for each variant that reduces: as many as take its time."""
    baseline, plain = baseline_of([*variants.values()]), dict[str, Any]()
    for variant in variants.values():
        own_p = _prepared(p, BASELINE_NAME)
        variant.plain = _with_fewer_steps(own_p, speeds(variant, baseline))
        plain |= {variant.plain: own_p} if variant.plain else {}
    for name, own_p in [*plain.items()] * repeats:
        if state.interrupted or state.stopping_generation:
            break
        state.textinfo = f"ToDo compare: {name}"
        _run(variants, name, _copy(own_p))


def _with_fewer_steps(p: Any, times: dict[str, float]) -> str:
    """Give each of these passes so many times fewer steps; returns them in words, "" where none is left out.

    A hires pass without steps of its own would follow the first pass: it gets a number.
    """
    names = ("img2img" if "img2img" in times else "first", "hires")
    steps = [p.steps, p.hr_second_pass_steps or p.steps] if getattr(p, "enable_hr", False) else [p.steps]
    fewer = [max(1, round(count / max(1, times.get(name, 1)))) for name, count in zip(names, steps, strict=False)]
    if fewer == steps:
        return ""
    p.steps = fewer[0]
    if len(fewer) > 1:
        p.hr_second_pass_steps = fewer[1]
    return f"{' + '.join(map(str, fewer if fewer[0] < steps[0] else fewer[1:]))} plain steps"


def _prepared(p: Any, name: str) -> Any:
    """The processing object of one run of a variant."""
    own_p = _copy(p)
    if name in (BASELINE_NAME, FROM_PANEL):
        request.override(own_p, "enabled", name == FROM_PANEL)
    else:
        request.override(own_p, "preset", name)
    return own_p


def _run(variants: dict[str, Variant], name: str, p: Any) -> Exception | None:
    """The first run of a variant makes its images, later ones time it again. Returns the error if the first fails."""
    variant = variants.setdefault(name, Variant(name, p))
    if variant.trouble:
        return None
    is_first = variant.p is p
    if not is_first:
        p.do_not_save_samples = True
    processed, timer = _timed(name, p)
    if isinstance(processed, Exception) and not is_first:
        return None
    if isinstance(processed, Exception):
        variant.trouble = f"failed: {processed or type(processed).__name__}"
        return processed
    if is_first:
        _keep(variant, processed, timer)
    elif not timer.interrupted:
        variant.seconds.append(timer.seconds)
    return None


def _keep(variant: Variant, processed: Any, timer: StepTimer) -> None:
    """Keep the images of a variant, what was reduced in them, and their times."""
    count, first = variant.p.n_iter * variant.p.batch_size, processed.index_of_first_image
    variant.processed, variant.reduced = processed, timer.reduced
    variant.images = processed.images[first : first + count]
    variant.infotexts = processed.infotexts[first : first + len(variant.images)]
    variant.pictures = [np.asarray(image.convert("RGB")) for image in variant.images]
    variant.seconds.append(timer.seconds)
    if timer.interrupted or len(variant.images) < count:
        variant.trouble = "cut short"


def _timed(name: str, p: Any) -> tuple[Any, StepTimer]:
    """The WebUI's result of a run, or its error; and the times."""
    timer = StepTimer()
    setattr(p, TIMER, timer)
    try:
        return processing.process_images(p), timer
    except Exception as error:
        log.error("ToDo compare: %s: %s", name, error, exc_info=error)
        return error.with_traceback(None), timer  # a traceback would keep the tensors of a run that was out of memory
