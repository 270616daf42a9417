"""txt2img with a hires pass: diffusers' schedulers around any latent diffusion model. Every step is timed.

The two passes are separate functions, so that a baseline and a reduced hires pass can share one first pass.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from todo_core import __version__
from todo_core.hosts import detect
from todo_core.hosts.schedulers import course_of_scheduler
from todo_core.patching.driver import Driver
from todo_core.patching.facts import Pass
from todo_core.patching.plan import Plan
from todo_core.patching.record import Record
from todo_core.patching.steps import rows_of
from todo_core.settings import VERSION_KEY, Settings
from todo_core.token_grid import TokenGrid

from .request import Request
from .samplers import make_scheduler

OnStep = Callable[[str, int, int], None]
HIRES_SEED_OFFSET = 2**32  # added to the seed, so that the hires pass draws noise of its own


class LatentModel(Protocol):
    """The interface of a model. `target` is what `apply_patch` accepts; `prediction` is diffusers' prediction type.

    The sides of an image are multiples of `multiple` pixels.
    """

    name: str
    target: Any
    prediction: str
    channels: int
    multiple: int
    device: torch.device
    dtype: torch.dtype

    def context(self, prompts: list[str]) -> Any:
        """Text encodings for cross-attention, one row per prompt."""

    def predict(self, latents: Tensor, timestep: Tensor, context: Any) -> Tensor:
        """One UNet call on (b, c, h, w)."""

    def decode(self, latents: Tensor) -> Tensor:
        """Images (b, 3, 8h, 8w) in -1..1."""


@dataclass
class Sampled:
    """The latents (1, c, h, w) of a sampled pass, the seconds of each call, and what drives its reduction, if any.

    A second-order sampler calls the model twice in a step; `steps` has the step of each call.
    """

    name: str
    latents: Tensor
    step_seconds: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    driver: Driver | None = None

    @property
    def plan(self) -> Plan | None:
        """The plan; None where nothing is to be reduced."""
        return self.driver.plan if self.driver else None

    @property
    def record(self) -> Record:
        """What ran."""
        return self.driver.record if self.driver else Record()

    @property
    def why_less(self) -> list[str]:
        """Why nothing was reduced, or less than could be, and notes."""
        return [*map(str, self.driver.why_less(len({*self.steps})))] if self.driver else []

    @property
    def total_seconds(self) -> float:
        """Sum of the step times, in seconds."""
        return sum(self.step_seconds)

    @property
    def kinds(self) -> list[tuple[int, ...]]:
        """What acted in each call's step: calls of one kind do the same work, those of an empty one all of it."""
        sets = [*self.record.ran_in.values(), *(part.predicted_in for part in self.record.parts.values())]
        return [tuple(number for number, acted in enumerate(sets) if step in acted) for step in self.steps]


def what_ran(*passes: Sampled) -> dict[str, str]:
    """What the infotext of an image says: the settings of the last pass in which anything was reduced."""
    ran = [each.driver.as_infotext() for each in passes if each.driver and each.record.acted]
    return ran[-1] | {VERSION_KEY: __version__} if ran else {}


def first_pass(
    model: LatentModel, request: Request, settings: Settings | None = None, *, on_step: OnStep | None = None
) -> Sampled:
    """Sample at the base size. `settings` act if they include the first pass. Options: see `hires_passes`."""
    request.check_sizes(model.multiple)
    acting = settings if settings and settings.includes("first") else None
    scheduler = _scheduler(model, request, request.steps, request.steps)
    made = Sampled("first", _first_noise(model, request) * scheduler.init_noise_sigma)
    for _ in _sample(model, request, made, scheduler, acting, request.seed, on_step):
        pass
    return made


def hires_pass(model: LatentModel, request: Request, first: Sampled, settings: Settings | None = None) -> Sampled:
    """One of `hires_passes`."""
    return hires_passes(model, request, [first], [settings])[0]


def hires_passes(
    model: LatentModel,
    request: Request,
    firsts: Sequence[Sampled],
    variants: Sequence[Settings | None],
    *,
    on_step: OnStep | None = None,
) -> list[Sampled]:
    """Enlarge the latents of each first pass and sample from `denoising` on, each with its own of `variants`.

    The passes alternate: all do a step before one does the next, so a busy machine slows all of them. Settings act if
    they include the hires pass. `on_step(pass, step, steps)` is called before each step. If it raises, all stop.
    """
    request.check_sizes(model.multiple)
    made, runs = [], []
    for settings, start in zip(variants, firsts, strict=True):
        acting = settings if settings and settings.includes("hires") else None
        scheduler = _scheduler(model, request, request.hires_steps, round(request.hires_steps / request.denoising))
        seed = request.seed + HIRES_SEED_OFFSET
        made.append(Sampled("hires", _enlarged(model, request, start, scheduler)))
        runs.append(_sample(model, request, made[-1], scheduler, acting, seed, on_step))
    for _ in zip(*runs, strict=True):
        pass
    return made


