"""Generations in the WebUI's true order of events, as it was logged there, with a real UNet and a plain Euler sampler.

tests/todo_core/contract has the cases that run on it and on the real one.
"""

import contextlib
import importlib.util
import inspect
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import torch
from modules import processing, script_callbacks, shared

from tests import samplers_double

ROOT = Path(__file__).parents[3]
NOTHING_PREDICTED = {"ToDo interval": "auto (1)"}  # of the infotext, where a pass is too short for auto


def load_script(name="todo"):
    """Load scripts/NAME.py as the WebUI does: by path, as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"{name}.py", ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Interrupted(BaseException):
    """As the WebUI's InterruptedException: ``except Exception`` does not catch it, and torch runs no hook for it."""


@dataclass(eq=True)  # with eq and so without a hash, as the WebUI's
class Processing:
    """The WebUI's ``p``, as far as it matters."""

    width: int = 64
    height: int = 64
    steps: int = 4
    seeds: list = field(default_factory=lambda: [1])
    batch_size: int = 1
    n_iter: int = 1
    enable_hr: bool = True
    hr_scale: int = 2
    split: bool = False  # the WebUI's "batch cond/uncond" off
    sampler_function: object = None  # one of those below; None is another extension's sampler
    cfg_scale: float = 3.0
    s_churn: float = 0.0
    eta: float = 0.0
    extra_generation_params: dict = field(default_factory=dict)
    comments: dict = field(default_factory=dict)
    is_hr_pass: bool = False
    sampler: object = None
    refiner: tuple | None = None  # (step, model)
    after_step: object = None  # called with each step's number between two denoiser calls, as a live preview is
    prompt: str = "a cat"
    only_hires: bool = False  # the upscale button under a result
    one_sampler: bool = False  # for all passes and batches, as with Tiled Diffusion
    ngms: tuple = ()  # steps without the negative prompt, by "Negative Guidance minimum sigma"

    def comment(self, text):
        self.comments[text] = 1

    def get_token_merging_ratio(self, for_hr=False):
        return (for_hr and shared.opts.token_merging_ratio_hr) or shared.opts.token_merging_ratio


@dataclass(eq=True)
class ProcessingImg2Img(Processing):
    init_images: list = field(default_factory=list)
    enable_hr: bool = False


class CFGDenoiser(torch.nn.Module):
    """Cond and uncond in one UNet call or in two; the refiner is swapped in before the callback."""

    classic_ddim_eps_estimation = False  # the Forge family's: callbacks get the noise of a timestep

    def __init__(self, p, sampler):
        super().__init__()
        self.p, self.sampler, self.step, self.steps, self.total_steps = p, sampler, 0, None, None

    def forward(self, x, sigma):
        p = self.p
        if shared.state.interrupted or shared.state.skipped:
            raise Interrupted
        if p.refiner and self.step == p.refiner[0]:
            shared.sd_model = p.refiner[1]
        x_in = torch.cat([x, x])
        told = sigma
        if self.classic_ddim_eps_estimation:
            told = (1 / self.inner_model.inner_model.alphas_cumprod[sigma.long()] - 1) ** 0.5
        for callback in script_callbacks.callbacks_cfg_denoiser:
            callback(SimpleNamespace(x=x_in, sigma=told.repeat(2), denoiser=self))
        if self.step in p.ngms:
            p.extra_generation_params["NGMS"] = 4.0
            outputs = self._model(x, sigma).repeat(2, 1, 1, 1)
        else:
            outputs = torch.cat([self._model(part, sigma) for part in ([x, x] if p.split else [x_in])])
        cond, uncond = outputs.chunk(2)
        self.step += 1
        noise = uncond + p.cfg_scale * (cond - uncond)
        return noise if self.sampler.is_timed else x - sigma[0] * noise

    @property
    def inner_model(self):
        """k-diffusion's or the WebUI's wrapper of the model; the model has the noise of its timesteps."""
        return SimpleNamespace(inner_model=shared.sd_model)

    def _model(self, x, sigma):
        """A call of the model of the moment."""
        x = x if self.sampler.is_timed else x / (1 + sigma[0] ** 2) ** 0.5
        timesteps = torch.full((x.shape[0],), 999.0 * (1 - self.step / self.total_steps))
        context = torch.linspace(-1, 1, 7 * 32).reshape(1, 7, 32).expand(x.shape[0], -1, -1)
        return shared.sd_model.model.diffusion_model(x, timesteps, context=context.to(x))


SAMPLERS = samplers_double.of("k_diffusion.sampling") | {
    "ddim": samplers_double.of("modules.sd_samplers_timesteps_impl")["ddim"]
}


