"""One generation: follows the WebUI's events and reduces the passes that were asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ...patching.token_grid import TokenGrid
from ...settings import SETTINGS
from .. import compat
from ..panel import options
from . import infotext, other_reducers, status
from .pass_timer import timer_of
from .request import Request
from .sampled_pass import SampledPass

log = logging.getLogger("todo_core")


class Job:
    """The state of one generation; lives as long as its processing object ``p``."""

    def __init__(self, p: Any, request: Request, model: Callable[[], Any]) -> None:
        """``model`` returns the WebUI's current model."""
        self._p, self._request, self._model = p, request, model
        self._timer = timer_of(p)
        self.begin_batch()

    def begin_batch(self) -> None:
        """A new batch of images: nothing has run yet."""
        infotext.clear(self._p.extra_generation_params)
        self._passes: list[SampledPass] = []
        self._current: SampledPass | None = None
        self._sampler: Any = None
        self._conflicts: list[str] = []

    def begin_pass(self, x: Any) -> None:
        """The WebUI is about to sample; ``x`` is the latent, (b, c, h, w). Forge says so twice before a hires pass."""
        if self._p.sampler is self._sampler:
            return
        self._sampler = self._p.sampler
        name, self._current = compat.pass_of(self._p), None
        if self._timer:
            self._timer.begin_pass(name, self._p.sampler.model_wrap_cfg)
        if self._request.enabled and self._includes(name) and not self._leaves_to_others(name):
            latent = TokenGrid.of(x.shape)
            self._current = SampledPass(name, self._request.settings, self._p, latent, self._model)
            self._passes.append(self._current)

    def begin_step(self, params: Any) -> None:
        """The denoiser is about to call the UNet."""
        if self._timer:
            self._timer.begin_step(params)
        if self._current:
            self._current.begin_step(params)

    def end_sampling(self) -> None:
        """The sampler has returned, perhaps because of an interrupt."""
        if self._timer:
            self._timer.check_interrupt()
        for sampled in self._passes:
            sampled.end()
        self._current = None

    def end_batch(self) -> None:
        """The batch is decoded: tell the user what was reduced."""
        self._current = None
        if self._timer:
            self._timer.reduced |= {sampled.name for sampled in self._passes if sampled.record.ran_in}
        if self._request.enabled:
            lines = [*self._conflicts, *(sampled.status() for sampled in self._passes)]
            for line in lines or [status.no_pass(self._why_no_pass())]:
                self._p.comment(line)
                log.info(line)
        self._passes = []

    def _leaves_to_others(self, pass_name: str) -> bool:
        """Whether the user leaves this pass to the WebUI's token merging or HyperTile. Notes any of them."""
        others = other_reducers.active_in_pass(self._p, pass_name)
        skips_pass = bool(others) and options.value("todo_merging_conflict") == "skip the pass"
        for other in others:
            if other.merges and not skips_pass and self._works_with_merging():
                continue
            line = status.skips_pass(other.name, pass_name) if skips_pass else status.skips_layers(other)
            self._conflicts.append(line)
        return skips_pass

    def _works_with_merging(self) -> bool:
        return self._request.settings.target == "keys/values" and compat.merging_composes(self._model())

    def _includes(self, pass_name: str) -> bool:
        settings = self._request.settings
        if settings.method == "none":
            return False
        return settings.img2img if pass_name == "img2img" else settings.passes in (pass_name, "all")

    def _why_no_pass(self) -> str:
        settings = self._request.settings
        if settings.method == "none":
            return "the method is none"
        if compat.pass_of(self._p) == "img2img":
            return f'"{SETTINGS["img2img"].label}" is off'
        if settings.passes == "hires":
            return "hires fix is off" if not self._p.enable_hr else "the hires pass did not run"
        return "the first pass did not run"
