"""Whole steps: with which samplers and in which passes they are predicted.

Samplers are known by the names of their functions in k-diffusion, the WebUIs and ComfyUI.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from .hosts import Host
from .patching.plan import auto_factor, plan_deep
from .patching.token_grid import TokenGrid
from .settings import Settings

ADDS_NOISE = "whole steps need a sampler without noise, such as DPM++ 2M or Euler"
# one call a step, and the next latent follows from the last ones
_WITHOUT_NOISE = {"sample_euler", "sample_dpmpp_2m", "sample_lms", "sample_ipndm", "sample_ipndm_v", "sample_deis"}
_WITHOUT_NOISE |= {"ddim", "plms", "unipc", "sample_unipc"}


def for_pass(settings: Settings, host: Host, size: TokenGrid, steps: int, why_not: str) -> tuple[Settings, str]:
    """The settings for a pass of so many steps at a latent of ``size``, and a note for the user, if there is one.

    ``why_not`` says why whole steps cannot be predicted; it is empty where they can. Then deep transformers are, and
    where the user has asked for whole steps, the note says so. ``auto`` predicts whole steps where the interval is at
    least the factor that level 1 would get, and leaves factors that the user has set to act. In a pass that is too
    short for whole steps, deep transformers and auto factors act.
    """
    is_auto = settings.predict == "auto"
    deep, whole = replace(settings, predict="deep"), replace(settings, predict="whole")
    planned = plan_deep(whole, host, size)
    if settings == deep or planned.why_nothing_in(steps):
        return deep, ""
    if is_auto and not _saves_enough(planned.interval_of(steps), settings, host, size):
        return deep, ""
    if why_not:
        return deep, "" if is_auto else f"{why_not}: layers below level 1 are predicted"
    return whole, ""


def _saves_enough(interval: int, settings: Settings, host: Host, size: TokenGrid) -> bool:
    """Whether whole steps save about as much as auto factors would."""
    if settings.method != "downsample" or not settings.factor_1 == settings.factor_2 == "auto":
        return False
    level = host.level(1)
    return auto_factor(level, size.halved(level.depth)) <= interval


def adds_no_noise(function: Any, *, eta: float | None, churn: float | None) -> bool:
    """Whether a sampler's function is known to add no noise. ``eta`` counts only if the function has it."""
    if getattr(function, "__name__", "") not in _WITHOUT_NOISE:
        return False
    return not churn and not ("eta" in inspect.signature(function).parameters and eta)


def alias_adds_no_noise(alias: str) -> bool:
    """Whether a sampler is known to add no noise if eta and churn are 0; by its alias in the WebUIs, as "k_euler"."""
    return not {alias, f"sample_{alias.removeprefix('k_')}"}.isdisjoint(_WITHOUT_NOISE)
