"""torch.compile keeps code from before a patch, and does not look whether a module has got or lost hooks since."""

from __future__ import annotations

import gc
import sys
from typing import Any

import torch
from torch.nn import Module


def forget_compiled_code(unet: Module) -> None:
    """Let torch compile anew, if it has compiled ``unet`` or a part of it. It then sees the hooks as they are.

    torch can only forget the compiled code of all models.
    """
    if is_compiled(unet):
        torch.compiler.reset()


def is_compiled(unet: Module) -> bool:
    """Whether ``unet`` or a part of it was compiled in place, or has a wrapper that torch.compile returned."""
    if "torch._dynamo" not in sys.modules:
        return False
    modules = set(unet.modules())
    if any(getattr(module, "_compiled_call_impl", None) or "_orig_mod" in module._modules for module in modules):
        return True
    codes = {getattr(kind.forward, "__code__", None) for kind in {type(module) for module in modules}} - {None}
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    compiled_of: Any = getattr(dynamo, "_debug_get_cache_entry_list", None)  # None in another torch
    if compiled_of and not any(map(compiled_of, codes)):
        return False
    # models of one class share that code, and a wrapper is known by its owner alone
    wrapper: Any = getattr(dynamo, "OptimizedModule", ())
    return any(one._modules.get("_orig_mod") in modules for one in gc.get_objects() if issubclass(type(one), wrapper))
