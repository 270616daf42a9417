"""One pass of one batch: puts a session's hooks on the model for each step, and takes them off again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...errors import UnsupportedModelError
from ...hosts import Handle, Host, detect, find_controlnet
from ...patching.deep_hooks import why_not_whole_on
from ...patching.plan import Pass
from ...patching.record import Record
from ...patching.session import Session
from ...samplers import ADDS_NOISE
from ...settings import Settings
from ...token_grid import TokenGrid
from .. import compat
from . import infotext, status

log = logging.getLogger("todo_core")


class SampledPass:
    """A pass that is to be reduced.

    Hooks are on the model only while the denoiser runs a step. They go on in the WebUI's callback for the step, which
    comes after any swap of the model. A hook on the sampler's denoiser takes them off; torch calls that hook after an
    exception too. ``close`` ends the pass: most samplers make a denoiser for each pass, but some serve several.
    """

    def __init__(self, name: str, settings: Settings, p: Any, latent: TokenGrid, model: Callable[[], Any]) -> None:
        self.name, self.record = name, Record()
        self.calls = self.calls_in_window = self.steps = 0  # of the denoiser; steps are those that the user asked for
        self.expected = 0  # calls, as the sampler says
        self.error: Exception | None = None
        self.interrupted = False
        self._settings, self._p, self._latent, self._model = settings, p, latent, model
        self._sessions: list[Session] = []  # of the UNet, then of its ControlNets
        denoiser = getattr(p.sampler, "model_wrap_cfg", None)  # a diffusers pipeline has none
        self._step_hook: Handle | None = None
        if denoiser is not None:
            self._step_hook = denoiser.register_forward_hook(self._end_step, always_call=True)

    def begin_step(self, params: Any) -> None:
        """The denoiser is about to call the UNet."""
        if self.error:
            return
        try:
            self.calls += 1
            self.steps, self.expected = int(params.denoiser.steps or 0), compat.calls_of(params)
            self._follow_model(params)
            seeds, guidance = compat.row_seeds(params), compat.guidance_of(params)
            for session in self._sessions:
                session.begin_step(int(params.denoiser.step), self.expected, seeds, guidance)
            if self._sessions[0].acts_in_step():
                self.calls_in_window += 1
                for session in self._sessions:
                    session.attach()
        except Exception as error:
            self._fail(error)

    def close(self) -> None:
        """The pass is over: take everything off. An InterruptedException from inside the UNet skips ``_end_step``."""
        self.interrupted = self.interrupted or compat.is_interrupted()
        self._remove()
        if self._step_hook:
            self._step_hook.remove()

    def _remove(self) -> None:
        for session in self._sessions:
            session.remove()

    def status(self) -> str:
        """What happened, in one line."""
        if self.error:
            return status.failed(self.name, self.error)
        plan = self._sessions[0].plan if self._sessions else None
        if self.record.acted:
            # Heun makes 7 calls in 4 steps
            unit = "steps" if max(self.calls, self.expected) <= self.steps else "model calls"
            summary = self.record.summary(self.calls, unit, None if self.interrupted else plan)
            return status.reduced(self.name, f"{summary}; interrupted" if self.interrupted else summary)
        if plan and not plan.reduces:
            return status.nothing_to_reduce(plan)
        if self.interrupted:
            return status.not_reduced(self.name, "it was interrupted")
        return status.not_reduced(self.name, self.record.why_nothing_ran(plan, self.expected, self.calls_in_window))

    def _why_not_whole(self, params: Any, host: Host) -> str:
        """Why whole steps of this pass cannot be predicted; empty where they can."""
        return why_not_whole_on(host.unet) if compat.adds_no_noise(params) else ADDS_NOISE

    def _follow_model(self, params: Any) -> None:
        """New sessions if this is the first step, or a refiner or a hires checkpoint has replaced the UNet."""
        model = self._model()
        if self._sessions and self._sessions[0].host.unet is compat.unet_of(model):
            return
        self._remove()
        host = detect(model)
        found = (find_controlnet(module) for module in compat.controlnets_of(self._p))
        controlnets = (replace(net, trained_side=host.trained_side) for net in found if net)
        facts = Pass(self._latent, self.expected, self._why_not_whole(params, host))
        self._sessions = [
            Session(each, self._settings, facts, record=self.record, on_error=self._fail)
            for each in (host, *controlnets)
        ]

    def _end_step(self, *_: Any) -> None:
        for session in self._sessions:
            session.detach()
        if not self._sessions:
            return
        params, deep, is_img2img = self._p.extra_generation_params, self._sessions[0].plan.deep, self.name == "img2img"
        try:
            infotext.write(params, self._settings, self.record, deep, is_img2img=is_img2img)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Leave the rest of the pass alone and keep the reason: our errors must not cost the user the image."""
        self.error = error
        self._remove()
        is_expected = isinstance(error, UnsupportedModelError)
        log.log(logging.WARNING if is_expected else logging.ERROR, self.status(), exc_info=not is_expected and error)
