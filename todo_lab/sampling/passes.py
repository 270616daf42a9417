"""txt2img with a hires pass: diffusers' schedulers around any latent diffusion model. Every step is timed.

The two passes are separate functions, so that a baseline and a reduced hires pass can share one first pass.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from todo_core.hosts import detect
from todo_core.patching.plan import Plan
from todo_core.patching.record import Record
from todo_core.patching.session import Session
from todo_core.patching.token_grid import TokenGrid
from todo_core.settings import Settings

from .request import Request

OnStep = Callable[[str, int, int], None]
HIRES_SEED_OFFSET = 2**32  # added to the seed, so that the hires pass draws noise of its own


class LatentModel(Protocol):
    """The interface of a model. `target` is what `apply_patch` accepts; `prediction` is diffusers' prediction type."""

    name: str
    target: Any
    prediction: str
    channels: int
    device: torch.device
    dtype: torch.dtype

    def context(self, prompts: list[str]) -> Any:
        """Text encodings for cross-attention, one row per prompt."""

    def predict(self, latents: Tensor, timestep: Tensor, context: Any) -> Tensor:
        """One UNet call on (b, c, h, w)."""

    def decode(self, latents: Tensor) -> Tensor:
        """Images (b, 3, 8h, 8w) in -1..1."""


@dataclass
class Pass:
    """One sampled pass: its latents (1, c, h, w), the seconds of each step, the plan and the record."""

    name: str
    latents: Tensor
    step_seconds: list[float] = field(default_factory=list)
    plan: Plan | None = None
    record: Record = field(default_factory=Record)

    @property
    def total_seconds(self) -> float:
        """Sum of the step times, in seconds."""
        return sum(self.step_seconds)


