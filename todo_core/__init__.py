"""ToDo and ToMe token reduction for Stable Diffusion: fewer keys and values, or fewer tokens, in self-attention."""

from importlib.util import find_spec

from .errors import SettingsError, UnsupportedModelError
from .settings import SETTINGS, Settings

if find_spec("torch"):  # app.py checks its options before it installs torch
    from . import tomesd
    from .patching.patch import apply_patch, patched, remove_patch
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
__version__ = "1.0.0"
