"""Host adapters: one small file each. They recognise a model without importing its library."""

from .detect import detect
from .site import Host, Site, blocks_of

__all__ = ["Host", "Site", "blocks_of", "detect"]
