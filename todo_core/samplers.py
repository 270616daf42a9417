"""Samplers that add no noise between the steps: only with them are whole steps predicted.

They are known by the names of their functions in k-diffusion, the WebUIs and ComfyUI, and of diffusers' classes.
"""

from __future__ import annotations

import inspect
from typing import Any

ADDS_NOISE = "whole steps need a sampler with one call a step and no noise, such as DPM++ 2M or Euler"
# one call a step, and the next latent follows from the last ones
_WITHOUT_NOISE = {"sample_euler", "sample_dpmpp_2m", "sample_lms", "sample_ipndm", "sample_ipndm_v", "sample_deis"}
_WITHOUT_NOISE |= {"ddim", "plms", "unipc", "sample_unipc", "sample_res_multistep", "sample_gradient_estimation"}
_WITHOUT_NOISE |= {"sample_euler_cfg_pp", "sample_dpmpp_2m_cfg_pp", "sample_res_multistep_cfg_pp"}
_WITHOUT_NOISE |= {"sample_gradient_estimation_cfg_pp", "sample_unipc_bh2"}
_SCHEDULERS = {"DDIMScheduler", "DEISMultistepScheduler", "DPMSolverMultistepScheduler", "EulerDiscreteScheduler"}
_SCHEDULERS |= {"LMSDiscreteScheduler", "PNDMScheduler", "UniPCMultistepScheduler"}


def adds_no_noise(function: Any, *, eta: float | None, churn: float | None) -> bool:
    """Whether a sampler's function is known to add no noise. ``eta`` counts only if the function has it."""
    if getattr(function, "__name__", "") not in _WITHOUT_NOISE:
        return False
    return not churn and not ("eta" in inspect.signature(function).parameters and eta)


def alias_adds_no_noise(alias: str) -> bool:
    """Whether a sampler is known to add no noise if eta and churn are 0; by its alias in the WebUIs, as "k_euler"."""
    return not {alias, f"sample_{alias.removeprefix('k_')}"}.isdisjoint(_WITHOUT_NOISE)


def scheduler_adds_no_noise(scheduler: Any) -> bool:
    """Whether a scheduler of diffusers is known to add no noise if eta is 0. DPM-Solver++ may be an SDE."""
    algorithm = getattr(getattr(scheduler, "config", None), "algorithm_type", "")
    return type(scheduler).__name__ in _SCHEDULERS and not str(algorithm).startswith("sde")
