"""ComfyUI in small: a patcher, its clones and wrappers, and a sampling, in the real one's order. See tests/comfyui.

The blocks of ldm's UNet call the patches as the real ones do: those of the Forge family do it in the same way.
"""

import copy
from types import ModuleType, SimpleNamespace

import torch
from ldm.modules.attention import SpatialTransformer
from torch import nn

from tests import samplers_double
from tests.models import noise, words
from tests.todo_core.hosts.forge_double import Patcher, let_patch


class WrappersMP:
    OUTER_SAMPLE = "outer_sample"
    PREDICT_NOISE = "predict_noise"
    DIFFUSION_MODEL = "diffusion_model"
    CALC_COND_BATCH = "calc_cond_batch"


SAMPLERS = {
    name: SimpleNamespace(sampler_function=function, extra_options={})
    for name, function in samplers_double.of("comfy.k_diffusion.sampling").items()
}


class Sampling:
    """The conversions of a model that predicts the noise; its input is divided by the whole of latent and noise."""

    def noise_scaling(self, sigma, noise, latent):
        return latent + sigma * noise

    def calculate_input(self, sigma, latent):
        return latent / (sigma**2 + 1) ** 0.5

    def calculate_denoised(self, sigma, output, latent):
        return latent - sigma * output


def add_wrapper_with_key(kind, key, wrapper, options, is_model_options=False):
    options = options.setdefault("transformer_options", {}) if is_model_options else options
    options.setdefault("wrappers", {}).setdefault(kind, {}).setdefault(key, []).append(wrapper)


def _wrappers(kind, options):
    of_kind = options.get("transformer_options", options).get("wrappers", {}).get(kind, {})
    return [wrapper for of_key in of_kind.values() for wrapper in of_key]


class Executor:
    """Calls the wrappers, the first outermost, and then the original."""

    def __init__(self, original, class_obj, wrappers):
        self.original, self.class_obj, self.wrappers = original, class_obj, wrappers

    def __call__(self, *args, **kwargs):
        if not self.wrappers:
            return self.original(*args, **kwargs)
        first, *others = self.wrappers
        return first(Executor(self.original, self.class_obj, others), *args, **kwargs)


class ModelPatcher(Patcher):
    """It has wrappers too."""

    def __init__(self, model):
        super().__init__(model)
        self.wrappers = {}

    def clone(self):
        clone = super().clone()
        clone.wrappers = {kind: {key: [*of] for key, of in keys.items()} for kind, keys in self.wrappers.items()}
        return clone

    def add_wrapper_with_key(self, kind, key, wrapper):
        self.wrappers.setdefault(kind, {}).setdefault(key, []).append(wrapper)

    def remove_wrappers_with_key(self, kind, key):
        self.wrappers.get(kind, {}).pop(key, None)


class UNet(nn.Module):
    """The UNet with the wrappers around its forward; each block is told its options."""

    def __init__(self, unet):
        super().__init__()
        inner = copy.deepcopy(unet)
        for name, module in inner.named_children():  # the adapter looks for the parts on the UNet itself
            setattr(self, name, module)
        vars(self)["_inner"], self.call = inner, SimpleNamespace(options={})
        self.dtype = torch.float32
        let_patch(inner, self.call)
        stages = {"input": inner.input_blocks, "middle": [inner.middle_block], "output": inner.output_blocks}
        for name, parts in stages.items():
            for number, part in enumerate(parts):
                for module in (m for m in part.modules() if isinstance(m, SpatialTransformer)):
                    for i, block in enumerate(module.transformer_blocks):
                        block.register_forward_pre_hook(lambda *_, p=(name, number), i=i: self._tell(p, i))

    def _tell(self, place, i):
        self.call.options = {**self.call.options, "block": place, "block_index": i}

    def forward(self, x, timesteps=None, context=None, y=None, control=None, transformer_options=None):
        options = transformer_options or {}
        run = Executor(self._forward, self, _wrappers("diffusion_model", options))
        return run(x, timesteps, context, y, control, options)

    def _forward(self, x, timesteps, context, y, control, transformer_options):
        self.call.options = transformer_options
        return self._inner(x, timesteps, [context] * 2)


class Control:
    """What a condition has of a ControlNet, and of the one before it. A T2I adapter has no network."""

    def __init__(self, network, previous=None, sigmas=None):
        self.control_model, self.previous_controlnet, self.timestep_range = network, previous, sigmas

    def get_control(self, x, time, text):
        if self.previous_controlnet:
            self.previous_controlnet.get_control(x, time, text)
        if self.control_model:
            self.control_model(x=x, hint=None, timesteps=time, context=text)


class Interrupted(Exception):
    """As ComfyUI's InterruptProcessingException."""


