"""ToDo and ToMe token reduction for Stable Diffusion: fewer keys and values, or fewer tokens, in self-attention."""

from importlib import import_module
from typing import Any

from .errors import SettingsError, UnsupportedModelError
from .settings import SETTINGS, Settings

_NEED_TORCH = {
    "LevelPlan": ".patching.space.level_plan",
    "Plan": ".patching.plan",
    "Session": ".patching.session",
    "TokenGrid": ".token_grid",
    **dict.fromkeys(("apply_patch", "patched", "remove_patch"), ".patching.patch"),
}
__all__ = ["SETTINGS", "Settings", "SettingsError", "UnsupportedModelError", "tomesd", *_NEED_TORCH]
__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    """Import what needs torch at its first use: app.py checks its options before torch is installed."""
    if name == "tomesd":
        return import_module(".tomesd", __name__)
    if name in _NEED_TORCH:
        return getattr(import_module(_NEED_TORCH[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
