"""The programs that make images as doubles in this process, and Python: the hosts of test_contract.py."""

import functools
import gc
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import diffusers
import torch

from tests import models
from tests.controlnet_double import ControlNet, script_with
from tests.todo_core.comfyui import comfyui_double
from tests.todo_core.hosts.forge_double import Engine
from tests.todo_core.webui import webui_double
from tests.todo_core.webui.sdnext_double import PipelineProcessing, SDNext
from tests.todo_core.webui.webui_double import Interrupted, Processing, ProcessingImg2Img, WebUI
from todo_core import patched
from todo_core.comfyui import NODE_CLASS_MAPPINGS
from todo_core.comfyui.inputs import MAIN
from todo_core.patching.facts import HELD
from todo_core.webui.extension import on_after_process

from .host import SEEN, Call, Host, Made
from .watch import Failed, Watch, foreign

SIDE = 64  # pixels
DEEP = (64, 4, 4)  # the deep transformer's channels and grid then
IDLE = ControlNet(models.shallow_ldm_unet(seed=4, num_res_blocks=1))  # chosen in a unit, and it never runs
state = webui_double.shared.state
unet_of_ldm, unet_of_diffusers = map(functools.cache, (models.shallow_ldm_unet, models.shallow_diffusers_unet))


@contextmanager
def remembered():
    """A list that gets how many tensors are alive in the end that the deep transformer has made meanwhile."""
    found = []
    gc.freeze()  # only newer objects are looked through
    try:
        yield found
    finally:
        gc.collect()
        found.append(sum(type(each) is torch.Tensor and each.shape[1:] == DEEP for each in gc.get_objects()))
        gc.unfreeze()


class Double(Host):
    """``sample`` makes the images; ``line`` and ``params`` are what the user gets then."""

    line, params, kept, has_deep_work = "", None, None, True

    def __init__(self, request):
        super().__init__(request)
        request.getfixturevalue("monkeypatch").setattr("todo_core.patching.planning.WORTH_PREDICTING", 0)  # it is small
        self.unets = [self.unet]
        self.controlnet = ControlNet(unet_of_ldm(seed=3, num_res_blocks=1))

    def stop(self):
        """What ends the program inside a call of the UNet."""
        raise KeyboardInterrupt

    def state(self):
        """What may be left."""
        return [models.snapshot(each) for each in (*self.unets, self.controlnet)]

    def cancel(self):
        """The user cancels the job."""
        raise NotImplementedError

    def make(self, job):
        watch = Watch(job.events, stop=self.stop, cancel=self.cancel)
        self.line, self.kept, error, images, inside = "", None, "", [], []
        to_k = self.controlnet.input_blocks[1][1].transformer_blocks[0].attn1.to_k  # at level 1
        with remembered() as tensors, self.beside(job.beside):
            before = self.state()
            of_controlnet = to_k.register_forward_pre_hook(lambda _, args: inside.append(args[0].shape[1]))
            with watch.on(type(self.unet)), of_controlnet:
                try:
                    images = [*self.sample(job)]
                except (Failed, KeyboardInterrupt, ZeroDivisionError) as raised:
                    error = repr(raised)
            left = sum(now != then for now, then in zip(self.state(), before, strict=True))
        calls = [Call(**{name: call[name] for name in SEEN}) for call in watch.calls]
        return Made(images, calls, self.line, self.params, error, left, *tensors, inside)

    @contextmanager
    def beside(self, what):
        """What of another extension is on the UNet; for a ControlNet a forward as sd-webui-controlnet's."""
        take_off = foreign(self.unet, what) if what else lambda: None
        yield
        take_off()


class A1111(Double):
    survives_a_stop = True

    def __init__(self, request):
        self.models = [self.model(unet_of_ldm()), self.model(unet_of_ldm(seed=5, num_res_blocks=1))]
        self.unet = self.unet_of(self.models[0])
        super().__init__(request)
        self.unets = [self.unet_of(model) for model in self.models]
        self.webui = WebUI(request.getfixturevalue("script"), self.models[0])

    def model(self, unet):
        return models.LatentDiffusion(unet, image_size=64)

    def unet_of(self, model):
        return model.model.diffusion_model

    def stop(self):
        self.cancel()
        raise Interrupted

    def cancel(self):
        state.interrupted = True

    @contextmanager
    def beside(self, what):
        with super().beside(what):
            if what == "controlnet":
                self.unet.forward = self._with_controlnet
            yield

    def _with_controlnet(self, x, timesteps=None, context=None, **kwargs):
        self.controlnet(x=x, hint=None, timesteps=timesteps, context=context)
        return type(self.unet).forward(self.unet, x, timesteps, context, **kwargs)

    def sample(self, job):
        p = self.request_of(job)
        asked = {"enabled": job.settings is not None, "passes": job.passes, **(job.settings or {})}
        try:
            images = self.webui.generate(p, asked).images
            self.kept = p
            return images
        finally:
            self.line, self.params = "\n".join(p.comments), dict(p.extra_generation_params)
            state.begin()

    def request_of(self, job):
        kind = ProcessingImg2Img if job.kind == "img2img" else Processing
        p = kind(**self.basics(job), split=job.split)
        p.sampler_function, p.eta = webui_double.SAMPLERS[job.sampler], 0.3 * (job.sampler == "ancestral")
        p.refiner = next(((number, self.models[1]) for number, event in job.events.items() if event == "swap"), None)
        runs = [self.controlnet] * 2 if job.beside == "controlnet" else []  # two units may share a network
        units = script_with(torch.nn.Conv2d(4, 4, 1), IDLE, None, *runs)
        p.scripts = SimpleNamespace(alwayson_scripts=[SimpleNamespace(), SimpleNamespace(latest_network=None), units])
        return p

    def basics(self, job):
        images = {"seeds": [*job.seeds], "batch_size": len(job.seeds), "steps": job.steps}
        return {"width": SIDE, "height": SIDE, "enable_hr": job.kind == "hires", **images}


