"""The programs that make images, on their doubles and in Python, with one method to make one: see test_contract.py."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import torch
from diffusers import EulerDiscreteScheduler, HeunDiscreteScheduler, StableDiffusionPipeline

from tests.comfyui.helpers import DEFAULTS
from tests.models import TEXT_WIDTH, LatentDiffusion, pipeline, shallow_diffusers_unet, shallow_ldm_unet, snapshot
from tests.todo_core.comfyui import comfyui_double
from tests.todo_core.hosts.forge_double import Engine
from tests.todo_core.webui import webui_double
from tests.todo_core.webui.sdnext_double import PipelineProcessing, SDNext
from tests.todo_core.webui.webui_double import Interrupted, Processing, WebUI
from todo_core import patched
from todo_core.comfyui import NODE_CLASS_MAPPINGS
from todo_core.comfyui.inputs import MAIN
from todo_core.webui.extension import on_after_process

state = webui_double.shared.state

SIDE = 64  # pixels


def sample_euler(model, x, s_churn=0.0):
    """Named as k-diffusion's, which adds no noise."""


class Stop(BaseException):
    """As KeyboardInterrupt: torch runs no hook for it."""


@functools.cache
def ldm():
    return shallow_ldm_unet()


@functools.cache
def diffusers():
    return shallow_diffusers_unet()


class Host:
    """A program that makes an image of ``steps`` steps. Afterwards, ``line`` is what the user reads."""

    why_not_whole = "another forward is on the model"
    tells_cancels = True
    line, params = "", None  # params: of the infotext, if the program writes one

    def stop(self):
        """What ends the program inside a call of the UNet."""
        raise Stop

    def run(self, settings, steps=8, *, second_order=False, cancel_after=None):
        """The image, or None if the program makes none of a cancelled run. Nothing is left on the UNet."""
        before, self.line = snapshot(self.unet), ""
        try:
            return self.sample(settings, steps, second_order, cancel_after)
        finally:
            assert snapshot(self.unet) == before


class A1111(Host):
    def __init__(self, script, monkeypatch):
        self.webui = WebUI(script, self.model(ldm()))

    def model(self, unet):
        self.unet = unet
        return LatentDiffusion(unet, image_size=64)

    def stop(self):
        state.interrupted = True
        raise Interrupted

    def sample(self, settings, steps, second_order, cancel_after):
        p = Processing(width=SIDE, height=SIDE, enable_hr=False, steps=steps, calls_per_step=1 + second_order)
        p.after_step = lambda number: setattr(state, "interrupted", number + 1 == cancel_after)
        p.sampler_function = sample_euler
        try:
            return self.webui.generate(p, {"enabled": bool(settings), "passes": "first"} | (settings or {})).images[0]
        finally:
            self.line, self.params = "\n".join(p.comments), p.extra_generation_params
            state.begin()


class ForgeModel(Engine):
    """Gives each call the options that the patcher has then."""

    def __init__(self, unet):
        super().__init__(unet)
        self.model, self.parameters = SimpleNamespace(diffusion_model=self._run), self.unet.parameters

    def _run(self, x, timesteps, context):
        self.call.options = self.options["transformer_options"].copy()
        return self.unet(x, timesteps, context=context)


class Forge(A1111):
    def model(self, unet):
        model = ForgeModel(unet)
        self.unet = model.unet
        return model


class SDNextHost(Host):
    why_not_whole = "whole steps of a diffusers pipeline cannot be predicted"
    tells_cancels = False  # it has no event after one

    def __init__(self, script, monkeypatch):
        monkeypatch.setattr(webui_double.script_callbacks, "callbacks_after_process", [on_after_process])
        self.unet = diffusers()
        self.webui = SDNext(script, self.unet, monkeypatch)

    def sample(self, settings, steps, second_order, cancel_after):
        scheduler = HeunDiscreteScheduler() if second_order else None
        p = PipelineProcessing(width=SIDE, height=SIDE, enable_hr=False, steps=steps, scheduler=scheduler)
        p.interrupt_at = cancel_after and cancel_after - 1
        try:
            done = self.webui.generate(p, {"enabled": bool(settings), "passes": "first"} | (settings or {}))
            return done.images[0] if done.images else None
        finally:
            self.line, self.params = "\n".join(p.comments), p.extra_generation_params
            state.begin()


class ComfyUI(Host):
    def __init__(self, script, monkeypatch):
        self.shown = comfyui_double.install(monkeypatch)
        self.model = comfyui_double.model_of(ldm())
        self.unet = self.model.model.diffusion_model

    def sample(self, settings, steps, second_order, cancel_after):
        model = self._patched(settings) if settings else self.model
        sampler = SimpleNamespace(sampler_function=sample_euler, extra_options={})
        guider = comfyui_double.Guider(model, calls=1 + second_order, fail_at=cancel_after)
        try:
            return guider.sample(steps, (1, 4, SIDE // 8, SIDE // 8), sampler=sampler)
        except RuntimeError:
            return None
        finally:
            self.line = self.shown.pop()[0] if self.shown else ""

    def _patched(self, settings):
        main = {"start": 0.0, "end": 1.0} | {name: value for name, value in settings.items() if name in MAIN}
        rest = {name: value for name, value in settings.items() if name not in MAIN}
        others = NODE_CLASS_MAPPINGS["ToDoSettings"]().collect(**(DEFAULTS | rest))[0]
        return NODE_CLASS_MAPPINGS["ToDo"]().patch(self.model, "ToDo only", others, "7", **main)[0]


class Python(Host):
    """A diffusers pipeline in a user's own program. The user reads the session's record."""

    tells_cancels = False  # the user's own program has cancelled

    def __init__(self, script, monkeypatch):
        self.unet = diffusers()

    def sample(self, settings, steps, second_order, cancel_after):
        scheduler = HeunDiscreteScheduler() if second_order else EulerDiscreteScheduler()
        pipe = pipeline(StableDiffusionPipeline, scheduler, self.unet)
        if not settings:
            return self._image(pipe, steps, None)
        with patched(pipe, **settings) as session:
            try:
                return self._image(pipe, steps, cancel_after)
            finally:
                self.line = repr(session.record)

    def _image(self, pipe, steps, cancel_after):
        def after_step(pipe, number, timestep, tensors):
            pipe._interrupt = number + 1 == cancel_after
            return tensors

        words = torch.linspace(-1, 1, 7 * TEXT_WIDTH).reshape(1, 7, TEXT_WIDTH)
        text = {"prompt_embeds": words, "negative_prompt_embeds": -words, "guidance_scale": 3.0}
        size = {"height": SIDE, "width": SIDE, "num_inference_steps": steps, "output_type": "latent"}
        seed = torch.Generator().manual_seed(1)
        return pipe(**text, **size, generator=seed, callback_on_step_end=after_step).images[0]


HOSTS = [A1111, Forge, SDNextHost, ComfyUI, Python]
