"""One generation: follows the host's events, and lets a session act in the passes and steps that were asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ...hosts import detect
from ...patching.record import Record
from ...patching.session import Session
from ...patching.token_grid import TokenGrid
from ...settings import SETTINGS, Settings
from .. import compat
from ..panel import options
from . import infotext, neighbours, status
from .pass_timer import watch_of
from .request import Request

log = logging.getLogger("todo_core")


class SampledPass:
    """One pass of one batch.

    Hooks are on the model only while the denoiser runs a step. They are put on when the host says that the step
    begins, after any swap of the model, and taken off by a hook on the sampler's own denoiser, which torch calls
    after an interrupt or an exception too. The denoiser, and that hook with it, ends with the pass.
    """

    def __init__(self, name: str, settings: Settings, p: Any, latent: TokenGrid, model: Callable[[], Any]) -> None:
        self.name, self.record = name, Record()
        self.steps = self.tried = 0
        self.error: Exception | None = None
        self._settings, self._p, self._latent, self._model = settings, p, latent, model
        self._session: Session | None = None
        p.sampler.model_wrap_cfg.register_forward_hook(self._after_step, always_call=True)

    def begin_step(self, params: Any) -> None:
        """The denoiser is about to call the UNet."""
        if self.error:
            return
        try:
            self.steps = max(1, int(params.denoiser.total_steps))
            self._session = self._session_of_this_model()
            self._session.begin_step(int(params.denoiser.step), self.steps, compat.row_seeds(params))
            if self._session.acts_in_step():
                self._session.attach()
                self.tried += 1
        except Exception as error:
            self._fail(error)

    def status(self) -> str:
        """What happened, in one line."""
        if self.error:
            return status.nothing(self.error, where=f" in the {self.name} pass")
        plan = self._session.plan if self._session else None
        return status.line(f"{self.name} pass", self.record, plan, self.steps, self.tried)

    def _session_of_this_model(self) -> Session:
        """The session, made anew where the refiner or the hires checkpoint has put another UNet in place."""
        model = self._model()
        if self._session and self._session.host.unet is compat.unet_of(model):
            return self._session
        host = detect(compat.supported(model))
        return Session(host, self._settings, size=self._latent, record=self.record, on_error=self._fail)

    def _after_step(self, *_: Any) -> None:
        if self._session:
            self._session.remove()
        params, is_img2img = self._p.extra_generation_params, self.name == "img2img"
        try:
            infotext.write(params, self._settings, self.record, is_img2img=is_img2img)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Nothing of ours may cost the user the image: leave the rest of the pass alone, and say why."""
        self.error = error
        if self._session:
            self._session.remove()
        log.error("ToDo: %s", error, exc_info=error)


class Job:
    """The state of one generation; lives as long as its processing object ``p``."""

    def __init__(self, p: Any, request: Request, model: Callable[[], Any]) -> None:
        """``model`` returns the host's model of the moment."""
        self._p, self._request, self._model = p, request, model
        self._watch = watch_of(p)
        self.begin_batch()

    def begin_batch(self) -> None:
        """A new batch of images: nothing has run yet."""
        infotext.clear(self._p.extra_generation_params)
        self._passes: list[SampledPass] = []
        self._running: SampledPass | None = None
        self._beside: list[str] = []

    def begin_pass(self, x: Any) -> None:
        """The host is about to sample; ``x`` is the latent, (b, c, h, w)."""
        name, self._running = compat.pass_of(self._p), None
        if self._watch:
            self._watch.begin_pass(name, self._p.sampler.model_wrap_cfg)
        if self._request.enabled and self._wants(name) and not self._stands_aside(name):
            latent = TokenGrid.of(x.shape)
            self._running = SampledPass(name, self._request.settings, self._p, latent, self._model)
            self._passes.append(self._running)

    def begin_step(self, params: Any) -> None:
        """The denoiser is about to call the UNet."""
        if self._watch:
            self._watch.begin_step(params)
        if self._running:
            self._running.begin_step(params)

    def end_batch(self) -> None:
        """The images are sampled: tell the user what was done to them."""
        self._running = None
        if self._watch:
            self._watch.reduced |= {done.name for done in self._passes if done.record.ran_in}
        if self._request.enabled:
            lines = [*self._beside, *(done.status() for done in self._passes)] or [status.nothing(self._why_no_pass())]
            for text in lines:
                self._p.comment(text)
                log.info(text)
        self._passes = []

    def _stands_aside(self, name: str) -> bool:
        """Whether the user wants nothing of ours in this pass beside what the host itself does there."""
        beside = " and ".join(neighbours.in_pass(self._p, name))
        if not beside:
            return False
        aside = options.value("todo_beside_merging") == "stand aside"
        self._beside.append(status.stood_aside(name, beside) if aside else status.beside(name, beside))
        return aside

    def _wants(self, name: str) -> bool:
        settings = self._request.settings
        if settings.method == "none":
            return False
        return settings.img2img if name == "img2img" else settings.passes in (name, "all")

    def _why_no_pass(self) -> str:
        settings = self._request.settings
        if settings.method == "none":
            return "the method is none"
        if compat.pass_of(self._p) == "img2img":
            return f'"{SETTINGS["img2img"].label}" is off'
        if settings.passes == "hires":
            return "hires fix is off" if not self._p.enable_hr else "the hires pass did not run"
        return "the first pass did not run"
