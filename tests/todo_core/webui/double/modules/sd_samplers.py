"""The samplers by their names on the page, and their schedules."""

from collections import namedtuple
from types import SimpleNamespace

import torch

from tests import samplers_double

SamplerData = namedtuple("SamplerData", ["name", "constructor", "aliases", "options"])
_NAMED = {"DPM++ 2M": "k_dpmpp_2m", "Euler a": "k_euler_a", "Euler": "k_euler", "Heun": "k_heun", "DDIM": "ddim"}
_NAMED |= {"UniPC": "unipc"}


class Sampler:
    """Its function, by its name on the page, and the denoiser around the model."""

    def __init__(self, name, model):
        own = {"Euler": "euler", "DPM++ 2M": "multistep", "DDIM": "ddim", "UniPC": "unipc"}
        self.func = samplers_double.of(self.package).get(own.get(name))
        self.model_wrap_cfg = SimpleNamespace(inner_model=SimpleNamespace(inner_model=model))


class KDiffusionSampler(Sampler):
    """Karras' schedule weighs the first steps, the uniform one the last of them too."""

    package = "k_diffusion.sampling"

    def get_sigmas(self, p, steps):
        power = {"Karras": 7, "Uniform": 1}[p.scheduler]
        return torch.cat([torch.linspace(14.6 ** (1 / power), 0.03 ** (1 / power), steps) ** power, torch.zeros(1)])


class CompVisSampler(Sampler):
    package = "modules.sd_samplers_timesteps_impl"

    def get_timesteps(self, p, steps):
        return torch.clip(torch.asarray(range(0, 1000, 1000 // steps)) + 1, 0, 999)


all_samplers_map = {name: SamplerData(name, None, [alias], {}) for name, alias in _NAMED.items()}


def find_sampler_config(name):
    """None for an unknown name."""
    return all_samplers_map.get(name)


def create_sampler(name, model):
    return (CompVisSampler if name in ("DDIM", "UniPC") else KDiffusionSampler)(name, model)