class Forge(A1111):
    lacks = {"controlnet": "runs a ControlNet before the UNet's call, and ToDo leaves it alone"}

    def model(self, unet):
        return Engine(unet)

    def unet_of(self, model):
        return model.unet

    def state(self):
        patches = [{**model.options["transformer_options"].get("patches", {})} for model in self.models]
        return [*super().state(), *patches]


class SDNextHost(A1111):
    lacks = dict.fromkeys(("split", "swap", "controlnet"), "has pipelines, which do it in another way")
    not_whole = dict.fromkeys(("forward", "counter", "all"), str(HELD["pipeline"]))
    tells_cancels = survives_a_stop = False  # it has no event after one
    waits_with = 1  # it finds the passes out
    stop = Double.stop

    def __init__(self, request):
        self.unet = unet_of_diffusers()
        Double.__init__(self, request)
        monkeypatch, script = map(request.getfixturevalue, ("monkeypatch", "script"))
        monkeypatch.setattr(webui_double.script_callbacks, "callbacks_after_process", [on_after_process])
        self.webui = SDNext(script, self.unet, monkeypatch)

    def request_of(self, job):
        image = [torch.rand(1, 3, SIDE, SIDE, generator=torch.manual_seed(3))] if job.kind == "img2img" else []
        return PipelineProcessing(**self.basics(job), init_images=image, scheduler=scheduler_of(job))


def scheduler_of(job):
    kind = {"euler": "Euler", "heun": "Heun", "ancestral": "EulerAncestral"}[job.sampler]
    return getattr(diffusers, f"{kind}DiscreteScheduler")()


class ComfyUI(Double):
    tells_after_errors = True
    lacks = {"swap": "has a sampling for each model"}

    def __init__(self, request):
        self.shown = comfyui_double.install(request.getfixturevalue("monkeypatch"))
        self.model = comfyui_double.model_of(unet_of_ldm())
        self.unet = self.model.model.diffusion_model
        super().__init__(request)

    def cancel(self):
        self.guider.is_cancelled = True

    def sample(self, job):
        """Each pass is a sampling, and its model comes from the node or not."""
        names = ["first", "hires"] if job.kind == "hires" else [job.kind]
        latent = torch.zeros(1, 4, SIDE // 8, SIDE // 8)
        try:
            for name in names:
                is_ours = job.settings is not None and (name == "img2img" or job.passes in (name, "all"))
                latent = torch.nn.functional.interpolate(latent, scale_factor=1 + (name == "hires"))
                latent = self._sampling(job, self._patched(job.settings) if is_ours else self.model, latent)
            return latent
        except comfyui_double.Interrupted:
            return []
        finally:
            self.line = "\n".join(text for text, _ in self.shown)
            self.shown.clear()

    def _sampling(self, job, model, latent):
        control = comfyui_double.Control(None, previous=comfyui_double.Control(self.controlnet))
        conds = dict.fromkeys(("positive", "negative"), [{"control": control} if job.beside == "controlnet" else {}])
        self.guider = comfyui_double.Guider(model, conds, split=job.split)
        each = torch.cat([models.noise(1, *latent.shape[1:], seed=seed) for seed in job.seeds])
        options = {"eta": 0.3} if job.sampler == "ancestral" else {}
        function = comfyui_double.SAMPLERS[job.sampler].sampler_function
        sampler = SimpleNamespace(sampler_function=function, extra_options=options)
        return self.guider.sample(job.steps, seed=job.seeds[0], sampler=sampler, begin=(each, latent))

    def _patched(self, settings):
        main = {name: value for name, value in settings.items() if name in MAIN}
        rest = {name: value for name, value in settings.items() if name not in MAIN}
        others = NODE_CLASS_MAPPINGS["ToDoSettings"]().collect(**rest)[0]
        return NODE_CLASS_MAPPINGS["ToDo"]().patch(self.model, "Balanced", others, "7", **main)[0]


class Python(Double):
    """A diffusers pipeline in a user's own program. The user reads the session's record."""

    lacks = dict.fromkeys(("hires", "img2img"), "has no passes") | SDNextHost.lacks
    tells_cancels = False  # the user's own program has cancelled
    tells_after_errors = raises_our_errors = counts_steps = keeps_its_patch = True
    waits_with = None

    def __init__(self, request):
        self.unet = unet_of_diffusers()
        super().__init__(request)

    def cancel(self):
        self.pipe._interrupt = True

    def sample(self, job):
        self.pipe = models.pipeline(diffusers.StableDiffusionPipeline, scheduler_of(job), self.unet)
        if job.settings is None:
            return self._images(job)
        with patched(self.pipe, **job.settings) as session:
            try:
                return self._images(job)
            except KeyboardInterrupt:
                if not job.again:
                    raise
                return self._images(replace(job, seeds=(job.again,)))
            finally:
                self.line, self.kept = repr(session.record), session

    def _images(self, job):
        words = models.words(1).expand(len(job.seeds), -1, -1)
        text = {"prompt_embeds": words, "negative_prompt_embeds": -words, "guidance_scale": 3.0}
        size = {"height": SIDE, "width": SIDE, "num_inference_steps": job.steps, "output_type": "latent"}
        return self.pipe(**text, **size, generator=[torch.Generator().manual_seed(seed) for seed in job.seeds]).images


HOSTS = [A1111, Forge, SDNextHost, ComfyUI, Python]
