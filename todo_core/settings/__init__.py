"""What the user wants: every setting declared once, when it matters, and named sets of them."""

from .declaration import Setting
from .fields import INFOTEXT_PREFIX, METHODS, SETTINGS, Settings

__all__ = ["INFOTEXT_PREFIX", "METHODS", "SETTINGS", "Setting", "Settings"]
