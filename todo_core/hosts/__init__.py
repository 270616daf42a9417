"""Host adapters: one small file each. They recognise a model without importing its library."""

from .detection import detect
from .host import Host, Site, blocks_of

__all__ = ["Host", "Site", "blocks_of", "detect"]
