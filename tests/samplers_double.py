"""Samplers as programs have them, by their papers: a function that calls the model, (model, x, schedule) -> latent.

They stand where those of the programs stand, in modules of their names.
"""

import types
from itertools import pairwise

import torch


def euler(model, x, sigmas, extra_args=None, callback=None, disable=None, s_churn=0.0):
    """Karras et al. 2022, algorithm 2 without the correction."""
    for i, (sigma, following) in enumerate(pairwise(sigmas)):
        if s_churn:
            raised = sigma * (1 + min(s_churn / (len(sigmas) - 1), 2**0.5 - 1))
            x, sigma = x + torch.randn_like(x) * (raised**2 - sigma**2) ** 0.5, raised
        denoised = model(x, sigma * x.new_ones(len(x)), **(extra_args or {}))
        if callback:
            callback({"i": i, "x": x, "denoised": denoised})
        x = denoised + (x - denoised) * following / sigma
    return x


def ancestral(model, x, sigmas, extra_args=None, callback=None, disable=None, eta=1.0, noise_sampler=None):
    """Euler's method to a lower noise, and fresh noise after it."""
    draw = noise_sampler or (
        lambda sigma, _: torch.randn(x.shape, generator=torch.Generator().manual_seed(int(1000 * sigma)))
    )
    for i, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised = model(x, sigma * x.new_ones(len(x)), **(extra_args or {}))
        if callback:
            callback({"i": i, "x": x, "denoised": denoised})
        up = min(following, eta * (following**2 * (sigma**2 - following**2) / sigma**2) ** 0.5)
        down = (following**2 - up**2) ** 0.5
        x = denoised + (x - denoised) * down / sigma + draw(sigma, following) * up
    return x


def heun(model, x, sigmas, extra_args=None, callback=None, disable=None, s_churn=0.0):
    """Karras et al. 2022, algorithm 1."""
    for i, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised = model(x, sigma * x.new_ones(len(x)), **(extra_args or {}))
        if callback:
            callback({"i": i, "x": x, "denoised": denoised})
        slope = (x - denoised) / sigma
        tried = x + slope * (following - sigma)
        if following:
            again = model(tried, following * x.new_ones(len(x)), **(extra_args or {}))
            tried = x + (slope + (tried - again) / following) / 2 * (following - sigma)
        x = tried
    return x


def multistep(model, x, sigmas, extra_args=None, callback=None, disable=None):
    """DPM-Solver++ 2M (arXiv 2211.01095, algorithm 2)."""
    before = None
    for i, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised = target = model(x, sigma * x.new_ones(len(x)), **(extra_args or {}))
        if callback:
            callback({"i": i, "x": x, "denoised": denoised})
        if before is not None and following:
            ratio = (sigmas[i - 1] / sigma).log() / (sigma / following).log()
            target = denoised + (denoised - before) / (2 * ratio)
        x, before = target + (x - target) * following / sigma, denoised
    return x


def ddim(model, x, timesteps, extra_args=None, callback=None, disable=None, eta=0.0):
    """arXiv 2010.02502, equation 12, as the WebUI lists the timesteps: from the lowest one on, which is the last."""
    bars = model.inner_model.inner_model.alphas_cumprod[timesteps]
    for i in range(len(timesteps) - 1):
        now, then = bars[-1 - i], bars[-2 - i]
        eps = model(x, timesteps[-1 - i] * x.new_ones(len(x)), **(extra_args or {}))
        new = eta * ((1 - then) / (1 - now) * (1 - now / then)) ** 0.5
        image = (x - (1 - now) ** 0.5 * eps) / now**0.5
        x = then**0.5 * image + (1 - then - new**2) ** 0.5 * eps + new * torch.randn_like(x)
        if callback:
            callback({"i": i, "x": x, "denoised": image})
    return x


def unipc(model, x, timesteps, extra_args=None, callback=None, disable=None, is_img2img=None):
    """It is told whether an image begins the pass, and calls the model at the least noise, too. It draws none."""
    assert is_img2img is not None
    bars = [*model.inner_model.inner_model.alphas_cumprod[timesteps].flip(0), torch.ones(())]
    for timestep, (now, then) in zip(timesteps.flip(0), pairwise(bars), strict=True):
        eps = model(x, timestep * x.new_ones(len(x)), **(extra_args or {}))
        x = (x - (1 - now) ** 0.5 * eps) * (then / now) ** 0.5 + (1 - then) ** 0.5 * eps
    return x


def own_sigmas(model, x, sigmas, extra_args=None, callback=None, disable=None):
    """It keeps to no list: three levels of noise between the first and the last."""
    return euler(model, x, torch.linspace(float(sigmas[0]), 0, 4), extra_args, callback, disable)


def adaptive(model, x, sigmas, extra_args=None, callback=None, disable=None):
    """What it does next depends on what it sees."""
    while sigmas[0] > 0.1:
        denoised = model(x, sigmas[:1].expand(len(x)), **(extra_args or {}))
        sigmas = sigmas[:1] / (1.2 + float(denoised.abs().max().clamp(max=0.3)))
        x = denoised + (x - denoised) / 2
    return x


ALL = (euler, ancestral, heun, multistep, ddim, unipc, own_sigmas, adaptive)


def of(package):
    """Each by its name, as functions of this package."""
    copies = {}
    for each in ALL:
        copies[each.__name__] = types.FunctionType(each.__code__, globals(), each.__name__, each.__defaults__)
        copies[each.__name__].__module__ = package
    return copies
