"""ToDo and ToMe token reduction for Stable Diffusion: fewer keys and values (or tokens) in self-attention."""

from . import tomesd
from .errors import SettingsError, UnsupportedModelError
from .patch import apply_patch, patched, remove_patch
from .plan import LevelPlan, Plan
from .session import Session
from .settings import SETTINGS, Settings
from .tokens import TokenGrid

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
__version__ = "0.1.0"
