"""Samplers, known by the names of their functions in k-diffusion, the WebUIs and ComfyUI."""

from __future__ import annotations

import inspect
from typing import Any

# one call a step, and the next latent follows from the last ones
_WITHOUT_NOISE = {"sample_euler", "sample_dpmpp_2m", "sample_lms", "sample_ipndm", "sample_ipndm_v", "sample_deis"}
_WITHOUT_NOISE |= {"ddim", "plms", "unipc", "sample_unipc"}


def adds_no_noise(function: Any, *, eta: float | None, churn: float | None) -> bool:
    """Whether a sampler's function is known to add no noise. ``eta`` counts only if the function has it."""
    if getattr(function, "__name__", "") not in _WITHOUT_NOISE:
        return False
    return not churn and not ("eta" in inspect.signature(function).parameters and eta)
