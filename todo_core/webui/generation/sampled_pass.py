"""One pass of one batch: tells the driver its model, ControlNets and steps, and writes the infotext of each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...hosts import Handle, Host, detect
from ...patching.driver import Driver
from ...patching.hooks.deep_hooks import why_not_whole_on
from ...patching.level_plan import Reason
from ...patching.plan import Pass
from ...patching.record import Record
from ...samplers import ADDS_NOISE
from ...settings import Settings
from ...token_grid import TokenGrid
from .. import compat
from . import infotext


class SampledPass:
    """A pass that is to be reduced.

    Hooks are on the model only while the denoiser runs a step. They go on in the WebUI's callback for the step, which
    comes after any swap of the model. A hook on the sampler's denoiser takes them off; torch calls that hook after an
    exception too. ``close`` ends the pass: most samplers make a denoiser for each pass, but some serve several.
    """

    def __init__(self, name: str, settings: Settings, p: Any, latent: TokenGrid, model: Callable[[], Any]) -> None:
        self._settings, self._p, self._latent, self._model = settings, p, latent, model
        self._is_img2img = name == "img2img"
        self._steps = self._calls = 0  # as the sampler tells them: Heun makes 7 calls in 4 steps
        self._driver = Driver(f"the {name} pass", settings)
        denoiser = getattr(p.sampler, "model_wrap_cfg", None)  # a diffusers pipeline has none
        self._step_hook: Handle | None = None
        if denoiser is not None:
            self._step_hook = denoiser.register_forward_hook(self._end_step, always_call=True)

    @property
    def record(self) -> Record:
        """What has been reduced."""
        return self._driver.record

    def begin_step(self, params: Any) -> None:
        """The denoiser is about to call the UNet."""
        self._driver.attempt(self._begin_step, params)

    def close(self) -> None:
        """The pass is over: take everything off. An InterruptedException from inside the UNet skips ``_end_step``."""
        self._driver.interrupted = self._driver.interrupted or compat.is_interrupted()
        self._driver.close()
        if self._step_hook:
            self._step_hook.remove()

    def status(self) -> str:
        """What happened, in one line."""
        unit = "steps" if max(self._driver.begun, self._calls) <= self._steps else "model calls"
        return self._driver.status(self._driver.begun, unit)

    def _begin_step(self, params: Any) -> None:
        denoiser = params.denoiser
        self._steps, self._calls = int(denoiser.steps or 0), compat.calls_of(params)
        self._follow_model(params)
        seeds, guidance = compat.row_seeds(params), compat.guidance_of(params)
        self._driver.begin_step(int(denoiser.step), self._calls, seeds, guidance)

    def _why_not_whole(self, params: Any, host: Host) -> Reason | None:
        """Why whole steps of this pass cannot be predicted."""
        return why_not_whole_on(host.unet) if compat.adds_no_noise(params) else ADDS_NOISE

    def _follow_model(self, params: Any) -> Host:
        """The model; told to the driver in the first step, and when a refiner or a hires checkpoint has replaced it."""
        model, host = self._model(), self._driver.host
        if host is None or host.unet is not compat.unet_of(model):
            host = detect(model)
            facts = Pass(self._latent, self._calls, self._why_not_whole(params, host))
            self._driver.follow(host, compat.controlnets_of(self._p), facts)
        return host

    def _end_step(self, *_: Any) -> None:
        self._driver.end_step()
        self._driver.attempt(self._write_infotext)

    def _write_infotext(self) -> None:
        params = self._p.extra_generation_params
        infotext.write(params, self._settings, self._driver, is_img2img=self._is_img2img)
