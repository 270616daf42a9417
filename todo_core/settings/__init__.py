"""What the user wants: the declaration of each setting, when it has an effect, and presets."""

from .declaration import BUILT_IN, METHODS, SETTINGS, Settings
from .setting import INFOTEXT_PREFIX, VERSION_KEY, Setting

__all__ = ["BUILT_IN", "INFOTEXT_PREFIX", "METHODS", "SETTINGS", "VERSION_KEY", "Setting", "Settings"]
