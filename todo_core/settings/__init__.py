"""What the user wants: the declaration of each setting, when it has an effect, and presets."""

from .declaration import AIMS, BUILT_IN, PRESET_HELP, SETTINGS, Settings, preset_name, seen
from .setting import VERSION_KEY, Setting

__all__ = ["AIMS", "BUILT_IN", "PRESET_HELP", "SETTINGS", "VERSION_KEY", "Setting", "Settings", "preset_name", "seen"]
