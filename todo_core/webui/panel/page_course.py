"""What is known of a pass before it runs: the WebUI's own schedule, and what samplers do by their names.

The sampler's function is asked in the pass alone (`asked`): here it might draw noise from a generation that runs.
"""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace
from typing import Any

from modules import sd_samplers, shared

from ...errors import UnsupportedModelError
from ...samplers import Course
from .. import compat
from .estimate_line import PageRun

log = logging.getLogger("todo_core")

_NOISY = ("euler_a", "euler_ancestral", "sde", "2s_a", "dpm_2_a", "lcm", "ddpm", "restart")  # in names
_SEVERAL = ("heun", "dpm_2", "dpm_fast", "dpm_ad")


def course_of(page: PageRun, model: Any) -> Course | None:
    """The course of a pass of Euler's method over the schedule; None for an unknown sampler."""
    if not (aliases := getattr(sd_samplers.find_sampler_config(page.sampler), "aliases", ())):
        return None
    may_add = ["eta_ddim"] * ("ddim" in aliases) + ["s_churn"] * ("k_euler" in aliases)
    adds_noise = any(each in alias for alias in aliases for each in _NOISY)
    adds_noise = adds_noise or any(getattr(shared.opts, name, 0) for name in may_add)
    calls_twice = any(each in alias for alias in aliases for each in _SEVERAL)
    try:
        noise = _noise_of(page, model)
    except Exception as error:  # whatever a WebUI's sampler wants more: then it is about that of Karras
        log.debug("ToDo does not know the schedule of %s", page, exc_info=error)
        noise = [((page.steps - step) / page.steps) ** 2 for step in range(page.steps + 1)]
    predicts_v = getattr(model, "parameterization", "") == "v"
    return Course.of_noise(noise, adds_noise=adds_noise, calls_twice=calls_twice, predicts_v=predicts_v)


def _noise_of(page: PageRun, model: Any) -> list[float]:
    """Sigma / alpha at each call, and at the end: the last steps of the schedule, if the pass begins with an image."""
    if compat.is_pipeline(model):
        raise UnsupportedModelError(model, "SD.Next would change the pipeline's scheduler")
    sampler, steps = sd_samplers.create_sampler(page.sampler, model), page.of_steps or page.steps
    job = SimpleNamespace(is_hr_pass=False, scheduler=page.scheduler, sampler_noise_scheduler_override=None)
    job.extra_generation_params, job.sd_model = {}, model
    if not hasattr(sampler, "get_timesteps"):
        noise: list[float] = sampler.get_sigmas(job, steps).tolist()
        return noise[-page.steps - 1 :]
    times = sampler.get_timesteps(job, steps).tolist()[: page.steps - 1 if page.of_steps else None]
    ends = [0.0] if page.sampler == "UniPC" else []  # the others make no call at the least noise
    return [math.sqrt(1 / float(model.alphas_cumprod[time]) - 1) for time in reversed(times)] + ends
