"""A WebUI extension for these tests: what the real WebUI's UNet was given, served as JSON, and faults on demand.

It wraps ``__call__`` of the WebUI's denoiser and UNet classes. Only while a UNet call runs, it has hooks of its own,
those of tests/todo_core/contract/watch.py.
"""

import contextlib
import hashlib
import importlib.util
import sys
import weakref
from pathlib import Path

import torch
from fastapi import Body
from modules import script_callbacks, shared

try:
    from modules.sd_samplers_cfg_denoiser import CFGDenoiser
except ImportError:  # SD.Next has none
    CFGDenoiser = None

UNETS = (
    "ldm.modules.diffusionmodules.openaimodel.UNetModel",
    "sgm.modules.diffusionmodules.openaimodel.UNetModel",
    "backend.nn.unet.IntegratedUNet2DConditionModel",  # Forge
    "ldm_patched.ldm.modules.diffusionmodules.openaimodel.UNetModel",  # Forge Classic, reForge
)
CONTROLNET = "scripts.cldm.ControlNet"  # of sd-webui-controlnet
FAMILY = "forge" if importlib.util.find_spec("modules_forge") else "a1111" if CFGDenoiser else "sdnext"
sys.path.append(str(Path(__file__).resolve().parents[3] / "todo_core" / "contract"))
import watch  # noqa: E402


class Probe:
    """What has been seen since the last ``start``."""

    def __init__(self):
        self.unets = weakref.WeakSet()
        self.end_beside = lambda: None
        self.start({})

    def start(self, happens):
        """Forget; let this happen in the UNet's calls, by their number, with another extension's forward beside it."""
        self.end_beside()
        if beside := happens.pop("beside", ""):
            self.end_beside = watch.foreign(unet_of(shared.sd_model), beside)
        self.events = []
        self.watch, self.inside = watch.Watch(happens, **ENDS), watch.Watch()


def stop():
    shared.state.interrupted = True
    raise importlib.import_module("modules.sd_samplers_common").InterruptedException


ENDS = {"stop": stop, "cancel": lambda: shared.state.interrupt()}
probe = Probe()


def hooks_everywhere():
    """The same for every model that has run and is still in memory, and patches on the current model."""
    return sum(map(watch.hooks_on, probe.unets)) + patches_of(shared.sd_model)


def patches_of(model):
    """How many patches of the extension are in the options of a model of the Forge family."""
    attributes = getattr(model, "__dict__", {})  # None after a checkpoint that could not be loaded
    objects = [value for name, value in attributes.items() if name.startswith("forge_objects") and value]
    patchers = {id(found.unet): found.unet for found in objects}.values()
    chains = [patcher.model_options.get("transformer_options", {}).get("patches", {}) for patcher in patchers]
    patches = [patch for chain in chains for patch in chain.get("attn1_patch", ())]
    return sum(patch.__module__.startswith("todo_core") for patch in patches)


def unet_of(model):
    """The UNet of the WebUI's model."""
    if FAMILY == "sdnext":
        return model.unet
    objects = getattr(model, "forge_objects", None)
    return (objects.unet if objects else model).model.diffusion_model


def observe(*paths):
    """Watch the calls of those of these classes that this WebUI has."""
    for path in paths:
        module, _, name = path.rpartition(".")
        with contextlib.suppress(ImportError):
            getattr(importlib.import_module(module), name).__call__ = observed_call


def observed_step(denoiser, x, *args, **kwargs):
    """Stands in for the denoiser's __call__: one event a step."""
    note(denoiser.p, x, step=denoiser.step, total=denoiser.total_steps)
    return torch.nn.Module.__call__(denoiser, x, *args, **kwargs)


def observed_pipeline_call(unet, latent, timestep, *args, **kwargs):
    """Stands in for the __call__ of diffusers' UNet: one event a call, for no denoiser is around it."""
    p = importlib.import_module("modules.processing_callbacks").p
    note(p, latent, timestep=float(timestep))
    return observed_call(unet, latent, timestep, *args, **kwargs)


def note(p, latent, **more):
    """An event of the pass that is under way."""
    event = {
        "hires": bool(getattr(p, "is_hr_pass", False)),
        "latent": hashlib.sha256(latent.detach().cpu().contiguous().numpy().tobytes()).hexdigest(),
        "hooks_before": hooks_everywhere(),
        "calls": [],
    }
    probe.events.append(event | more)


def observed_call(network, *args, **kwargs):
    """Stands in for the __call__ of a UNet, or of a ControlNet inside of it."""
    probe.unets.add(network)
    kind = type(network).__name__
    watching = probe.inside if kind == "ControlNet" else probe.watch
    call = watching.begin(network, *args, **kwargs)
    call |= {"unet": id(network), "class": kind}
    if probe.events:
        probe.events[-1]["calls"].append(call)
    return watching.run(network, torch.nn.Module.__call__, *args, **kwargs)


if CFGDenoiser:
    CFGDenoiser.__call__ = observed_step
    observe(*UNETS)
else:
    importlib.import_module("diffusers").UNet2DConditionModel.__call__ = observed_pipeline_call


def add_routes(_, app):
    observe(CONTROLNET)  # loaded after this file

    @app.get("/todo-probe/events")
    def events():
        return probe.events

    @app.post("/todo-probe/start")
    def start(happens: dict = Body()):  # noqa: B008  as FastAPI wants it
        """Forget what has been seen. ``happens`` has events of the contract by the number of a call of the UNet."""
        probe.start(happens)

    @app.get("/todo-probe/left")
    def left():
        """Hooks and patches of the extension on any model, and tensors of calls in memory."""
        return [hooks_everywhere(), probe.watch.remembered()]

    @app.get("/todo-probe/callbacks")
    def callbacks():
        """Files whose functions the WebUI calls at each denoiser step."""
        return [callback.script for callback in script_callbacks.callback_map["callbacks_cfg_denoiser"]]

    @app.get("/todo-probe/lora")
    def lora():
        """The folder of LoRAs, and the channels of the first self-attention of the current UNet."""
        block = next(block for block in unet_of(shared.sd_model).modules() if hasattr(block, "attn1"))
        folder = getattr(shared.cmd_opts, "lora_dir", "") or shared.opts.lora_dir
        return [str(folder), block.attn1.to_k.weight.shape[1]]

    @app.get("/todo-probe/family")
    def family():
        """The family of this WebUI: "a1111", "forge" or "sdnext"."""
        return FAMILY


script_callbacks.on_app_started(add_routes)
