"""The schedules of the WebUIs: the noise before each step and after the last one, sigma / alpha.

Each is the one of its name in AUTOMATIC1111 1.10.1 (modules/sd_schedulers.py) with its default options, for the noise
that Stable Diffusion 1, 2 and XL are trained with.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import AUTOMATIC

LAST = 999  # timestep
BETAS = np.linspace(0.00085**0.5, 0.012**0.5, LAST + 1) ** 2
TRAINED = np.sqrt(1 / np.cumprod(1 - BETAS) - 1)
"""The noise of each timestep, from 0 (Rombach et al. 2022)."""
LOW, HIGH = float(TRAINED[0]), float(TRAINED[-1])
ALIGNED = [14.615, 6.475, 3.861, 2.697, 1.886, 1.396, 0.963, 0.652, 0.399, 0.152, 0.029]
ALIGNED_XL = [14.615, 6.315, 3.771, 2.181, 1.342, 0.862, 0.555, 0.380, 0.234, 0.113, 0.029]


def sigmas_of(timesteps: np.ndarray) -> np.ndarray:
    """The noise of timesteps, linear in log sigma between whole ones (k-diffusion's `DiscreteSchedule`)."""
    return np.exp(np.interp(timesteps, np.arange(LAST + 1), np.log(TRAINED)))


def timesteps_of(sigmas: np.ndarray) -> np.ndarray:
    """The timesteps that have so much noise, which is not 0: the inverse of `sigmas_of`."""
    return np.interp(np.log(sigmas), np.log(TRAINED), np.arange(LAST + 1))


def karras(steps: int, rho: float = 7) -> np.ndarray:
    """Evenly spaced in the seventh root of sigma (Karras et al. 2022, equation 5)."""
    high, low = HIGH ** (1 / rho), LOW ** (1 / rho)
    return _to_zero(np.linspace(high, low, steps) ** rho)


def exponential(steps: int) -> np.ndarray:
    """Evenly spaced in log sigma (k-diffusion)."""
    return _to_zero(np.geomspace(HIGH, LOW, steps))


def sgm_uniform(steps: int) -> np.ndarray:
    """Evenly spaced in time, of which a last step from timestep 0 is left out (generative-models)."""
    return _to_zero(uniform(steps)[:-1])


def simple(steps: int) -> np.ndarray:
    """Whole timesteps, down from the last one (ComfyUI)."""
    return _to_zero(TRAINED[LAST - (np.arange(steps) * ((LAST + 1) / steps)).astype(int)])


def normal(steps: int) -> np.ndarray:
    """Evenly spaced in time, timestep 0 included; A1111 calls it Uniform, too (k-diffusion)."""
    return _to_zero(uniform(steps - 1))


def ddim(steps: int) -> np.ndarray:
    """Whole timesteps, up from 1. It has more steps where their number does not divide 1000."""
    return _to_zero(TRAINED[1 :: max((LAST + 1) // steps, 1)][::-1])


def beta(steps: int) -> np.ndarray:
    """Quantiles of Beta(0.6, 0.6) (Lee et al. 2024, arXiv 2407.12173): of sigma in A1111, of time in the paper."""
    from scipy import stats

    return _to_zero(LOW + stats.beta.ppf(np.linspace(1, 0, steps), 0.6, 0.6) * (HIGH - LOW))


def kl_optimal(steps: int) -> np.ndarray:
    """Evenly spaced in the arctangent of sigma (Sabour et al. 2024, arXiv 2404.14507, appendix). It ends above 0."""
    return np.tan(np.linspace(np.arctan(HIGH), np.arctan(LOW), steps + 1))


def align_your_steps(steps: int, is_xl: bool = False) -> np.ndarray:
    """What Sabour et al. (2024, arXiv 2404.14507) found for ten steps, with others between in log sigma."""
    found = np.log(ALIGNED_XL if is_xl else ALIGNED)
    return _to_zero(np.exp(np.interp(np.linspace(0, 1, steps), np.linspace(0, 1, len(found)), found)))


def uniform(steps: int) -> np.ndarray:
    """Evenly spaced in time down to timestep 0, above noise 0: A1111's UniPC alone."""
    return sigmas_of(np.linspace(LAST, 0, steps + 1))


def _to_zero(sigmas: np.ndarray) -> np.ndarray:
    return np.append(sigmas, 0)


SIGMAS: dict[str, Callable[[int], np.ndarray]] = {
    "Karras": karras,
    "Exponential": exponential,
    "SGM Uniform": sgm_uniform,
    "Simple": simple,
    "Normal": normal,
    "DDIM": ddim,
    "Beta": beta,
    "KL Optimal": kl_optimal,
    "Align Your Steps": align_your_steps,
    AUTOMATIC: uniform,  # of a sampler that has a schedule of its own
}
