"""Samplers of which whole steps can be predicted: one call a step, and the next latent follows from the last ones.

They are known by the names of their functions in k-diffusion, the WebUIs and ComfyUI, and of diffusers' classes. And
how much of the noise is gone in a pass of any.
"""

from __future__ import annotations

import inspect
import math
from bisect import bisect_left
from functools import cache
from itertools import accumulate
from operator import mul
from typing import Any, Literal

Sampler = Literal["steady", "adds noise", "calls twice", "unknown"]
"""What is known of a sampler: whether whole steps can be predicted, and if not, why."""

WHY_NOT: dict[Sampler, str] = {
    "adds noise": "this sampler adds noise in each step. DPM++ 2M and Euler do not",
    "calls twice": "this sampler calls the model twice a step. DPM++ 2M and Euler do it once",
    "unknown": "this sampler is not known to be without noise. DPM++ 2M and Euler are",
}
_STEADY = {"sample_euler", "sample_dpmpp_2m", "sample_lms", "sample_ipndm", "sample_ipndm_v", "sample_deis"}
_STEADY |= {"ddim", "ddim_cfgpp", "plms", "unipc", "sample_unipc", "sample_unipc_bh2", "sample_res_multistep"}
_STEADY |= {"sample_gradient_estimation", "sample_euler_cfg_pp", "sample_dpmpp_2m_cfg_pp"}
_STEADY |= {"sample_res_multistep_cfg_pp", "sample_gradient_estimation_cfg_pp"}
_SCHEDULERS = {"DDIMScheduler", "DEISMultistepScheduler", "DPMSolverMultistepScheduler", "EulerDiscreteScheduler"}
_SCHEDULERS |= {"LMSDiscreteScheduler", "PNDMScheduler", "UniPCMultistepScheduler"}
_NOISY, _TWICE = ("ancestral", "sde", "lcm", "ddpm", "restart", "seeds", "tcd"), ("heun", "dpm_2", "dpm2")  # in names


def sampler_of(function: Any, *, eta: float | None, churn: float | None) -> Sampler:
    """What is known of a sampler's function. ``eta`` and ``churn`` count only if the function has them."""
    name = getattr(function, "__name__", "")
    found = _by_name(name, name in _STEADY)
    if found != "steady":
        return found
    takes = inspect.signature(function).parameters
    return "adds noise" if (churn and "s_churn" in takes) or (eta and "eta" in takes) else "steady"


def sampler_of_alias(alias: str) -> Sampler:
    """What is known of a sampler, if eta and churn are 0, by its alias in the WebUIs, as "k_euler".

    >>> sampler_of_alias("k_dpmpp_2m"), sampler_of_alias("k_dpmpp_sde"), sampler_of_alias("k_heun")
    ('steady', 'adds noise', 'calls twice')
    """
    return _by_name(alias, not {alias, f"sample_{alias.removeprefix('k_')}"}.isdisjoint(_STEADY))


def sampler_of_scheduler(scheduler: Any) -> Sampler:
    """What is known of a scheduler of diffusers, if eta is 0. DPM-Solver++ may be an SDE."""
    algorithm = str(getattr(getattr(scheduler, "config", None), "algorithm_type", ""))
    name = type(scheduler).__name__
    return "adds noise" if algorithm.startswith("sde") else _by_name(name.lower(), name in _SCHEDULERS)


def _by_name(name: str, is_steady: bool) -> Sampler:
    if is_steady:
        return "steady"
    if any(part in name for part in _NOISY):
        return "adds noise"
    return "calls twice" if any(part in name for part in _TWICE) else "unknown"


def noise_gone(sigma: float) -> float:
    """The share of Stable Diffusion's 1,000 timesteps that have no less noise than this, sigma / alpha."""
    return 1 - bisect_left(_trained_sigmas(), sigma) / 1000


@cache
def _trained_sigmas() -> list[float]:
    """The noise of each timestep: a linear schedule of the square roots of beta."""
    low, high = math.sqrt(0.00085), math.sqrt(0.012)
    kept = (1 - (low + (high - low) * step / 999) ** 2 for step in range(1000))
    return [math.sqrt(1 / bar - 1) for bar in accumulate(kept, mul)]
