"""The contract of all programs on the real ComfyUI: the passes of a job are samplings of one graph."""

import itertools

import pytest
import torch

from tests.todo_core.contract.host import SEEN, Call, Host, Made
from tests.todo_core.contract.test_contract import *  # noqa: F403

from .helpers import new_seed, text_to_image

SAMPLERS = {"euler": "euler", "heun": "heun", "ancestral": "euler_ancestral"}
RUN, NAMES = new_seed(), itertools.count()  # equal graphs would not run again


class RealComfyUI(Host):
    tells_after_errors = True
    waits_with = None  # keys are reduced by patches in the options
    lacks = {
        "swap": "has a sampling for each model",
        "split": "decides that by its memory",
        "controlnet": "is asked for it in test_samplings.py",
        "batch": "draws the noise of a batch from one seed",
    }

    def __init__(self, request):
        super().__init__(request)
        self.comfyui = request.getfixturevalue("comfyui")

    def make(self, job):
        kinds = ["first", "hires"] if job.kind == "hires" else [job.kind]
        ours = [job.settings if job.passes in (kind, "all") or kind == "img2img" else None for kind in kinds]
        events = [{n - i * job.steps: event for n, event in job.events.items()} for i in range(len(kinds))]
        happens = [{**each, **({"beside": job.beside} if job.beside else {})} for each in events]
        options = {"seed": job.seeds[0], "sampler_name": SAMPLERS[job.sampler], "steps": job.steps}
        options |= {"denoise": 0.5 if job.kind == "img2img" else 1.0, "name": f"{RUN} {next(NAMES)}"}
        result = self.comfyui.run(text_to_image(self.comfyui, *ours, happens=happens, **options))
        calls = [Call(**{name: call[name] for name in SEEN}) for seen in result.seen for call in seen["calls"]]
        images = [torch.from_numpy(latent) for latent in result.latents]
        return Made(images[-1:], calls, "\n".join(result.lines), None, result.error, *self.comfyui.left())


@pytest.fixture
def host(request):
    return RealComfyUI(request)
