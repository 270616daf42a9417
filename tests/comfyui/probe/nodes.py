"""The nodes of the probe, and routes that tell what was seen."""

import json
import sys
from pathlib import Path

import torch
from aiohttp import web
from comfy import model_management
from comfy.patcher_extension import WrappersMP, add_wrapper_with_key
from server import PromptServer

from . import sampling_contract

sys.path.append(str(Path(__file__).resolve().parents[2] / "todo_core" / "contract"))
import watch  # noqa: E402

SEEN = []  # of each sampling: the name of its probe and its UNet calls
LINES = []  # the texts that nodes have shown
WATCHES = []  # of the last samplings


def stop():
    raise model_management.InterruptProcessingException


ENDS = {"stop": stop, "cancel": model_management.interrupt_current_processing}


class Watch:
    """Model in, model out: notes the UNet's calls while it samples, and lets the events of the contract happen."""

    CATEGORY, FUNCTION, RETURN_TYPES = "todo probe", "patch", ("MODEL",)

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "model": ("MODEL",),
                "name": ("STRING", {"default": ""}),
                "happens": ("STRING", {"default": "{}"}),  # JSON: events by the number of a call, and "beside"
            }
        }

    def patch(self, model, name, happens):
        model = model.clone()

        def sample(executor, *args, **kwargs):
            unet, events = executor.class_obj.model_patcher.model.diffusion_model, json.loads(happens)
            end = watch.foreign_forward(unet) if events.pop("beside", "") else lambda: None
            watching = watch.Watch(events, **ENDS)
            WATCHES.append(watching)
            SEEN.append({"name": name, "calls": watching.calls})

            try:
                with watching.on(type(unet)):
                    return executor(*args, **kwargs)
            finally:
                end()

        model.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, "todo_probe", sample)
        return (model,)


class Words:
    """A random conditioning of any width, where no text encoder is at hand."""

    CATEGORY, FUNCTION, RETURN_TYPES = "todo probe", "make", ("CONDITIONING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"width": ("INT", {"default": 2048, "max": 8192}), "seed": ("INT", {"default": 0})}}

    def make(self, width, seed):
        generator = torch.Generator().manual_seed(seed)
        pooled = torch.randn(1, 1280, generator=generator)
        return ([[torch.randn(1, 77, width, generator=generator), {"pooled_output": pooled}]],)


class Contract:
    """Model in, model out: the next sampling tells what tests/todo_core/comfyui has a double of."""

    CATEGORY, FUNCTION, RETURN_TYPES = "todo probe", "patch", ("MODEL",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"model": ("MODEL",)}}

    def patch(self, model):
        watched, seen = sampling_contract.watch(model, WrappersMP, add_wrapper_with_key)
        SEEN.append(seen)
        return (watched,)


class Show:
    """Tells the latents of a batch: a VAE on a CPU would take longer than all the rest of a test."""

    CATEGORY, FUNCTION, RETURN_TYPES, OUTPUT_NODE = "todo probe", "show", (), True

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"samples": ("LATENT",)}}

    def show(self, samples):
        return {"ui": {"latents": samples["samples"].tolist()}}


def note_line(text, node, *args, **kwargs):
    LINES.append(text)
    return show(text, node, *args, **kwargs)


show, PromptServer.instance.send_progress_text = PromptServer.instance.send_progress_text, note_line


@PromptServer.instance.routes.get("/todo-probe/seen")
async def seen(request):
    """What was seen, and the lines that were shown, since the last time."""
    answer = [[*SEEN], [*LINES]]
    SEEN.clear()
    LINES.clear()
    return web.json_response(answer)


@PromptServer.instance.routes.get("/todo-probe/left")
async def left(request):
    """Hooks and forwards on all loaded models, and tensors of the last calls that are still in memory."""
    models = [loaded.model for loaded in model_management.current_loaded_models if loaded.model]
    modules = [module for model in models for module in model.model.modules()]
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + ("forward" in vars(m)) for m in modules)
    remembered = sum(each.remembered() for each in WATCHES)
    WATCHES.clear()
    return web.json_response([hooks, remembered])


NODE_CLASS_MAPPINGS = {f"ToDoProbe{each.__name__}": each for each in (Watch, Words, Show, Contract)}
