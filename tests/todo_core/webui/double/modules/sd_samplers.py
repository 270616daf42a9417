"""The samplers by their names on the page, and their schedules."""

from collections import namedtuple

import torch

SamplerData = namedtuple("SamplerData", ["name", "constructor", "aliases", "options"])
_NAMED = {"DPM++ 2M": "k_dpmpp_2m", "Euler a": "k_euler_a", "Euler": "k_euler", "Heun": "k_heun", "DDIM": "ddim"}
_NAMED |= {"UniPC": "unipc"}


class KDiffusionSampler:
    """Karras' schedule weighs the first steps, the uniform one the last of them too."""

    def get_sigmas(self, p, steps):
        power = {"Karras": 7, "Uniform": 1}[p.scheduler]
        return torch.cat([torch.linspace(14.6 ** (1 / power), 0.03 ** (1 / power), steps) ** power, torch.zeros(1)])


class CompVisSampler:
    def get_timesteps(self, p, steps):
        return torch.clip(torch.asarray(range(0, 1000, 1000 // steps)) + 1, 0, 999)


all_samplers_map = {name: SamplerData(name, None, [alias], {}) for name, alias in _NAMED.items()}


def find_sampler_config(name):
    """None for an unknown name."""
    return all_samplers_map.get(name)


def create_sampler(name, model):
    return CompVisSampler() if name in ("DDIM", "UniPC") else KDiffusionSampler()
