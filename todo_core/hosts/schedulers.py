"""What a scheduler of diffusers does with the model's outputs: a copy of it is asked, by its ``step``."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..samplers import Course, Scale, course_of, or_none, own_noise


def course_of_scheduler(
    scheduler: Any, first: int = 0, steps: Sequence[int] | None = None, eta: float | None = None
) -> Course | None:
    """The course of a pass that begins at this index of the scheduler's timesteps; None where it does not tell.

    ``steps`` are those of the timesteps from there on, as many as the pass has.
    """
    times = scheduler.timesteps.tolist()[first:][: len(steps) if steps is not None else None]
    noise = scheduler_noise(scheduler, scheduler.timesteps)
    if noise is None or not times:
        return None

    def run() -> list[tuple[torch.Tensor, list[float]]]:
        return [_run(copy.deepcopy(scheduler), first, len(times), eta, errs=errs) for errs in (True, False)]

    if (told := or_none(run, type(scheduler))) is None:
        return None
    (moved, inputs), (still, _) = told
    scales = [_scale(scheduler, n, unit) for n, unit in zip(noise[first:], inputs, strict=False)]
    begins = sorted({*range(0, len(times), getattr(scheduler, "order", 1)), len(times)})
    response, adds_noise = (moved - still)[begins, 1:], bool(still.abs().max() > 1e-6)
    return course_of(times, scales, response, steps or range(len(times)), begins, adds_noise=adds_noise)


def _run(scheduler: Any, first: int, count: int, eta: float | None, *, errs: bool) -> tuple[torch.Tensor, list[float]]:
    """The latent at each call and at the end, (calls + 1, n), and what a latent of 1 is for the UNet at each call."""
    options: dict[str, Any] = {"return_dict": False}
    takes = inspect.signature(scheduler.step).parameters
    options |= {"generator": torch.Generator().manual_seed(0)} if "generator" in takes else {}
    options |= {"eta": eta} if eta is not None and "eta" in takes else {}
    if hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(first)
    x, one, latents, inputs = torch.zeros(count + 1, 1, 1, 1), torch.ones(1, 1, 1, 1), [], []
    with own_noise():
        for call, time in enumerate(scheduler.timesteps[first : first + count]):
            inputs.append(float(scheduler.scale_model_input(one, time)))
            error = torch.zeros_like(x)
            error[call + 1] = float(errs)
            latents.append(x.flatten().double())
            x = scheduler.step(error, time, x, **options)[0]
    return torch.stack([*latents, x.flatten().double()]), inputs


def _scale(scheduler: Any, noise: float, unit: float) -> Scale:
    """The scale of a call with this noise, in which the UNet gets ``unit`` times the scheduler's latent."""
    if unit < 1 and not hasattr(scheduler, "precondition_noise"):  # KDPM2 lists other sigmas than it calls with
        noise = math.sqrt(1 / unit**2 - 1)
    latent, kind = unit * math.hypot(1, noise), getattr(scheduler.config, "prediction_type", "epsilon")
    if kind == "sample":
        return Scale(noise, -1.0, latent, 0.0)
    scale = Scale.of(noise, predicts_v=kind != "epsilon", latent=latent)
    is_edm = hasattr(scheduler, "precondition_noise")  # it scales its input otherwise
    return replace(scale, kept=math.nan) if is_edm else scale


def scheduler_noise(scheduler: Any, timesteps: Any) -> list[float] | None:
    """sigma / alpha at each of a scheduler's timesteps; None if it does not tell, or has another kind of noise.

    Those without sigmas tell the noise that they were trained with.
    """
    sigmas, bars = getattr(scheduler, "sigmas", None), getattr(scheduler, "alphas_cumprod", None)
    is_flow = bars is None and not hasattr(scheduler, "precondition_noise")
    if timesteps is None or is_flow:
        return None
    if sigmas is not None and len(sigmas) >= len(timesteps):
        return [float(sigma) for sigma in sigmas[: len(timesteps)]]
    if bars is None:
        return None
    found: list[float] = (1 / bars[timesteps.long().to(bars.device)] - 1).sqrt().tolist()
    return found