def _enlarged(model: LatentModel, request: Request, first: Sampled, scheduler: Any) -> Tensor:
    """The first pass's latents at the hires size, with the noise of the first hires step."""
    width, height = request.hires_size
    enlarged = functional.interpolate(first.latents.float(), (height // 8, width // 8), mode="bicubic", antialias=True)
    noise = _noise(model, enlarged.shape, request.seed + HIRES_SEED_OFFSET)
    return scheduler.add_noise(enlarged.to(noise), noise, scheduler.timesteps[:1])


def warm_up(
    model: LatentModel, request: Request, variants: Sequence[Settings | None], *, on_step: OnStep | None = None
) -> None:
    """Run one hires step of each variant on noise, so that kernels and memory are ready before timing."""
    noise = Sampled("first", _first_noise(model, request))
    reducing = [settings and replace(settings, start=0, end=1) for settings in variants]
    hires_passes(model, replace(request, hires_steps=1), [noise] * len(variants), reducing, on_step=on_step)


def decode_image(model: LatentModel, result: Sampled) -> np.ndarray:
    """Decode the latents of a pass to an image, uint8 (h, w, 3)."""
    with torch.inference_mode():
        image = model.decode(result.latents)[0].float().cpu().clamp(-1, 1)
    return ((image.permute(1, 2, 0) + 1) * 127.5).round().to(torch.uint8).numpy()


def _scheduler(model: LatentModel, request: Request, steps: int, of: int) -> Any:
    asked, is_xl = request.resolved, detect(model.target).depth > 0  # SDXL alone does not attend at the latent's size
    facts: dict[str, Any] = {"prediction": model.prediction, "is_xl": is_xl, "device": model.device}
    return make_scheduler(asked.sampler, asked.schedule, steps, of, **facts)


def _first_noise(model: LatentModel, request: Request) -> Tensor:
    return _noise(model, (1, model.channels, request.height // 8, request.width // 8), request.seed)


def _noise(model: LatentModel, shape: Any, seed: int) -> Tensor:
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed)).to(model.device, model.dtype)


def _sample(
    model: LatentModel,
    request: Request,
    result: Sampled,
    scheduler: Any,
    settings: Settings | None,
    seed: int,
    on_step: OnStep | None,
) -> Iterator[None]:
    """Sample into `result`; yields after each step. The hooks are on the model during a step only."""
    times = scheduler.timesteps.tolist()
    order = list(dict.fromkeys(times))  # second-order samplers list a timestep twice
    draws_noise = "generator" in inspect.signature(scheduler.step).parameters
    noise_options = {"generator": torch.Generator().manual_seed(seed + 1)} if draws_noise else {}
    result.driver = _driver(model, settings, result, scheduler, [order.index(time) for time in times])
    with torch.inference_mode():
        context = model.context([request.prompt, request.negative])
    for timestep in scheduler.timesteps:
        step = order.index(timestep.item())
        if on_step:
            on_step(result.name, step, len(order))
        with torch.inference_mode(), _reduced(result.driver, step, timestep, len(order), request):
            started = _synchronized_time(model.device)
            guided = _guided(model, scheduler, result.latents, timestep, context, request.guidance)
            result.latents = scheduler.step(guided, timestep, result.latents, **noise_options).prev_sample
            result.step_seconds.append(_synchronized_time(model.device) - started)
            result.steps.append(step)
        yield
    if result.driver:
        result.driver.remove()


def _guided(
    model: LatentModel, scheduler: Any, latents: Tensor, timestep: Tensor, context: Any, guidance: float
) -> Tensor:
    """Classifier-free guidance with cond and uncond in one call (Ho and Salimans 2022, equation 6)."""
    scaled = scheduler.scale_model_input(latents, timestep)
    cond, uncond = model.predict(torch.cat([scaled, scaled]), timestep.expand(2), context).chunk(2)
    return uncond + guidance * (cond - uncond)


def _driver(
    model: LatentModel, settings: Settings | None, made: Sampled, scheduler: Any, steps: Sequence[int]
) -> Driver | None:
    """The driver of a pass whose calls belong to these steps; None where nothing is to be reduced."""
    if settings is None or settings.method == "none":
        return None
    driver, course = Driver(f"the {made.name} pass", settings), course_of_scheduler(scheduler, 0, steps)
    driver.use_model(detect(model.target), (), Pass(TokenGrid.of(made.latents.shape), steps[-1] + 1, course))
    return driver


@contextmanager
def _reduced(driver: Driver | None, step: int, time: Tensor, steps: int, request: Request) -> Iterator[None]:
    """The hooks are on the model for this step. An error of theirs is raised: no measurement goes on without them."""
    if driver is None:
        yield
        return
    rows = rows_of([request.seed], (request.guidance, 1 - request.guidance))
    driver.begin_step(step, steps, rows, time=float(time))
    try:
        yield
    except BaseException:
        driver.remove()
        raise
    driver.end_step()
    if driver.error:
        raise driver.error


def _synchronized_time(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