class Guider:
    """Samples with a sampler, by Euler's method without one.

    ``split`` is as with little memory: each half of the guidance has a call of its own.
    """

    is_cancelled, cfg = False, 3

    def __init__(self, patcher, conds=None, split=False):
        self.model_patcher, self.model_options = patcher, patcher.model_options
        self.inner_model = SimpleNamespace(model_sampling=patcher.model.model_sampling)
        self.conds = conds or {"positive": [{}], "negative": [{}]}
        self.split = split

    @torch.no_grad()
    def sample(self, steps=4, shape=(1, 4, 16, 16), seed=0, sampler=None, *, sigmas=None, begin=None):
        """``sigmas`` may be others than those of ``steps``; ``begin`` is (noise, latent)."""
        own = self.model_options
        self.model_options = {"transformer_options": copy.copy(own["transformer_options"])}
        self.model_options["transformer_options"]["wrappers"] = copy.deepcopy(self.model_patcher.wrappers)
        sigmas = torch.tensor([*torch.linspace(2, 0.2, steps), 0.0] if sigmas is None else sigmas)
        begin = begin or (noise(*shape, seed=seed), torch.zeros(shape))
        run = Executor(self._outer_sample, self, _wrappers("outer_sample", self.model_options))
        try:
            return run(*begin, sampler or SAMPLERS["euler"], sigmas, None, None, False, seed)
        finally:
            self.model_options = own

    def _outer_sample(self, noise, latent, sampler, sigmas, mask, callback, disable, seed):
        options = copy.copy(self.model_options)
        options["transformer_options"] = {**options["transformer_options"], "sample_sigmas": sigmas}
        given = {"extra_args": {"model_options": options, "seed": seed}, "callback": self._end_step, "disable": True}
        x = latent + noise * sigmas[0]
        return sampler.sampler_function(self, x, sigmas, **given, **sampler.extra_options)

    def _end_step(self, _):
        if self.is_cancelled:
            raise Interrupted

    def __call__(self, x, sigma, model_options, seed):
        run = Executor(self.predict_noise, self, _wrappers("predict_noise", self.model_options))
        return run(x, sigma, model_options, seed)

    def predict_noise(self, x, sigma, model_options, seed=None):
        run = Executor(self._calc_cond_batch, self, _wrappers("calc_cond_batch", model_options))
        cond, uncond = run(self.inner_model, [self.conds["positive"], self.conds["negative"]], x, sigma, model_options)
        return uncond + self.cfg * (cond - uncond)

    def _calc_cond_batch(self, model, conds, x, sigma, model_options):
        x_in = model.model_sampling.calculate_input(sigma[0], torch.cat([x, x]))
        text = words(2).repeat_interleave(len(x), 0)
        halves = len(x) if self.split else 2 * len(x)
        parts = zip(x_in.split(halves), text.split(halves), [[1], [0]] if self.split else [[1, 0]], strict=True)
        uncond, cond = torch.cat([self._call(*part, sigma, model_options) for part in parts]).chunk(2)
        return [model.model_sampling.calculate_denoised(sigma[0], each, x) for each in (cond, uncond)]

    def _call(self, x, text, parts, sigma, model_options):
        """A call of the UNet, after those of its ControlNets."""
        time = torch.full((len(x),), min(999, float(sigma[0]) * 450))
        for control in (cond["control"] for cond in self.conds["positive"] if "control" in cond):
            control.get_control(x, time, text)
        options = {**model_options["transformer_options"], "cond_or_uncond": parts}
        return self.model_patcher.model.diffusion_model(x, time, context=text, transformer_options=options)


Guider.__module__ = "comfy.samplers"


def model_of(unet):
    """A patcher of a model with this UNet."""
    model = nn.Module()
    model.diffusion_model, model.model_type = UNet(unet), SimpleNamespace(name="EPS")
    model.model_sampling = Sampling()
    return ModelPatcher(model)


def install(monkeypatch):
    """Put the double in the place of ComfyUI's modules; returns the texts that nodes show, with the node's id.

    The texts are in one line, as in the log.
    """
    shown = []

    def show(text, node):
        shown.append((text.replace("\n", " "), node))

    comfy, extension, server = ModuleType("comfy"), ModuleType("comfy.patcher_extension"), ModuleType("server")
    extension.WrappersMP, extension.add_wrapper_with_key = WrappersMP, add_wrapper_with_key
    comfy.patcher_extension = extension
    instance = SimpleNamespace(send_progress_text=show, on_prompt_handlers=[])
    instance.add_on_prompt_handler = instance.on_prompt_handlers.append
    server.PromptServer = SimpleNamespace(instance=instance)
    for name, module in (("comfy", comfy), ("comfy.patcher_extension", extension), ("server", server)):
        monkeypatch.setitem(__import__("sys").modules, name, module)
    return shown
