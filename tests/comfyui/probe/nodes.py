"""The nodes of the probe, and routes that tell what was seen."""

import json
import sys
from pathlib import Path

import torch
from aiohttp import web
from comfy import model_management
from comfy.patcher_extension import WrappersMP
from server import PromptServer

sys.path.append(str(Path(__file__).resolve().parents[2] / "todo_core" / "contract"))
import watch  # noqa: E402

SEEN = []  # of each sampling: the name of its probe and its UNet calls
LINES = []  # the texts that nodes have shown
WATCHES = []  # of the last samplings
NODE_CLASS_MAPPINGS = {}


def stop():
    raise model_management.InterruptProcessingException


ENDS = {"stop": stop, "cancel": model_management.interrupt_current_processing}


def node(title, /, *returns, **inputs):
    """Make a node ToDoProbeTITLE of a function that takes these inputs."""

    def of(run):
        about = {"CATEGORY": "todo probe", "FUNCTION": "run", "RETURN_TYPES": returns, "OUTPUT_NODE": not returns}
        about |= {"INPUT_TYPES": classmethod(lambda _: {"required": inputs}), "run": staticmethod(run)}
        NODE_CLASS_MAPPINGS[f"ToDoProbe{title}"] = type(title, (), about)

    return of


@node("Watch", "MODEL", model=("MODEL",), name=("STRING", {"default": ""}), happens=("STRING", {"default": "{}"}))
def note_calls(model, name, happens):
    """Notes the UNet's calls while the model samples, and lets the events of the contract happen.

    ``happens`` is JSON: events by the number of a call, and "beside".
    """
    model = model.clone()

    def sample(executor, *args, **kwargs):
        unet, events = executor.class_obj.model_patcher.model.diffusion_model, json.loads(happens)
        beside = events.pop("beside", "")
        end = watch.foreign(unet, beside) if beside else lambda: None
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


@node("Words", "CONDITIONING", width=("INT", {"default": 2048, "max": 8192}), seed=("INT", {"default": 0}))
def make_words(width, seed):
    """A random conditioning of any width, where no text encoder is at hand."""
    generator = torch.Generator().manual_seed(seed)
    pooled = torch.randn(1, 1280, generator=generator)
    return ([[torch.randn(1, 77, width, generator=generator), {"pooled_output": pooled}]],)


@node("Show", samples=("LATENT",))
def show_latents(samples):
    """Tells the latents of a batch: a VAE on a CPU would take longer than all the rest of a test."""
    return {"ui": {"latents": samples["samples"].tolist()}}


def note_line(text, node, *args, **kwargs):
    LINES.append(text.replace("\n", " "))  # as in the log
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
