"""Everything that depends on how AUTOMATIC1111 1.10, the Forge family and SD.Next work inside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from modules import processing, scripts, sd_models, shared

from ..hosts.conditions import acting_at, chain_of
from ..hosts.host import original
from ..patching.steps import Row, rows_inside
from ..reason import Reason, Why


def has_pipelines(p: Any) -> bool:
    """Whether the WebUI of ``p`` samples with diffusers pipelines, as SD.Next does. They tell no pass and no step."""
    return hasattr(p, "task_args")


def is_pipeline(sd_model: Any) -> bool:
    """Whether a model of the WebUI is a diffusers pipeline."""
    return hasattr(sd_model, "scheduler")


def is_img2img(p: Any) -> bool:
    """Whether ``p`` begins with an image. In SD.Next every ``p`` has a list of them."""
    return bool(p.init_images) if has_pipelines(p) else hasattr(p, "init_images")


def pass_of(p: Any) -> str:
    """Which pass is about to be sampled: "img2img", "hires" or "first". SD.Next has a hires pass after img2img too."""
    if getattr(p, "is_hr_pass", False):
        return "hires"
    return "img2img" if is_img2img(p) else "first"


def job_of_pipeline() -> Any:
    """The ``p`` for which SD.Next's pipeline was called last. A script's or a detailer's own has another one."""
    from modules import processing_callbacks

    return processing_callbacks.p


def time_of_request() -> Any:
    """When the WebUI began to work on the current request, which may run many generations."""
    return getattr(shared.state, "time_start", None)


def rows_of(params: Any) -> list[Row]:
    """The rows of ``params.x``, the batch that the denoiser is about to run.

    First come the rows of every image's prompts; a prompt with AND has several, each with a weight. Then all images
    follow without their prompts, in a model for edits once more without their image.
    """
    denoiser, scale = params.denoiser, guidance_of(params)
    seeds, count = list(denoiser.p.seeds), int(params.x.shape[0])
    cond = getattr(denoiser.sampler, "sampler_extra_args", {}).get("cond")
    prompts = [[float(getattr(part, "weight", 1)) for part in parts] for parts in getattr(cond, "batch", ())]
    if len(prompts) != len(seeds) or sum(map(len, prompts)) > count:
        prompts = [[1.0]] * len(seeds)
    others = [[1 - scale * sum(own)] for own in prompts]
    of_image = getattr(denoiser, "image_cfg_scale", None) if count == 3 * len(seeds) else None
    if of_image:
        others = [[of_image - scale, 1 - of_image]] * len(seeds)
    rows = [Row(seeds[image], image, scale * weight) for image, own in enumerate(prompts) for weight in own]
    for part in zip(*others, strict=True):
        rows += [Row(seeds[image], image, weight) for image, weight in enumerate(part)]
    return list(rows_inside(rows, count))


def why_rows_change(p: Any) -> Why | None:
    """The option that has left the negative prompt out of some steps, if one has: the WebUI then writes its key."""
    ngms, early = "Negative Guidance minimum sigma", "Ignore negative prompt during early sampling"
    names = [name for key, name in (("NGMS", ngms), ("Skip Early CFG", early)) if key in p.extra_generation_params]
    return Reason.LEFT_OUT(names[0]) if names else None


def guidance_of(params: Any) -> float:
    """The CFG scale of a step. The Forge family has another one for the hires pass, and CFG++ divides it."""
    p = params.denoiser.p
    of_hires = getattr(p, "hr_cfg", None) if getattr(p, "is_hr_pass", False) else None
    part = getattr(params.denoiser, "cond_scale_miltiplier", 1.0)  # the WebUI's spelling
    return float(of_hires or p.cfg_scale) * part


def unet_of(sd_model: Any) -> Any:
    """The module that each step calls. The Forge family keeps it in a patcher, SD.Next in a pipeline."""
    if hasattr(sd_model, "unet"):
        return original(sd_model.unet)
    objects = getattr(sd_model, "forge_objects", None)
    return (objects.unet if objects else sd_model).model.diffusion_model


def around_unet(sd_model: Any) -> Any:
    """The model around the UNet that knows its noise. The Forge family keeps it in a patcher."""
    objects = getattr(sd_model, "forge_objects", None)
    return objects.unet.model if objects else sd_model


def controlnets_of(p: Any) -> list[Any]:
    """The models that sd-webui-controlnet runs inside each UNet call of ``p``. Not all have the layers of a UNet."""
    on = getattr(getattr(p, "scripts", None), "alwayson_scripts", ())
    networks = [getattr(script, "latest_network", None) for script in on]
    units = [unit for network in networks for unit in getattr(network, "control_params", None) or ()]
    models = [getattr(getattr(unit, "control_model", None), "control_model", None) for unit in units]
    return list(dict.fromkeys(models))


