"""What is known of a pass before it runs: what the WebUI's sampler answers, over its own schedule.

One whose code draws noise, be it for nothing as Euler's, is asked in the pass alone: here it might be that of an image
that is made meanwhile. It is known by its name.
"""

from __future__ import annotations

import inspect
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

from modules import sd_samplers, shared

from ...course import Course
from ...hosts.ldm_layers import predicts_velocity
from ...samplers import or_none
from .. import compat
from ..generation.asked import course_of_sampler
from .estimate_line import PageRun

# in the names of samplers that add noise, or call the model twice a step: of both, a step's denoised image is held
_HELD = ("euler_a", "sde", "2s_a", "dpm_2", "lcm", "ddpm", "restart", "heun", "dpm_fast", "dpm_ad")


def course_of(page: PageRun, model: Any) -> Course | None:
    """The course of a pass; None for an unknown sampler."""
    if not (aliases := getattr(sd_samplers.find_sampler_config(page.sampler), "aliases", ())):
        return None
    may_add = ["eta_ddim"] * ("ddim" in aliases) + ["s_churn"] * ("k_euler" in aliases)
    holds = any(each in str(aliases) for each in _HELD) or any(getattr(shared.opts, name, 0) for name in may_add)
    # SD.Next's would change the pipeline; where it is not known, it is about that of Karras
    known = None if compat.is_pipeline(model) else or_none(partial(_course, page, model, holds), page)
    noise = [((page.steps - step) / page.steps) ** 2 for step in range(page.steps + 1)]
    return known or Course.of_noise(noise, holds=holds, predicts_v=predicts_velocity(model))


def _course(page: PageRun, model: Any, holds: bool) -> Course:
    """By the sampler's answer, else of Euler's method. A pass that begins with an image has the end of a schedule."""
    sampler, steps = sd_samplers.create_sampler(page.sampler, model), page.of_steps or page.steps
    job = SimpleNamespace(is_hr_pass=False, scheduler=page.scheduler, sampler_noise_scheduler_override=None)
    job.extra_generation_params, job.sd_model = {}, model
    if timed := hasattr(sampler, "get_timesteps"):
        times = sampler.get_timesteps(job, steps)[: page.steps - 1 if page.of_steps else None]
    else:
        times = sampler.get_sigmas(job, steps)[-page.steps - 1 :]
    code = inspect.unwrap(sampler.func).__code__
    if not any("randn" in name or "noise_sampler" in name for name in code.co_names + code.co_varnames):
        given = {"timesteps" if timed else "sigmas": times, "is_img2img": bool(page.of_steps)}
        given = {name: given[name] for name in given.keys() & {*code.co_varnames[: code.co_argcount]}}
        inner, denoiser = compat.around_unet(model), sampler.model_wrap_cfg
        if told := course_of_sampler(sampler.func, denoiser, inner, given, times.device, draws=False):
            return told
    # DDIM makes no call at the least noise
    noise = [math.sqrt(1 / float(model.alphas_cumprod[time]) - 1) for time in reversed(times)] if timed else times
    return Course.of_noise([*map(float, noise)], holds=holds, predicts_v=predicts_velocity(model))
