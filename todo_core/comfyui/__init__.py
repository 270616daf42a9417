"""The nodes for ComfyUI. Only this package imports ComfyUI; the ``__init__.py`` of the repository exports its nodes."""

from .nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS

__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]
