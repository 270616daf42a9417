"""The contract of all programs on the real WebUI. Its calls are those of the UNet, as the probe has seen them."""

import pytest
import torch

from tests.todo_core.contract.host import SEEN, Call, Host, Made
from tests.todo_core.contract.test_contract import *  # noqa: F403
from todo_core.patching.facts import HELD

from ..helpers import Refused, Result, todo_keys

SAMPLERS = {"euler": "Euler", "heun": "Heun", "ancestral": "Euler a"}
GREY_LEVEL = 1e-4  # the cases allow a difference of twice as much: images are rounded


class RealWebUI(Host):
    survives_a_stop, has_deep_work = True, None
    lacks = {"controlnet": "has ControlNet as another extension: see test_extensions.py"}

    def __init__(self, request):
        super().__init__(request)
        self.webui, self.other = request.getfixturevalue("webui"), request.config.getoption("--webui-other-checkpoint")
        if self.webui.family == "sdnext":
            pipelines = dict.fromkeys(("stop", "stop before"), "ends in its own way") | {"split": "joins both halves"}
            shares = {"hires": "runs a share of the steps: see test_sdnext.py", "swap": "runs a refiner as a pipeline"}
            self.lacks = self.lacks | pipelines | shares
            self.not_whole = dict.fromkeys(("forward", "counter", "all"), str(HELD["pipeline"]))
            self.tells_cancels, self.waits_with = False, None
        if not self.other:
            self.lacks = self.lacks | {"swap": "needs a checkpoint given with --webui-other-checkpoint"}

    def make(self, job):
        settings = None if job.settings is None else {**job.settings, "passes": job.passes}
        happens = {number: event for number, event in job.events.items() if event != "swap"}
        request = {
            "seed": job.seeds[0],
            "batch_size": len(job.seeds),
            "sampler_name": SAMPLERS[job.sampler],
            "steps": job.steps,
            "happens": happens | ({"beside": job.beside} if job.beside else {}),
        }
        if job.split:
            request["override_settings"] = {"batch_cond_uncond": False}
        if len(happens) < len(job.events):
            switch = next(number for number, event in job.events.items() if event == "swap")
            request |= {"refiner_checkpoint": self.other, "refiner_switch_at": switch / job.steps}
            if self.webui.is_neo:  # else it switches at this noise
                request["override_settings"] = {"refiner_use_steps": True}
        try:
            result, error = self._images(job.kind, settings, request), ""
        except Refused as refused:
            result, error = Result([], {}, self.webui.events()), str(refused)
        calls = [Call(**{name: call[name] for name in SEEN}) for call in result.calls]
        for number, call in enumerate(calls):
            if job.sampler == "heun" and self.webui.family != "sdnext":
                call.time = number  # each of its calls is a step there
        hooks, remembered = self.webui.left()
        hooks += result.hooks_left * (self.webui.family != "sdnext")  # there one finds the passes out
        images = [torch.tensor(picture) * GREY_LEVEL for picture in result.pictures[-len(job.seeds) :]]
        keys = todo_keys(result.infotext) if images else {}
        return Made(images, calls, result.comments.strip(), keys, error, hooks, remembered)

    def _images(self, kind, settings, request):
        if kind != "img2img":
            hires = {"enable_hr": kind == "hires", "hr_second_pass_steps": request["steps"]}
            return self.webui.txt2img(settings, **request, **hires)
        image = self.webui.baseline(enable_hr=False).base64_images[0]
        return self.webui.img2img(image, settings, denoising_strength=0.99, **request)


@pytest.fixture
def host(request):
    return RealWebUI(request)
