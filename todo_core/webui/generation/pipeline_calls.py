"""Passes of a WebUI that samples with diffusers pipelines, as SD.Next does.

No event tells that a pass or a step begins. A hook on the UNet sees each call before it runs: a call for another pass
than the last one begins that pass, and the pipeline's schedule tells the step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from ...hosts import Host
from ...patching.estimate import USUAL_STEPS
from ...patching.facts import Pass
from ...patching.hooks.module_calls import Args, Hook, Kwargs, argument
from ...patching.steps import StepCounter, rows_of, timesteps_of
from .. import compat
from .denoiser_driver import DenoiserDriver

log = logging.getLogger("todo_core")


class PipelineDriver(DenoiserDriver):
    """A pass that is to be reduced. Hooks are on the UNet only while it runs a step between start and end."""

    def begin_in(self, unet: Any, args: Args, kwargs: Kwargs, seeds: list[int]) -> None:
        """The UNet is about to run, with these arguments. Guidance may call it more than once in a step."""
        self.end_step()  # after an error, nobody has done it
        host = self._current_model(partial(self._facts_of_call, args, kwargs))
        number, total = self._step_of(host, args, kwargs)
        self._steps = self._calls = total
        passed_over = range(self._step + 1, number)
        if self.begin_step(number, total, rows_of(seeds, host.sampler.weights() or (None,))):
            self._begun.update(passed_over)
            self._begun_inside.update(passed_over)
            self.begin_call(unet, args, kwargs)  # torch has already listed the hooks that run before this call
            self._step_hook = Hook(self._end_call).after(unet)

    def _facts_of_call(self, args: Args, kwargs: Kwargs, host: Host) -> Pass:
        self._counter = StepCounter(host)
        _, total = self._step_of(host, args, kwargs)
        return Pass(self._latent, total, self._counter.course, self._counter.is_asked, holder="pipeline")

    def _step_of(self, host: Host, args: Args, kwargs: Kwargs) -> tuple[int, int]:
        """The number of the step, from 0, and how many the pass has."""
        timestep = argument(args, kwargs, 1, host.arguments.timestep)
        number, total = self._counter.step_of(lambda: timesteps_of(timestep)[0])
        return number, total or max(number + 1, int(getattr(self._model(), "num_timesteps", 0) or USUAL_STEPS))

    def _end_call(self, *_: Any) -> None:
        """The UNet has run. This hook runs last; after an error none does, and the next call or ``close`` tidies up."""
        if self._step_hook:
            self._step_hook.remove()
        self._end_step()


class PipelineCalls:
    """The UNet calls of one batch. ``begin_pass`` gets the job and the latent of each call.

    It returns the pass that the call belongs to, or None where nothing is to be reduced.
    """

    def __init__(self, p: Any, unet: Any, begin_pass: Callable[[Any, Tensor], DenoiserDriver | None]) -> None:
        self._p, self._begin_pass = p, begin_pass
        self._hook = Hook(self._begin_call, self._fail).before(unet)

    def close(self) -> None:
        """Take the hook off: the batch is sampled."""
        self._hook.remove()

    def _begin_call(self, unet: Any, args: Args, kwargs: Kwargs) -> None:
        job = compat.job_of_pipeline()
        if job is not self._p and not getattr(self._p, "state", ""):  # the state: SD.Next samples an earlier job anew
            return
        sampled = self._begin_pass(job, argument(args, kwargs, 0, "sample"))
        if isinstance(sampled, PipelineDriver):
            sampled.attempt(sampled.begin_in, unet, args, kwargs, list(job.seeds))

    def _fail(self, error: Exception) -> None:
        """Our errors must not cost the user the image."""
        log.error("ToDo stopped", exc_info=error)
        self.close()
