"""Compare: the same seeds unreduced and with each chosen preset, timed and measured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..comparison import UNREDUCED, Comparison, Variant
from ..errors import SettingsError
from ..presets import Presets
from . import compare_output, neighbours, request
from .watch import watch

log = logging.getLogger("todo_core")

PANEL = "the panel's settings"
SEPARATOR = ";"
WARM_UP_STEPS = 2


@dataclass(frozen=True)
class Wish:
    """What the user has chosen in Compare's controls."""

    names: tuple[str, ...]  # presets and PANEL
    img2img: bool = True  # let presets act in img2img too
    heat_maps: bool = True

    @classmethod
    def of(cls, names: Any, img2img: bool, heat_maps: bool, presets: Presets) -> Wish:
        """Check the names, a list or text with semicolons; SettingsError where there is none or an unknown one."""
        listed = names.split(SEPARATOR) if isinstance(names, str) else list(names or ())
        chosen = tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))
        if not chosen:
            raise SettingsError("presets", names, f"at least one of {', '.join([PANEL, *presets.names])}")
        for name in chosen:
            if name != PANEL:
                presets.get(name)
        return cls(chosen, bool(img2img), bool(heat_maps))


@dataclass
class Outcome:
    """One variant and what the host made of it."""

    variant: Variant
    p: Any  # the processing object of this variant alone
    processed: Any = None
    images: list[Any] = field(default_factory=list)  # PIL, without the host's own grid
    infotexts: list[str] = field(default_factory=list)


def run(p: Any, wish: Wish, presets: Presets, *, title: str) -> Any:
    """Make all variants of ``p``; returns the host's Processed with the grid first. Raises what stopped every one."""
    from modules import processing, shared

    processing.fix_seed(p)
    _warn_of_neighbours(p)
    outcomes: list[Outcome] = []
    failure: Exception | None = None
    for outcome in _variants(p, wish, presets, shared.state):
        try:
            _make(outcome, processing.process_images)
        except Exception as error:
            log.error("ToDo compare: %s: %s", outcome.variant.name, error, exc_info=error)
            failure = error.with_traceback(None)  # which would keep the tensors of a run that was out of memory
            outcome.variant.trouble = f"failed: {error or type(error).__name__}"
        if outcome.images or outcome.variant.trouble:
            outcomes.append(outcome)
    if not any(outcome.images for outcome in outcomes):
        if failure:
            raise failure
        return processing.Processed(p, [], p.seed, "")
    comparison = Comparison.of([outcome.variant for outcome in outcomes])
    return compare_output.assemble(p, outcomes, comparison, title=title, heat_maps=wish.heat_maps)


def _variants(p: Any, wish: Wish, presets: Presets, state: Any) -> Iterator[Outcome]:
    """Warm up, then hand out one prepared variant after the other, until the user stops it."""
    names = (UNREDUCED, *wish.names)
    state.job_count = 1 + len(names) * p.n_iter
    state.textinfo = "ToDo compare: warming up"
    _warm_up(p)
    for number, name in enumerate(names, 1):
        if state.interrupted or state.stopping_generation:
            break
        state.textinfo = f"ToDo compare: {name} ({number} of {len(names)})"
        yield _prepared(p, name, wish, presets)
    state.textinfo = None


def _warm_up(p: Any) -> None:
    """Two unreduced steps a pass, thrown away: the first run of a process pays for much that later ones find done."""
    from modules.processing import process_images

    warm = _copy(p)
    warm.steps, warm.n_iter = WARM_UP_STEPS, 1
    warm.do_not_save_samples = True
    if getattr(warm, "enable_hr", False):
        warm.hr_second_pass_steps = WARM_UP_STEPS
    request.override(warm, "enabled", False)
    try:
        process_images(warm)
    except Exception as error:  # a sampler that refuses so few steps, say; the real runs will tell what is wrong
        log.warning("ToDo compare: no warm-up: %s", error)


def _copy(p: Any) -> Any:
    """A processing object for one run: what the host or a script writes into it stays out of the others."""
    own = copy(p)
    own.styles = list(p.styles or [])
    own.comments, own.extra_generation_params = {}, dict(p.extra_generation_params)
    own.do_not_save_grid = True
    # masks between the images would be taken for variants
    own.override_settings = {**p.override_settings, "return_mask": False, "return_mask_composite": False}
    neighbours.silence_downsampling(own)
    return own


def _prepared(p: Any, name: str, wish: Wish, presets: Presets) -> Outcome:
    own = _copy(p)
    settings: dict[str, Any] = {}
    if name in (UNREDUCED, PANEL):
        request.override(own, "enabled", name == PANEL)
    else:
        request.override(own, "preset", name)
        settings = presets.get(name).to_dict()
        if wish.img2img and hasattr(p, "init_images"):
            request.override(own, "img2img", True)
            settings["img2img"] = True
    return Outcome(Variant(name, settings=settings), own)


def _make(outcome: Outcome, process_images: Callable[[Any], Any]) -> None:
    seen, variant = watch(outcome.p), outcome.variant
    processed = outcome.processed = process_images(outcome.p)
    first, count = processed.index_of_first_image, outcome.p.n_iter * outcome.p.batch_size
    outcome.images = processed.images[first : first + count]
    outcome.infotexts = processed.infotexts[first : first + len(outcome.images)]
    variant.pictures = [np.asarray(image.convert("RGB")) for image in outcome.images]
    variant.seconds, variant.reduced = seen.seconds, seen.reduced
    if seen.cut or len(outcome.images) < count:
        variant.trouble = "cut short"


def _warn_of_neighbours(p: Any) -> None:
    if neighbours.downsampling(p):
        p.comment("sd-webui-token-downsampling is switched off in this comparison")


def told(outcomes: Sequence[Outcome]) -> list[str]:
    """What the variants' own comments say, each once, with the names of those that say it."""
    said: dict[str, list[str]] = {}
    for outcome in outcomes:
        for comment in outcome.p.comments:
            said.setdefault(comment, []).append(outcome.variant.name)
    return [f"{', '.join(names)}: {comment}" for comment, names in said.items()]
