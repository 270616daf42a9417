"""One pass of one batch: the driver that knows the WebUI's model, ControlNets and steps, and writes the infotext."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...hosts import Host, detect
from ...hosts.host import Handle
from ...patching.driver import Driver
from ...patching.facts import Pass
from ...patching.hooks.module_calls import guarded
from ...reason import Because, Reason
from ...settings import Settings
from ...token_grid import TokenGrid
from .. import compat
from . import asked, infotext


class DenoiserDriver(Driver):
    """A pass that is to be reduced.

    Hooks are on the model only while the denoiser runs a step. They go on in the WebUI's callback for the step, which
    comes after any swap of the model. A hook on the sampler's denoiser takes them off; torch calls that hook after an
    exception too. ``close`` ends the pass: most samplers make a denoiser for each pass, but some serve several.
    """

    def __init__(self, name: str, settings: Settings, p: Any, latent: TokenGrid, model: Callable[[], Any]) -> None:
        super().__init__(f"the {name} pass", settings)
        self._p, self._latent, self._model, self._is_img2img = p, latent, model, name == "img2img"
        self._steps = self._calls = 0  # as the sampler tells them: Heun makes 7 calls in 4 steps
        self._step_hook: Handle | None = None
        denoiser = getattr(p.sampler, "model_wrap_cfg", None)  # a diffusers pipeline has none
        if denoiser is not None:
            self._step_hook = denoiser.register_forward_hook(self._end_step, always_call=True)

    def close(self) -> None:
        """The pass is over: take everything off. An InterruptedException from inside the UNet skips ``_end_step``."""
        self.interrupted = self.interrupted or compat.is_interrupted()
        if self.record.begun_anew is Reason.ROWS:
            self.record.begun_anew = compat.why_rows_change(self._p) or Reason.ROWS
        self.remove()
        if self._step_hook:
            self._step_hook.remove()
        self._write_infotext()

    def line(self) -> Because:
        """The line for the user: what ran, or why nothing did."""
        return self.status(self.begun, "steps" if max(self.begun, self._calls) <= self._steps else "model calls")

    def begin(self, params: Any) -> None:
        """The denoiser is about to call the UNet."""
        denoiser = params.denoiser
        self._steps = int(denoiser.steps or 0)
        self._current_model(partial(self._facts, params))
        self._calls = len(self.course.weights) if self.course else int(denoiser.total_steps)
        self.controls = compat.controls_at(params, self._model())
        scale, time = compat.guidance_of(params), float(params.sigma.flatten()[0])
        number = self.number_of(time, int(denoiser.step))
        self.begin_step(number, self._calls, compat.rows_of(params), (scale, 1 - scale), time)

    def _current_model(self, facts: Callable[[Host], Pass]) -> Host:
        """The model; told to the driver in the first step, and when a refiner or a hires checkpoint has replaced it."""
        model, host = self._model(), self.host
        if host is None or host.unet is not compat.unet_of(model):
            host = detect(model)
            self.use_model(host, compat.controlnets_of(self._p), facts(host))
        return host

    def _facts(self, params: Any, _: Host) -> Pass:
        """What the WebUI knows of the pass."""
        course = asked.course_of(params, compat.around_unet(self._model()))
        steps = len(course.weights) if course else int(params.denoiser.total_steps)
        return Pass(self._latent, steps, course, is_asked=True)

    def _end_step(self, *_: Any) -> None:
        self.end_step()
        if self._step + 1 >= self._calls:  # the WebUI may save an image before the next pass
            self._write_infotext()

    def _write_infotext(self) -> None:
        guarded(self.fail, infotext.write, self._p.extra_generation_params, self.as_infotext, self._is_img2img)
