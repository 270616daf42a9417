"""The samplers: diffusers' schedulers with the sigmas of a schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from . import TRAILING
from .schedules import LOW, SIGMAS, align_your_steps, timesteps_of

CLASSES: dict[str, tuple[str, dict[str, Any]]] = {  # with options that make them k-diffusion's, and A1111's UniPC
    "DDIM": ("DDIMScheduler", {"clip_sample": False, "set_alpha_to_one": False}),
    "Euler": ("EulerDiscreteScheduler", {}),
    "Euler a": ("EulerAncestralDiscreteScheduler", {}),
    "Heun": ("HeunDiscreteScheduler", {}),
    "LMS": ("LMSDiscreteScheduler", {}),
    "DPM++ 2M": ("DPMSolverMultistepScheduler", {"lower_order_final": False}),
    "DPM++ 2M SDE": ("DPMSolverMultistepScheduler", {"lower_order_final": False, "algorithm_type": "sde-dpmsolver++"}),
    "DEIS": ("DEISMultistepScheduler", {}),
    "UniPC": ("UniPCMultistepScheduler", {"solver_order": 3, "solver_type": "bh1"}),
}
LEADING = {"timestep_spacing": "leading", "steps_offset": 1}  # the timesteps of A1111's DDIM
ENDS = {"DEIS": LOW, "UniPC": 0.001}
"""Where those end that cannot reach noise 0: DEIS as in diffusers, UniPC as in ComfyUI."""


def make_scheduler(
    sampler: str,
    schedule: str,
    steps: int,
    of: int,
    *,
    prediction: str = "epsilon",
    is_xl: bool = False,
    device: torch.device | str = "cpu",
) -> Any:
    """A scheduler for the last steps of a schedule of so many. ``schedule`` is that of a `Request.resolved`."""
    import diffusers

    name, options = CLASSES[sampler]
    spacing = {"timestep_spacing": "trailing"} if schedule == TRAILING or sampler != "DDIM" else LEADING
    scheduler = getattr(diffusers, name)(
        num_train_timesteps=1000,
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type=prediction,
        **spacing,
        **options,
    )
    scheduler.set_timesteps(of, device=device)
    if schedule == TRAILING or sampler == "DDIM":
        _keep_last(scheduler, steps)
    else:
        made = align_your_steps(of, is_xl) if schedule == "Align Your Steps" else SIGMAS[schedule](of)
        _set_sigmas(scheduler, made[-steps - 1 :])
    if sampler in ENDS and not scheduler.sigmas[-1]:
        scheduler.sigmas[-1] = ENDS[sampler]
    if hasattr(scheduler, "set_begin_index"):  # those that count their steps
        scheduler.set_begin_index(0)
    return scheduler


def _keep_last(scheduler: Any, steps: int) -> None:
    """Keep the last steps that diffusers has set. Of second order, it lists each timestep but the first twice."""
    begin = (scheduler.num_inference_steps - steps) * scheduler.order
    scheduler.timesteps = scheduler.timesteps[begin:]
    if hasattr(scheduler, "sigmas"):
        scheduler.sigmas = scheduler.sigmas[begin:]


def _set_sigmas(scheduler: Any, sigmas: np.ndarray) -> None:
    """Set a step between each two sigmas."""
    timesteps = timesteps_of(sigmas[:-1])
    if sigmas[-1]:  # else the last step of DPM-Solver is of first order
        scheduler.register_to_config(final_sigmas_type="sigma_min")
    if scheduler.order == 2:
        sigmas, timesteps = (np.repeat(each, 2)[1:] for each in (sigmas, timesteps))
    scheduler.sigmas = torch.from_numpy(sigmas).float()
    scheduler.timesteps = torch.from_numpy(timesteps).to(scheduler.timesteps.device, torch.float32)
