"""One generation: follows the WebUI's events and reduces the passes that were asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ...errors import UnsupportedModelError
from ...hosts import detect
from ...patching.driver import failed
from ...patching.what_ran import Ran
from ...reason import Because, Reason
from ...settings import Settings
from ...token_grid import TokenGrid
from .. import compat
from . import infotext
from .comments import tell
from .denoiser_driver import DenoiserDriver
from .pass_timer import TIMER, StepTimer
from .pipeline_calls import PipelineCalls, PipelineDriver
from .request import cell_of

log = logging.getLogger("todo_core")


class Generation:
    """The state of one generation; lives as long as its processing object ``p``."""

    def __init__(self, p: Any, settings: Settings | None, model: Callable[[], Any]) -> None:
        """``model`` returns the WebUI's current model. Without settings ToDo is off."""
        self.p, self._settings, self._model = p, settings, model
        self._timer: StepTimer | None = getattr(p, TIMER, None)
        self._asked_at = compat.time_of_request()
        self._calls: PipelineCalls | None = None
        self.begin_batch()

    def begin_batch(self) -> None:
        """A new batch of images: nothing has run yet."""
        self._passes: list[DenoiserDriver] = []
        self._current: DenoiserDriver | None = None
        self._name = ""  # of the pass that was announced last, with its sampler
        self._sampler: Any = None
        self._merging: list[Because] = []  # lines about the WebUI's token merging
        self._has_steps = self._is_sampled = False

    @property
    def is_decoding(self) -> bool:
        """Whether other scripts of the same request have the finished samples and may run generations of their own."""
        return self._is_sampled and self._asked_at == compat.time_of_request()

    def begin_sampling(self) -> None:
        """A batch is about to be sampled.

        The WebUI now keeps the infotext for its button that restores the last generation.
        """
        self.close()
        if self._settings and compat.has_pipelines(self.p):
            self._begin_pipeline()
        elif self._settings:
            infotext.write(self.p.extra_generation_params, self._settings.to_infotext, compat.is_img2img(self.p))

    def _begin_pipeline(self) -> None:
        """The calls of a diffusers pipeline's UNet tell the passes and steps."""
        try:
            self._calls = PipelineCalls(self.p, detect(self._model()).unet, self.begin_pass)
        except UnsupportedModelError as error:
            self._merging.append(failed("the generation", error))

    def begin_pass(self, p: Any, x: Any) -> DenoiserDriver | None:
        """The WebUI is about to sample for ``p``; ``x`` is the latent, (b, c, h, w). Returns the pass to reduce.

        Forge says so twice before a hires pass, a pipeline in each call of the UNet.
        """
        name = compat.pass_of(p)
        if p.sampler is self._sampler and name == self._name:
            return self._current
        self._end_pass()
        self._name, self._sampler = name, self.p.sampler  # Tiled Diffusion has one sampler for all passes
        if self._timer:
            self._timer.begin_pass(name, self.p.sampler.model_wrap_cfg)
        settings = self._settings
        if settings and settings.method != "none" and (name == "img2img" or settings.includes(name)):
            self._note_merging(settings, name)
            latent = TokenGrid.of(x.shape)
            kind = PipelineDriver if self._calls else DenoiserDriver
            self._current = kind(name, settings, self.p, latent, self._model)
            self._passes.append(self._current)
        return self._current

    def begin_step(self, params: Any) -> None:
        """The denoiser is about to call the UNet."""
        self._has_steps = True
        if self._timer:
            self._timer.begin_step(params)
        if self._current:
            self._current.attempt(self._current.begin, params)

    def end_sampling(self) -> None:
        """The sampler has returned, perhaps because of an interrupt."""
        if self._timer:
            self._timer.end_pass()
        self._end_pass()
        self._is_sampled = True

    def close(self) -> None:
        """Take everything off. A pipeline gets no other event after an interrupt or an error."""
        self._end_pass()
        if self._calls:
            self._calls.close()
        self._calls = None

    def _end_pass(self) -> None:
        if self._current:
            self._current.close()
            if self._timer and self._current.record.acted:
                self._timer.reduced.add(self._name)
        self._current = None
        if not self._name:  # from the first pass on, the infotext tells what has been reduced, and nothing has been yet
            infotext.clear(self.p.extra_generation_params)

    def end_batch(self) -> None:
        """The batch is decoded: tell the user what was reduced."""
        self.close()
        if self._settings:
            lines = [*self._merging, *(sampled.line() for sampled in self._passes)]
            cell = cell_of(self.p)
            for line in lines or [Ran.NO_PASS(self._why_no_pass(self._settings))]:
                tell(self.p, line, cell)
                log.info(str(line))
        self._passes = []

    def _note_merging(self, settings: Settings, pass_name: str) -> None:
        """Note that the WebUI's token merging is on, where it keeps ToDo from its layers.

        With a patcher, keys and values can be reduced in a layer whose queries are merged.
        """
        ratio = compat.merging_ratio(self.p, pass_name)
        if ratio and not (settings.target == "keys/values" and compat.has_patcher(self._model())):
            self._merging.append(Reason.MERGING(ratio))

    def _why_no_pass(self, settings: Settings) -> Reason:
        if settings.method == "none":
            return Reason.METHOD_NONE
        if self._has_steps and not self._name:
            return Reason.BY_SCRIPT
        if compat.pass_of(self.p) == "img2img":
            return Reason.NO_PASS
        if settings.passes == "hires":
            return Reason.NO_HIRES if self.p.enable_hr else Reason.HIRES_OFF
        return Reason.NO_FIRST
