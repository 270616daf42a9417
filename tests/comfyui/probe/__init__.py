"""Nodes for the tests on a real ComfyUI. Link this folder into its ``custom_nodes``."""

import sys

if "comfy" in sys.modules:
    from .nodes import NODE_CLASS_MAPPINGS

    __all__ = ["NODE_CLASS_MAPPINGS"]
