"""Host adapters: one small file each. They recognise a model without importing its library."""

from .detect import detect
from .site import Host, Site

__all__ = ["Host", "Site", "detect"]
