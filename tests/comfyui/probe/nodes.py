"""The nodes of the probe, and routes that tell what was seen."""

import time

import torch
from aiohttp import web
from comfy import model_management
from comfy.patcher_extension import WrappersMP, add_wrapper_with_key
from server import PromptServer

from . import sampling_contract

SEEN = []  # of each sampling: the name of its probe, and its UNet calls with the lengths of all self-attentions


class Watch:
    """Model in, model out: notes (queries, keys) of every self-attention while the model samples."""

    CATEGORY, FUNCTION, RETURN_TYPES = "todo probe", "patch", ("MODEL",)

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "model": ("MODEL",),
                "name": ("STRING", {"default": ""}),
                "delay": ("FLOAT", {"default": 0.0}),
                "fail_at": ("INT", {"default": -1, "min": -1}),
            }
        }

    def patch(self, model, name, delay, fail_at):
        model = model.clone()

        def sample(executor, *args, **kwargs):
            unet, calls = executor.class_obj.model_patcher.model.diffusion_model, []
            SEEN.append({"name": name, "calls": calls})

            def begin(module, args, kwargs):
                calls.append({"latent": list(args[0].shape), "lengths": [], "transformers": 0})
                if len(calls) - 1 == fail_at:
                    raise RuntimeError("the probe was told to fail")
                time.sleep(delay)

            handles = [unet.register_forward_pre_hook(begin, with_kwargs=True)]
            for path, module in unet.named_modules():
                if path.endswith("attn1"):
                    handles += _note_lengths(module, calls)
                if path.endswith("norm") and hasattr(unet.get_submodule(path.removesuffix(".norm")), "proj_in"):
                    handles.append(module.register_forward_pre_hook(lambda *_: _count(calls)))
            try:
                return executor(*args, **kwargs)
            finally:
                for handle in handles:
                    handle.remove()

        model.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, "todo_probe", sample)
        return (model,)


def _count(calls):
    calls[-1]["transformers"] += 1


def _note_lengths(attention, calls):
    lengths = [0]

    def queries(module, args):
        lengths[0] = args[0].shape[1]

    def keys(module, args):
        calls[-1]["lengths"].append([lengths[0], args[0].shape[1]])

    return attention.to_q.register_forward_pre_hook(queries), attention.to_k.register_forward_pre_hook(keys)


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


class NoUNet:
    """A model that is no UNet of SD 1, SD 2 or SDXL: the given one with another network inside."""

    CATEGORY, FUNCTION, RETURN_TYPES = "todo probe", "make", ("MODEL",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"model": ("MODEL",)}}

    def make(self, model):
        import copy

        class Predictor(torch.nn.Module):
            dtype = torch.float32

            def forward(self, x, *args, **kwargs):
                return x * 0.5

        model, inner = model.clone(), copy.copy(model.model)
        inner._modules = {**inner._modules, "diffusion_model": Predictor()}
        model.model = inner
        return (model,)


class Show:
    """Tells the latents of a batch: a VAE on a CPU would take longer than all the rest of a test."""

    CATEGORY, FUNCTION, RETURN_TYPES, OUTPUT_NODE = "todo probe", "show", (), True

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"samples": ("LATENT",)}}

    def show(self, samples):
        return {"ui": {"latents": samples["samples"].tolist()}}


@PromptServer.instance.routes.get("/todo-probe/seen")
async def seen(request):
    """What was seen since the last time."""
    answer = list(SEEN)
    SEEN.clear()
    return web.json_response(answer)


@PromptServer.instance.routes.get("/todo-probe/left")
async def left(request):
    """Hooks and forwards on all loaded models, and patches of self-attention in their options."""
    models = [loaded.model for loaded in model_management.current_loaded_models if loaded.model]
    modules = [module for model in models for module in model.model.modules()]
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules)
    return web.json_response(
        {"models": len(models), "hooks": hooks, "forwards": sum("forward" in vars(m) for m in modules)}
    )


NODE_CLASS_MAPPINGS = {f"ToDoProbe{each.__name__}": each for each in (Watch, Words, Show, Contract, NoUNet)}
