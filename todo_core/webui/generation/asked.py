"""What the WebUI's running sampler does with the model's outputs: its own function is asked (`samplers`)."""

from __future__ import annotations

import inspect
import io
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ...course import Course, Scale, scale_of
from ...hosts.ldm_layers import predicts_velocity
from ...hosts.stack import variable
from ...samplers import StandIn, ask

# packages whose samplers keep nothing between two runs; one of an extension may, and is not asked
_OWN = ("k_diffusion", "modules", "modules_forge", "backend", "ldm_patched")


def course_of(params: Any, inner: Any) -> Course | None:
    """The course of the running pass; None where its sampler does not tell. ``inner`` is the model around the UNet.

    The function that calls the sampler has its arguments: its own it may have changed by now.
    """
    function, given = getattr(getattr(params.denoiser, "sampler", None), "func", None), variable("extra_params_kwargs")
    device = params.x.device if params.x.device.type == "cuda" else torch.device("cpu")
    with _own_noise():
        return course_of_sampler(function, params.denoiser, inner, given or {}, device)


def course_of_sampler(
    function: Any, denoiser: Any, inner: Any, given: Mapping[str, Any], device: torch.device, *, draws: bool = True
) -> Course | None:
    """The course of this sampler's function with the arguments ``given``. Where it ``draws`` no noise: as in `ask`."""
    if not callable(function) or function.__module__.partition(".")[0] not in _OWN:
        return None
    timed = "timesteps" in inspect.signature(function).parameters
    own: Any = getattr(inner, "predictor", None) or getattr(inner, "model_sampling", None)  # of the Forge family
    by_sigma = partial(Scale.of, predicts_v=predicts_velocity(inner)) if own is None else scale_of(own)
    # where such a sampler reads it: the Forge family's ``inner`` has none
    scale = _by_timestep(inner, denoiser.inner_model.inner_model.alphas_cumprod) if timed else by_sigma

    def reply(x: Tensor, error: Tensor, time: float, _: Any) -> Tensor:
        of = scale(time)
        return error * (of.error / of.noise) if timed else x + of.error * error

    def run(model: StandIn, x: Tensor) -> Tensor:
        own_noise = {"noise_sampler": lambda *_: torch.randn_like(x)} if "noise_sampler" in given else {}
        options = {**given, **own_noise}  # in place of that of these images' seeds
        last: Tensor = function(model, x, extra_args={}, callback=model.report, disable=True, **options)
        return last

    model = partial(_Denoiser, denoiser, reply)
    with redirect_stderr(io.StringIO()):  # UniPC shows a progress bar, whatever it is told
        return ask(run, model, lambda times: [*map(scale, times)], device, draws=draws)


@contextmanager
def _own_noise() -> Iterator[None]:
    """Lets k-diffusion draw noise by torch in this block, and none of the images' own, which the WebUI gives it."""
    drawing: Any = sys.modules.get("k_diffusion.sampling")
    before = getattr(drawing, "torch", None)
    if drawing:
        drawing.torch = torch
    try:
        yield
    finally:
        if drawing:
            drawing.torch = before


class _Denoiser(StandIn):
    """CFG++ reads the noise that the negative prompt predicts from the denoiser."""

    last_noise_uncond: Tensor

    def __call__(self, x: Tensor, time: Any, *args: Any, **kwargs: Any) -> Tensor:
        self.last_noise_uncond = super().__call__(x, time, *args, **kwargs)
        return self.last_noise_uncond


def _by_timestep(inner: Any, bars: Any) -> Callable[[float], Scale]:
    """What a timestep means, of samplers whose latent is alpha image + sigma noise; ``bars`` are their alpha^2."""

    @cache
    def scale(time: float) -> Scale:
        bar = float(bars[round(time)])
        noise = math.sqrt(1 / bar - 1) if bar else math.inf
        return Scale.of(noise, predicts_v=predicts_velocity(inner), latent=math.hypot(1, noise))

    return scale
