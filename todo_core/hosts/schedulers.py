"""What a scheduler of diffusers does with the model's outputs: a copy of it is asked, by its ``step``."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..course import Course, Scale
from ..samplers import StandIn, ask


def course_of_scheduler(
    scheduler: Any, first: int = 0, steps: Sequence[int] | None = None, eta: float | None = None
) -> Course | None:
    """The course of a pass that begins at this index of the scheduler's timesteps; None where it does not tell.

    ``steps`` are those of the timesteps from there on, as many as the pass has.
    """
    times, noise = scheduler.timesteps[first:][: len(steps) if steps else None], _noise_of(scheduler)
    if noise is None or not len(times):
        return None
    units = [0.0] * len(times)  # what a latent of 1 is for the UNet at each call

    def run(model: StandIn, x: Tensor) -> Tensor:
        own = copy.deepcopy(scheduler)
        if hasattr(own, "set_begin_index"):
            own.set_begin_index(first)
        options = _options(own, eta)
        for call, time in enumerate(times):
            units[call] = float(own.scale_model_input(torch.ones(1, 1, 1, 1), time))
            error = model(x, time)
            if call % getattr(own, "order", 1) == 0:
                model.report({"x": x})
            x = own.step(error, time, x, **options)[0]
        return x

    def scales(_: Sequence[float]) -> list[Scale]:
        return [_scale(scheduler, *each) for each in zip(noise[first:], units, strict=False)]

    model = partial(StandIn, scheduler, lambda x, error, *_: error)
    return ask(run, model, scales, torch.device("cpu"), lambda *_: steps or range(len(times)))


def _options(scheduler: Any, eta: float | None) -> dict[str, Any]:
    """The arguments of a step, of those that this scheduler takes."""
    options = {"generator": torch.Generator().manual_seed(0), "eta": eta}
    takes = inspect.signature(scheduler.step).parameters
    return {"return_dict": False} | {name: v for name, v in options.items() if name in takes and v is not None}


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


def _noise_of(scheduler: Any) -> list[float] | None:
    """sigma / alpha at each of a scheduler's timesteps; None if it has another kind of noise, as flow matching has.

    Those without sigmas tell the noise that they were trained with.
    """
    times, sigmas = scheduler.timesteps, getattr(scheduler, "sigmas", None)
    bars: Any = getattr(scheduler, "alphas_cumprod", None)
    if bars is None and not hasattr(scheduler, "precondition_noise"):
        return None
    if sigmas is None or len(sigmas) < len(times):
        sigmas = (1 / bars[times.long().to(bars.device)] - 1).sqrt()
    return [float(sigma) for sigma in sigmas[: len(times)]]
