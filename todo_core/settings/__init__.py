"""What the user wants: the declaration of each setting, when it has an effect, and presets."""

from .declaration import BUILT_IN, METHODS, OLDER, PRESET_HELP, RETIRED, SETTINGS, Settings, rename_older
from .setting import METHOD_KEY, VERSION_KEY, Setting

__all__ = [
    "BUILT_IN",
    "METHODS",
    "METHOD_KEY",
    "OLDER",
    "PRESET_HELP",
    "RETIRED",
    "SETTINGS",
    "VERSION_KEY",
    "Setting",
    "Settings",
]
__all__ += ["rename_older"]
