"""Generations as SD.Next runs them, as it was logged there: diffusers pipelines, and no event for a pass or a step."""

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
from diffusers import EulerDiscreteScheduler, StableDiffusionImg2ImgPipeline, StableDiffusionPipeline
from modules import script_callbacks, shared

from tests.models import pipeline, words
from tests.todo_core.webui.webui_double import Processing, WebUI


@dataclass(eq=True)
class PipelineProcessing(Processing):
    """SD.Next's ``p``: every one has a list of images to begin with."""

    init_images: list = field(default_factory=list)
    task_args: dict = field(default_factory=dict)
    scheduler: object = None
    own_job: object = None  # run by another script inside this one, as an X/Y/Z plot runs its cells
    no_unet: bool = False  # a model of another kind, whose pipeline makes noise here

    def get_token_merging_ratio(self, for_hr=False):
        raise AttributeError("SD.Next has no such method")


class SDNext(WebUI):
    """Runs a script through generations on ``unet``."""

    def __init__(self, script, unet, monkeypatch):
        self.script, self.unet = script, unet
        self.callbacks = SimpleNamespace(p=None)
        monkeypatch.setattr(sys.modules["modules"], "processing_callbacks", self.callbacks, raising=False)
        self.load()

    def load(self):
        """Load ``unet`` as a checkpoint."""
        shared.sd_model = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), self.unet)

    def generate(self, p, *args):
        self.args, self.errors = args, []
        self.script.is_img2img = bool(p.init_images)
        self._call("before_process", p)
        try:
            processed = self._process(p)
        finally:
            for callback in script_callbacks.callbacks_after_process:
                callback(p)
        assert not self.errors, self.errors
        return processed

    def _process(self, p):
        processed = super()._process(p)
        processed.comments = ""  # SD.Next leaves those of ``p`` out
        if not shared.state.interrupted:
            self._call("postprocess", p, processed)
        return processed

    def _end_batch(self, p, samples, number):
        self._call("postprocess_batch", p, samples, batch_number=number)

    def _sample(self, p):
        if p.no_unet:
            return torch.randn(1, 4, 16, 16)
        kind = StableDiffusionImg2ImgPipeline if p.init_images else StableDiffusionPipeline
        samples = self._run(p, kind, p.init_images)
        if p.own_job:
            self._run(p.own_job, StableDiffusionPipeline, [])
        if p.enable_hr and not shared.state.interrupted:
            p.is_hr_pass = True
            larger = torch.nn.functional.interpolate(samples, scale_factor=p.hr_scale)
            samples = self._run(p, StableDiffusionImg2ImgPipeline, larger)
            p.is_hr_pass = False
        return None if shared.state.interrupted else samples

    def _run(self, p, kind, image):
        """One pipeline call; an interrupt and an error in it end the generation."""
        shared.sd_model = pipe = pipeline(kind, p.scheduler or EulerDiscreteScheduler(), self.unet)
        self.callbacks.p = p

        def after_step(_, number, timestep, tensors):
            if shared.state.interrupted:
                raise AssertionError("Interrupted...")
            return tensors

        text = words(1).expand(len(p.seeds), -1, -1)
        request = {"prompt_embeds": text, "negative_prompt_embeds": -text, "guidance_scale": 3.0}
        request |= {"output_type": "latent", "callback_on_step_end": after_step, "num_inference_steps": p.steps}
        request["generator"] = [torch.Generator().manual_seed(seed) for seed in p.seeds]
        if len(image):
            request |= {"image": image if isinstance(image, torch.Tensor) else torch.cat(image), "strength": 0.5}
            request["num_inference_steps"] = 2 * p.steps
        else:
            request |= {"height": p.height, "width": p.width}
        try:
            return pipe(**request).images
        except (AssertionError, RuntimeError):
            shared.state.interrupted = True
            return None
