"""What is known of a pass before it runs: the WebUI's own schedule, and what samplers do by their names.

The sampler's function is asked in the pass alone (`asked`): here it might draw noise from a generation that runs.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from modules import sd_samplers, shared

from ...course import Course
from ...hosts.ldm_layers import predicts_velocity
from ...samplers import or_none
from .. import compat
from .estimate_line import PageRun

# in the names of samplers that add noise, or call the model twice a step: of both, a step's denoised image is held
_HELD = ("euler_a", "sde", "2s_a", "dpm_2", "lcm", "ddpm", "restart", "heun", "dpm_fast", "dpm_ad")


def course_of(page: PageRun, model: Any) -> Course | None:
    """The course of a pass of Euler's method over the schedule; None for an unknown sampler."""
    if not (aliases := getattr(sd_samplers.find_sampler_config(page.sampler), "aliases", ())):
        return None
    may_add = ["eta_ddim"] * ("ddim" in aliases) + ["s_churn"] * ("k_euler" in aliases)
    holds = any(each in str(aliases) for each in _HELD) or any(getattr(shared.opts, name, 0) for name in may_add)
    # SD.Next's would change the pipeline; where it is not known, it is about that of Karras
    known = None if compat.is_pipeline(model) else or_none(lambda: _noise_of(page, model), page)
    noise = known or [((page.steps - step) / page.steps) ** 2 for step in range(page.steps + 1)]
    return Course.of_noise(noise, holds=holds, predicts_v=predicts_velocity(model))


def _noise_of(page: PageRun, model: Any) -> list[float]:
    """Sigma / alpha at each call, and at the end: the last steps of the schedule, if the pass begins with an image."""
    sampler, steps = sd_samplers.create_sampler(page.sampler, model), page.of_steps or page.steps
    job = SimpleNamespace(is_hr_pass=False, scheduler=page.scheduler, sampler_noise_scheduler_override=None)
    job.extra_generation_params, job.sd_model = {}, model
    if not hasattr(sampler, "get_timesteps"):
        return [*sampler.get_sigmas(job, steps).tolist()[-page.steps - 1 :]]
    times = sampler.get_timesteps(job, steps).tolist()[: page.steps - 1 if page.of_steps else None]
    ends = [0.0] * (page.sampler == "UniPC")  # the others make no call at the least noise
    return [math.sqrt(1 / float(model.alphas_cumprod[time]) - 1) for time in reversed(times)] + ends
