"""What the user wants: the declaration of each setting, when it has an effect, and presets."""

from .declaration import BUILT_IN, HIRES_OFF, METHOD_NONE, METHODS, PRESET_HELP, SETTINGS, Settings, preset_name
from .setting import METHOD_KEY, VERSION_KEY, Setting

__all__ = [
    "BUILT_IN",
    "HIRES_OFF",
    "METHODS",
    "METHOD_KEY",
    "METHOD_NONE",
    "PRESET_HELP",
    "SETTINGS",
    "VERSION_KEY",
    "Setting",
    "Settings",
    "preset_name",
]
