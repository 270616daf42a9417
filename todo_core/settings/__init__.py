"""What the user wants: the declaration of each setting, when it has an effect, and presets."""

from .declaration import METHODS, SETTINGS, Settings
from .setting import INFOTEXT_PREFIX, Setting

__all__ = ["INFOTEXT_PREFIX", "METHODS", "SETTINGS", "Setting", "Settings"]
