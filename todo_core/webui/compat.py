"""Facts about AUTOMATIC1111 1.10 that would otherwise be spread over the other files."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..errors import UnsupportedModelError


def listen(category: str, callback: Callable[..., None], *, file: str) -> None:
    """``script_callbacks.on_<category>`` for the script in `file`, without a slow start.

    From its on_ functions version 1.10 reads the file off the whole call stack, with the source of each frame, which
    takes about 60 ms: more for our four than all our imports.
    """
    from modules import script_callbacks

    try:
        callbacks = script_callbacks.callback_map[f"callbacks_{category}"]
        script_callbacks.add_callback(callbacks, callback, filename=file, category=category)
    except (AttributeError, KeyError, TypeError):  # another version
        getattr(script_callbacks, f"on_{category}")(callback)


def pass_of(p: Any) -> str:
    """Which pass is about to be sampled: "img2img", "hires" or "first"."""
    if hasattr(p, "init_images"):
        return "img2img"
    return "hires" if getattr(p, "is_hr_pass", False) else "first"


def row_seeds(params: Any) -> list[int]:
    """The image's seed for each row of ``params.x``, the batch that the denoiser is about to run.

    The rows are those of every image's prompts (more than one each where a prompt has AND), then once or twice all
    images again, unconditional.
    """
    denoiser = params.denoiser
    seeds = list(denoiser.p.seeds)
    rows = int(params.x.shape[0])
    cond = getattr(denoiser.sampler, "sampler_extra_args", {}).get("cond")
    prompts = [len(parts) for parts in getattr(cond, "batch", ())]
    if len(prompts) != len(seeds) or sum(prompts) > rows:
        prompts = [1] * len(seeds)
    owners = [seed for seed, count in zip(seeds, prompts, strict=True) for _ in range(count)]
    while len(owners) < rows:
        owners += seeds
    return owners[:rows]


def supported(sd_model: Any) -> Any:
    """The model, or UnsupportedModelError where the host calls it through a patcher of its own."""
    if hasattr(sd_model, "forge_objects"):
        raise UnsupportedModelError(sd_model, "the Forge family is not supported yet")
    return sd_model


def unet_of(sd_model: Any) -> Any:
    """The module that is called for every step."""
    return sd_model.model.diffusion_model


def loaded_model() -> Any:
    """The model that is loaded, or None; unlike ``shared.sd_model`` it never loads one."""
    from modules import sd_models

    return sd_models.model_data.sd_model


def xyz_grid() -> Any:
    """The host's X/Y/Z plot script, as the module that the host loaded; None where it is not there."""
    from modules import scripts

    found = (data.module for data in scripts.scripts_data if data.script_class.__module__ == "xyz_grid.py")
    return next(found, None)


def is_cut() -> bool:
    """Whether the user has interrupted or skipped what runs."""
    from modules import shared

    return bool(shared.state.interrupted or shared.state.skipped)


def add_to_answer(processed: Any, **more: Any) -> None:
    """Add values to the JSON of a result: the ``info`` of an API response, which the page keeps beside the images.

    The result gets another class and no method of its own: the X/Y/Z plot fills a copy of its first cell's result with
    all cells, and a bound method would go on telling of the first.
    """
    processed.todo_answer = {**getattr(processed, "todo_answer", {}), **more}
    if not isinstance(processed, _Answer):
        processed.__class__ = type("Processed", (_Answer, type(processed)), {})


class _Answer:
    todo_answer: dict[str, Any]

    def js(self) -> str:
        return json.dumps({**json.loads(super().js()), **self.todo_answer})  # type: ignore[misc]
