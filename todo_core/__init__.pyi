# Written by: python benchmarks/pages.py
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from .errors import SettingsError, UnsupportedModelError
from .settings import SETTINGS, Settings
from . import tomesd
from .patching.patch import remove_patch
from .patching.plan import Plan
from .patching.session import Session
from .patching.space.level_plan import LevelPlan
from .token_grid import TokenGrid

__all__ = [
    "SETTINGS",
    "LevelPlan",
    "Plan",
    "Session",
    "Settings",
    "SettingsError",
    "TokenGrid",
    "UnsupportedModelError",
    "apply_patch",
    "patched",
    "remove_patch",
    "tomesd",
]
__version__: str

def apply_patch(
    model: Any,
    settings: Settings | None = None,
    *,
    preset: Literal["Balanced", "Closest", "Fast", "ToDo only", "ToDo paper", "ToMe paper"] | None = None,
    method: Literal["downsample", "similarity", "cluster", "none"] = "downsample",
    target: Literal["keys/values", "all"] = "keys/values",
    factor_1: int | Literal["auto"] = "auto",
    factor_2: int | Literal["auto"] = "auto",
    ratio_1: float = 0.5,
    ratio_2: float = 0.0,
    resample: Literal["nearest", "nearest-exact", "bilinear", "bicubic", "area", "max"] = "nearest-exact",
    phase: Literal["rotate", "fixed"] = "rotate",
    start: float | Literal["auto"] = "auto",
    end: float | Literal["auto"] = "auto",
    window: Literal["steps", "noise"] = "steps",
    afterwards: Literal["none", "downsample", "similarity", "cluster"] = "none",
    passes: Literal["hires", "first", "all"] = "hires",
    sx: int = 2,
    sy: int = 2,
    random: bool = True,
    seed: int | None = None,
    attn: bool = True,
    crossattn: bool = False,
    mlp: bool = False,
    interval: int | Literal["auto"] = "auto",
    predict: Literal["auto", "deep", "whole"] = "auto",
    tolerance: float = 0.08,
) -> Session: ...
@contextmanager
def patched(
    model: Any,
    settings: Settings | None = None,
    *,
    preset: Literal["Balanced", "Closest", "Fast", "ToDo only", "ToDo paper", "ToMe paper"] | None = None,
    method: Literal["downsample", "similarity", "cluster", "none"] = "downsample",
    target: Literal["keys/values", "all"] = "keys/values",
    factor_1: int | Literal["auto"] = "auto",
    factor_2: int | Literal["auto"] = "auto",
    ratio_1: float = 0.5,
    ratio_2: float = 0.0,
    resample: Literal["nearest", "nearest-exact", "bilinear", "bicubic", "area", "max"] = "nearest-exact",
    phase: Literal["rotate", "fixed"] = "rotate",
    start: float | Literal["auto"] = "auto",
    end: float | Literal["auto"] = "auto",
    window: Literal["steps", "noise"] = "steps",
    afterwards: Literal["none", "downsample", "similarity", "cluster"] = "none",
    passes: Literal["hires", "first", "all"] = "hires",
    sx: int = 2,
    sy: int = 2,
    random: bool = True,
    seed: int | None = None,
    attn: bool = True,
    crossattn: bool = False,
    mlp: bool = False,
    interval: int | Literal["auto"] = "auto",
    predict: Literal["auto", "deep", "whole"] = "auto",
    tolerance: float = 0.08,
) -> Iterator[Session]: ...
