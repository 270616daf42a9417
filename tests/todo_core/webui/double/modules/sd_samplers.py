"""The samplers by their names on the page."""

from collections import namedtuple

SamplerData = namedtuple("SamplerData", ["name", "constructor", "aliases", "options"])
_NAMED = {"DPM++ 2M": "k_dpmpp_2m", "Euler a": "k_euler_a", "Euler": "k_euler", "Heun": "k_heun", "DDIM": "ddim"}
all_samplers_map = {name: SamplerData(name, None, [alias], {}) for name, alias in _NAMED.items()}


def find_sampler_config(name):
    """None for an unknown name."""
    return all_samplers_map.get(name)
