"""What a sampler and a guider of ComfyUI do with the model's outputs: their own functions are asked (`samplers`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..course import Course, scale_of
from ..samplers import StandIn, ask, or_none

_OWN = ("comfy", "comfy_extras")  # packages whose samplers and guiders keep nothing between two runs
_KEY, _MOST_PROMPTS = "todo_asks", 8


def is_own(sampler: Any) -> bool:
    """Whether a sampler is one of ComfyUI's. One of another node may keep a state, or wrap one that does."""
    return _is_of_comfyui(getattr(sampler, "sampler_function", None))


def _is_of_comfyui(thing: Any) -> bool:
    """Whether a function or class is ComfyUI's. It loads its extra nodes by file: their module's name is a path."""
    module = getattr(thing, "__module__", "")
    return module.partition(".")[0] in _OWN or PurePath(module).parent.name == "comfy_extras"


def course_of(
    sampler: Any, guider: Any, sigmas: Tensor, steps_of: Callable[[Sequence[float], Sequence[int]], Sequence[int]]
) -> Course | None:
    """The course of a sampling by one of ComfyUI's own samplers; None where it does not tell."""
    function = sampler.sampler_function
    scale = scale_of(guider.inner_model.model_sampling)

    def reply(x: Tensor, error: Tensor, sigma: float, given: dict[str, Any]) -> Tensor:
        image = x + scale(sigma).error * error
        told = {"input": x, "sigma": sigma, "cond_denoised": image, "uncond_denoised": image, "model_options": {}}
        for change in given["model_options"].get("sampler_post_cfg_function", ()):  # CFG++ looks at the negative prompt
            image = change({**told, "denoised": image, "cond": None, "uncond": None, "model": None})
        return image

    def run(model: StandIn, x: Tensor) -> Tensor:
        options = copy.deepcopy(sampler.extra_options)
        options |= {"extra_args": {"model_options": {}, "seed": 0}, "callback": model.report, "disable": True}
        last: Tensor = function(model, x, sigmas.clone(), **options)
        return last

    model = partial(StandIn, SimpleNamespace(inner_model=guider), reply)
    return ask(run, model, lambda times: [*map(scale, times)], sigmas.device, steps_of)


@dataclass(frozen=True)
class Guidance:
    """The weight of each prompt in the guided output, and whether another model or device has a part of them."""

    weights: tuple[float, ...] | None = None  # None where they are not known
    is_split: bool = False


def guidance_of(guider: Any, model_options: dict[str, Any]) -> Guidance:
    """What a guider makes of its prompts' outputs; nothing is known of one that is not ComfyUI's: it is not asked.

    It gets outputs of 0, but for a 1 of one prompt in each row. PerpNeg's are not weighted: its weights are None.
    """
    if not _is_of_comfyui(type(guider)):
        return Guidance()
    from comfy.patcher_extension import WrappersMP, add_wrapper_with_key

    models, asked = set[int](), 0

    def outputs(_: Any, model: Any, conds: Any, x: Tensor, *more: Any) -> list[Tensor]:
        nonlocal asked
        models.add(id(model))
        first, asked = asked, asked + len(conds)
        return [torch.zeros_like(x).index_fill(0, torch.tensor(first + i), 1) for i in range(len(conds))]

    options = {name: model_options[name] for name in ("disable_cfg1_optimization",) if name in model_options}
    add_wrapper_with_key(WrappersMP.CALC_COND_BATCH, _KEY, outputs, options, is_model_options=True)
    latent, sigmas = torch.zeros(_MOST_PROMPTS, 1, 1, 1), torch.ones(_MOST_PROMPTS)
    guided: Tensor | None = or_none(lambda: guider.predict_noise(latent, sigmas, options), type(guider))
    if guided is None:
        return Guidance()
    weights = tuple(guided.flatten()[:asked].tolist())
    is_split = bool(models - {id(guider.inner_model)}) or len(model_options.get("multigpu_clones") or ()) > 1
    return Guidance(weights if abs(sum(weights) - 1) < 1e-3 else None, is_split)