def first_pass(model: LatentModel, request: Request, settings: Settings | None = None, **options: Any) -> Pass:
    """Sample at the base size. `settings` act if they include the first pass. Options: see `hires_pass`."""
    acting = settings if settings and settings.passes in ("first", "all") else None
    shape = (1, model.channels, request.height // 8, request.width // 8)
    scheduler = make_scheduler(model, request.sampler)
    scheduler.set_timesteps(request.steps, device=model.device)
    noise = _noise(model, shape, request.seed)
    latents = noise * scheduler.init_noise_sigma
    return _sample(model, request, "first", scheduler, 0, latents, acting, request.seed, **options)


def hires_pass(
    model: LatentModel,
    request: Request,
    first: Pass,
    settings: Settings | None = None,
    *,
    on_step: OnStep | None = None,
    on_error: Callable[[Exception], None] | None = None,
) -> Pass:
    """Enlarge the first pass's latents and sample from `denoising` on. `settings` act if they include the hires pass.

    `on_step(pass, step, steps)` is called before each step. If it raises, the pass stops.
    """
    acting = settings if settings and settings.passes in ("hires", "all") else None
    width, height = request.hires_size
    enlarged = functional.interpolate(first.latents.float(), (height // 8, width // 8), mode="bicubic", antialias=True)
    scheduler = make_scheduler(model, request.sampler)
    steps = round(request.hires_steps / request.denoising)
    scheduler.set_timesteps(steps, device=model.device)
    begin = (
        steps - request.hires_steps
    ) * scheduler.order  # a second-order sampler lists each timestep but the first twice
    if hasattr(scheduler, "set_begin_index"):  # only schedulers that count their steps have it
        scheduler.set_begin_index(begin)
    noise = _noise(model, enlarged.shape, request.seed + HIRES_SEED_OFFSET)
    start = scheduler.timesteps[begin : begin + 1]
    latents = scheduler.add_noise(enlarged.to(noise), noise, start)
    seed = request.seed + HIRES_SEED_OFFSET
    return _sample(model, request, "hires", scheduler, begin, latents, acting, seed, on_step=on_step, on_error=on_error)


def warm_up(model: LatentModel, request: Request, first: Pass, settings: Settings) -> None:
    """Run one baseline and one reduced hires step, so that kernels and memory are ready before timing."""
    once = replace(request, hires_steps=1)
    for acting in (None, replace(settings, start=0, end=1) if settings.method != "none" else None):
        hires_pass(model, once, first, acting)


def decode_image(model: LatentModel, result: Pass) -> np.ndarray:
    """Decode the latents of a pass to an image, uint8 (h, w, 3)."""
    with torch.inference_mode():
        image = model.decode(result.latents)[0].float().cpu().clamp(-1, 1)
    return ((image.permute(1, 2, 0) + 1) * 127.5).round().to(torch.uint8).numpy()


def make_scheduler(model: LatentModel, sampler: str) -> Any:
    """Make a diffusers scheduler with Stable Diffusion's noise schedule."""
    import diffusers

    classes: dict[str, tuple[str, dict[str, Any]]] = {
        "DDIM": ("DDIMScheduler", {"clip_sample": False, "set_alpha_to_one": False}),
        "Euler": ("EulerDiscreteScheduler", {}),
        "Euler a": ("EulerAncestralDiscreteScheduler", {}),
        "Heun": ("HeunDiscreteScheduler", {}),
        "DPM++ 2M": ("DPMSolverMultistepScheduler", {}),
    }
    name, options = classes[sampler]
    return getattr(diffusers, name)(
        num_train_timesteps=1000,
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type=model.prediction,
        timestep_spacing="trailing",
        **options,
    )


def _noise(model: LatentModel, shape: Any, seed: int) -> Tensor:
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed)).to(model.device, model.dtype)


def _sample(
    model: LatentModel,
    request: Request,
    name: str,
    scheduler: Any,
    begin: int,
    latents: Tensor,
    settings: Settings | None,
    seed: int,
    *,
    on_step: OnStep | None = None,
    on_error: Callable[[Exception], None] | None = None,
) -> Pass:
    result = Pass(name, latents)
    timesteps = scheduler.timesteps[begin:]
    order = list(dict.fromkeys(timesteps.tolist()))  # second-order samplers list a timestep twice
    draws_noise = "generator" in inspect.signature(scheduler.step).parameters
    noise_options = {"generator": torch.Generator().manual_seed(seed + 1)} if draws_noise else {}
    with torch.inference_mode(), _session(model, settings, result, on_error) as session:
        context = model.context([request.prompt, request.negative])
        for timestep in timesteps:
            step = order.index(timestep.item())
            if on_step:
                on_step(name, step, len(order))
            if session:
                session.begin_step(step, len(order), (request.seed, request.seed))
            started = _synchronized_time(model.device)
            guided = _guided(model, scheduler, result.latents, timestep, context, request.guidance)
            result.latents = scheduler.step(guided, timestep, result.latents, **noise_options).prev_sample
            result.step_seconds.append(_synchronized_time(model.device) - started)
    return result


def _guided(
    model: LatentModel, scheduler: Any, latents: Tensor, timestep: Tensor, context: Any, guidance: float
) -> Tensor:
    """Classifier-free guidance with cond and uncond in one call (Ho and Salimans 2022, equation 6)."""
    scaled = scheduler.scale_model_input(latents, timestep)
    cond, uncond = model.predict(torch.cat([scaled, scaled]), timestep.expand(2), context).chunk(2)
    return uncond + guidance * (cond - uncond)


@contextmanager
def _session(
    model: LatentModel, settings: Settings | None, result: Pass, on_error: Callable[[Exception], None] | None
) -> Iterator[Session | None]:
    """Attach a session for the duration of the pass; None where nothing is to be reduced."""
    if settings is None or settings.method == "none":
        yield None
        return
    size = TokenGrid.of(result.latents.shape)
    session = Session(detect(model.target), settings, size=size, record=result.record, on_error=on_error)
    result.plan = session.plan
    try:
        yield session.attach()
    finally:
        session.remove()


def _synchronized_time(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