def controls_at(params: Any, model: Any) -> list[str]:
    """Which ControlNets and other adapters of the Forge family act in a step."""
    patcher = getattr(getattr(model, "forge_objects", None), "unet", None)
    controls = chain_of(getattr(patcher, "controlnet_linked_list", None))
    return [acting_at(control, float(params.sigma.flatten()[0])) for control in controls]


def merging_ratio(p: Any, pass_name: str) -> float:
    """How many of the tokens the WebUI merges in this pass; 0 is off. SD.Next tells it nowhere."""
    return 0 if has_pipelines(p) else p.get_token_merging_ratio(for_hr=pass_name == "hires")


DOWNSAMPLING = "sd-webui-token-downsampling"
# its options; an attribute of this name on a processing object overrides the option
_DOWNSAMPLING_FACTORS = ("token_downsampling_factor", "token_downsampling_factor2")


def merging_on_page(kind: str) -> float:
    """How many of the tokens the WebUI's options merge in a pass of the page, "first", "hr" or "img2img"; 0 is off."""
    names = (f"token_merging_ratio_{kind}", "token_merging_ratio")
    return next(filter(None, (getattr(shared.opts, name, 0) for name in names)), 0)


def downsampling_is_on(p: Any) -> bool:
    """Whether sd-webui-token-downsampling is installed and would reduce this generation."""
    # the values stay in config.json after the extension is uninstalled; its options do not
    installed = [name for name in _DOWNSAMPLING_FACTORS if name in shared.opts.data_labels]
    return any(getattr(p, name, getattr(shared.opts, name)) > 1 for name in installed)


def disable_downsampling(p: Any) -> None:
    """Switch sd-webui-token-downsampling off for this generation. Call it before ``process``, where it starts."""
    for name in _DOWNSAMPLING_FACTORS:
        setattr(p, name, 1)


def has_patcher(sd_model: Any) -> bool:
    """Whether the WebUI's features patch a copy of the model for each step, as in the Forge family."""
    return hasattr(sd_model, "forge_objects")


def loaded_model() -> Any:
    """The loaded model, or None. Unlike ``shared.sd_model``, this never loads one.

    Before its first generation, Forge has a placeholder without a UNet.
    """
    model = sd_models.model_data.sd_model
    return model if any(hasattr(model, name) for name in ("forge_objects", "model", "unet")) else None


def xyz_grid() -> Any:
    """The module of the WebUI's X/Y/Z plot script, if the WebUI has loaded it."""
    found = (data.module for data in scripts.scripts_data if data.script_class.__module__ == "xyz_grid.py")
    return next(found, None)


def is_interrupted() -> bool:
    """Whether the user has interrupted or skipped the current generation."""
    return bool(shared.state.interrupted or shared.state.skipped)


def paste_fields(fields: list[tuple[Any, Callable[..., Any]]]) -> list[tuple[Any, Callable[..., Any]]]:
    """(control, function of the infotext), as the WebUI wants them.

    In SD.Next a function must return gradio's update: it takes any other value for one of a field with a name. A field
    with a name must be in each of its tabs, and other people's scripts are not in Control.
    """
    if not hasattr(processing, "StableDiffusionProcessingControl"):
        return fields
    import gradio as gr

    def as_update(pasted: Callable[..., Any]) -> Callable[..., Any]:
        return lambda params: None if (value := pasted(params)) is None else gr.update(value=value)

    return [(control, as_update(pasted)) for control, pasted in fields]


def add_to_info(processed: Any, **values: Any) -> None:
    """Add values to the JSON of a result: it is the ``info`` of an API response, and the page has it.

    The JSON of every result has ToDo's comments from now on. Loopback and others make one after the last event.
    """
    kind = type(processed)
    if not hasattr(kind, "todo_info"):
        kind.todo_info, kind.js = {}, _with_info(kind.js)
    processed.todo_info = {**processed.todo_info, **values}


def _with_info(plain: Callable[[Any], str]) -> Callable[[Any], str]:
    def js(processed: Any) -> str:
        if not processed.todo_info and "ToDo" not in processed.comments:
            return plain(processed)
        return json.dumps({**json.loads(plain(processed)), "comments": processed.comments, **processed.todo_info})

    return js


def share_comments(processed: Any, p: Any) -> None:
    """Let a result have the comments that ``p`` and its copies get from now on, too.

    The cells of an X/Y/Z plot share one list of comments, but the plot shows a copy of the result of its first cell.
    """
    add_to_info(processed)
    processed.__class__ = type("Processed", (_SharedComments, type(processed)), {})
    processed.todo_comments = p.comments


class _SharedComments:
    todo_comments: Iterable[str]

    @property
    def comments(self) -> str:
        return "".join(f"{line}\n" for line in self.todo_comments)

    @comments.setter
    def comments(self, text: str) -> None:
        self.todo_comments = text.splitlines()