class Sampler:
    def __init__(self, p):
        self.model_wrap_cfg = CFGDenoiser(p, self)
        self.func = p.sampler_function or (lambda *args, **kwargs: SAMPLERS["euler"](*args, **kwargs))
        self.is_timed = self.func is SAMPLERS["ddim"]
        prompt = [SimpleNamespace(weight=1.0)]
        self.sampler_extra_args = {"cond": SimpleNamespace(batch=[prompt] * len(p.seeds))}

    def sample(self, p, x):
        self.p, self.last_latent, denoiser = p, x, self.model_wrap_cfg
        calls = 1 + (self.func is SAMPLERS["heun"])
        denoiser.step, denoiser.steps, denoiser.total_steps = 0, p.steps, p.steps * calls
        extra_params_kwargs = {"timesteps": torch.linspace(1, 999, p.steps).long()} if self.is_timed else {}
        if not self.is_timed:
            extra_params_kwargs["sigmas"] = torch.linspace(2**0.5, 0, p.steps + 1) ** 2
        parameters = inspect.signature(self.func).parameters
        extra_params_kwargs |= {"eta": p.eta} if "eta" in parameters else {}
        extra_params_kwargs |= {"s_churn": p.s_churn} if "s_churn" in parameters else {}
        with contextlib.suppress(Interrupted):
            return self.func(denoiser, x, callback=self._end_step, **extra_params_kwargs)
        return self.last_latent

    def _end_step(self, step):
        self.last_latent = step["x"]
        if self.p.after_step:
            self.p.after_step(step["i"])


class WebUI:
    """Runs a script through generations.

    ``tab`` is the one whose scripts run, if it is not the job's own.
    """

    tab = sampler = None

    def __init__(self, script, model):
        self.script, self.first_pass = script, []
        shared.sd_model = self.model = model

    def _call(self, method, p, *args, **kwargs):
        try:
            getattr(self.script, method)(p, *args, *self.args, **kwargs)
        except Exception as error:  # the WebUI prints it and goes on
            self.errors.append(error)

    @torch.no_grad()
    def generate(self, p, *args):
        self.args, self.errors = args, []
        self.script.is_img2img = self.tab == "img2img" if self.tab else hasattr(p, "init_images")
        shared.sd_model = self.model
        self._call("before_process", p)
        processed = self._process(p)
        self._call("postprocess", p, processed)
        assert not self.errors, self.errors
        return processed

    def _process(self, p):
        self._call("process", p)
        images, infotexts, all_seeds = [], [], p.seeds
        for number in range(p.n_iter):
            p.seeds = all_seeds[number * p.batch_size : (number + 1) * p.batch_size]
            self._call("before_process_batch", p, batch_number=number)
            self._call("process_batch", p, batch_number=number)
            self.params_txt = dict(p.extra_generation_params)  # kept for the button that restores the last generation
            samples = self._sample(p)
            if samples is None:  # SD.Next was interrupted
                break
            self._end_batch(p, samples, number)
            images += list(samples)
            infotexts += [", ".join(f"{k}: {v}" for k, v in p.extra_generation_params.items())] * len(samples)
        return processing.Processed(p, images, infotexts=infotexts)

    def _end_batch(self, p, samples, number):
        self._call("post_sample", p, SimpleNamespace(samples=samples))
        self._call("postprocess_batch", p, batch_number=number)

    def _sample(self, p):
        side = (p.height // 8, p.width // 8)
        p.is_hr_pass, p.sampler = False, self._sampler(p)
        samples = self._noise(p, side)
        if not p.only_hires:
            self._call("process_before_every_sampling", p, x=samples, noise=samples, c=None, uc=None)
            samples = p.sampler.sample(p, samples)
            self.first_pass.append(samples)
        if not p.enable_hr or shared.state.interrupted:
            return samples
        p.is_hr_pass, p.sampler = True, self._sampler(p)
        samples = torch.nn.functional.interpolate(samples, scale_factor=p.hr_scale)
        noise = self._noise(p, samples.shape[-2:])
        self._call("process_before_every_sampling", p, x=samples, noise=noise, c=None, uc=None)
        samples = p.sampler.sample(p, samples + noise)
        p.is_hr_pass, p.sampler = False, None
        return samples

    def _sampler(self, p):
        if not p.one_sampler:
            return Sampler(p)
        if not (self.sampler and self.sampler.model_wrap_cfg.p is p):
            self.sampler = Sampler(p)
        return self.sampler

    def _noise(self, p, side):
        noise = [torch.randn(4, *side, generator=torch.Generator().manual_seed(s)) for s in p.seeds]
        return torch.stack(noise).to(next(self.model.parameters()).dtype)


def pasted(fields, infotext):
    """What the WebUI's paste sets: control -> value, None where it leaves a control alone."""
    values = {}
    for control, key in fields:
        value = key(infotext) if callable(key) else infotext.get(key)
        kind = type(control.value)
        if value is None:
            values[control] = None
        elif kind is bool and value == "False":
            values[control] = False
        else:
            values[control] = float(value) if kind is int else kind(value)
    return values
