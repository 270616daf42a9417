"""The nodes for ComfyUI, which loads this folder as a package. Elsewhere it has none, and imports nothing."""

import sys

if "comfy" in sys.modules:
    from .todo_core.comfyui import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS
else:
    NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS = {}, {}

WEB_DIRECTORY = "todo_core/comfyui/web"  # ComfyUI finds the help of a node there
__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS", "WEB_DIRECTORY"]
