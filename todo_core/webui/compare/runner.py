"""Compare: makes the same seeds as a baseline and with each chosen preset, and measures time and difference."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from modules import processing, shared

from .. import compat
from ..generation import request
from ..generation.pass_timer import TIMER, StepTimer
from ..panel.error_text import PanelError
from ..presets import Presets
from .output import assemble
from .request import FROM_PANEL, CompareRequest
from .table import BASELINE_NAME, ComparisonTable, Variant

log = logging.getLogger("todo_core")

WARM_UP_STEPS = 2


def run(p: Any, chosen: CompareRequest, presets: Presets, *, title: str) -> Any:
    """Make all variants of ``p``; returns the WebUI's Processed, grid first. Raises an error if all variants fail."""
    processing.fix_seed(p)
    if compat.downsampling_is_on(p):
        p.comment(f"{compat.DOWNSAMPLING} is on: ToDo compare switches it off")
    chosen = _without_equals(p, chosen, presets)
    variants: dict[str, Variant] = {}
    failure: Exception | None = None
    for name in _rounds(p, chosen, shared.state):
        own_p = _prepared(p, name)
        if name not in variants:
            variants[name] = Variant(name, own_p)
            failure = _make(variants[name]) or failure
        elif not variants[name].trouble:
            _repeat(variants[name], own_p)
    if chosen.plain_steps:
        _add_plain_steps(p, variants, shared.state)
    made = [variant for variant in variants.values() if variant.images or variant.trouble]
    if any(variant.images for variant in made):
        return assemble(p, made, ComparisonTable.of(made), title=title, heat_maps=chosen.heat_maps)
    if failure:
        raise failure
    return _without_images(p, "ToDo compare was interrupted before the first image.")


def refused(p: Any, error: PanelError) -> Any:
    """A Processed without images that tells why."""
    return _without_images(p, f"ToDo compare: {error}")


def _without_images(p: Any, comment: str) -> Any:
    p.comment(comment)
    processed = processing.Processed(p, [], p.seed, "")
    compat.add_to_info(processed)
    return processed


def _without_equals(p: Any, chosen: CompareRequest, presets: Presets) -> CompareRequest:
    """The request without presets that equal an earlier one; a comment names them."""
    first_with: dict[Any, str] = {}
    for name in chosen.names:
        first = first_with.setdefault(name if name == FROM_PANEL else presets.get(name), name)
        if first != name:
            p.comment(f"ToDo compare: {name} equals {first}, and runs once.")
    return replace(chosen, names=tuple(first_with.values()))


def _rounds(p: Any, chosen: CompareRequest, state: Any) -> Iterator[str]:
    """Warm up, then yield the name of each variant in turn, round after round, until the user stops."""
    names = (BASELINE_NAME, *chosen.names)
    state.job_count = 1 + len(names) * p.n_iter * chosen.repeats
    state.textinfo = "ToDo compare: warming up"
    _warm_up(p)
    for number, name in itertools.product(range(1, chosen.repeats + 1), names):
        if state.interrupted or state.stopping_generation:
            break
        state.textinfo = f"ToDo compare: {name} (round {number} of {chosen.repeats})"
        yield name
    state.textinfo = None


def _warm_up(p: Any) -> None:
    """Run two baseline steps of each pass and discard them: the first run of a process is slower than later ones."""
    warm = _copy(p)
    warm.steps, warm.n_iter = WARM_UP_STEPS, 1
    warm.do_not_save_samples = True
    if getattr(warm, "enable_hr", False):
        warm.hr_second_pass_steps = WARM_UP_STEPS
    request.override(warm, "enabled", False)
    try:
        processing.process_images(warm)
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


def _add_plain_steps(p: Any, variants: dict[str, Variant], state: Any) -> None:
    """Make the baseline with fewer steps, for each variant that reduces: as many as take its time."""
    for row in ComparisonTable.of([*variants.values()]).rows:
        variant = variants[row.name]
        if not (variant.reduced and row.ratio) or state.interrupted or state.stopping_generation:
            continue
        own_p = _prepared(p, BASELINE_NAME)
        variant.plain = _with_fewer_steps(own_p, variant.reduced, row.ratio)
        if variant.plain and variant.plain not in variants:
            state.textinfo = f"ToDo compare: {variant.plain}"
            variants[variant.plain] = Variant(variant.plain, own_p)
            _make(variants[variant.plain])


def _with_fewer_steps(p: Any, passes: set[str], times: float) -> str:
    """Give these passes so many times fewer steps; returns them in words, and nothing where none would be left out."""
    is_hires = passes == {"hires"}
    steps = (p.hr_second_pass_steps if is_hires else 0) or p.steps
    fewer = max(1, round(steps / times))
    if is_hires:
        p.hr_second_pass_steps = fewer
    else:
        p.steps = fewer
    return f"{fewer} plain steps" if fewer < steps else ""


def _prepared(p: Any, name: str) -> Any:
    """The processing object of one run of a variant."""
    own_p = _copy(p)
    if name in (BASELINE_NAME, FROM_PANEL):
        request.override(own_p, "enabled", name == FROM_PANEL)
    else:
        request.override(own_p, "preset", name)
    return own_p


def _make(variant: Variant) -> Exception | None:
    """Make the images of a variant; returns the error if it fails."""
    count = variant.p.n_iter * variant.p.batch_size
    processed, timer = _timed(variant.name, variant.p)
    if isinstance(processed, Exception):
        variant.trouble = f"failed: {processed or type(processed).__name__}"
        return processed
    variant.processed, first = processed, processed.index_of_first_image
    variant.images = processed.images[first : first + count]
    variant.infotexts = processed.infotexts[first : first + len(variant.images)]
    variant.pictures = [np.asarray(image.convert("RGB")) for image in variant.images]
    variant.reduced = timer.reduced
    if timer.interrupted or len(variant.images) < count:
        variant.trouble = "cut short"
    variant.seconds.append(timer.seconds)
    return None


def _repeat(variant: Variant, p: Any) -> None:
    """Time a variant once more; its images are those of the first round."""
    p.do_not_save_samples = True
    processed, timer = _timed(variant.name, p)
    if not isinstance(processed, Exception) and not timer.interrupted:
        variant.seconds.append(timer.seconds)


def _timed(name: str, p: Any) -> tuple[Any, StepTimer]:
    """The WebUI's result of a run, or its error; and the times."""
    timer = StepTimer()
    setattr(p, TIMER, timer)
    try:
        return processing.process_images(p), timer
    except Exception as error:
        log.error("ToDo compare: %s: %s", name, error, exc_info=error)
        return error.with_traceback(None), timer  # a traceback would keep the tensors of a run that was out of memory
