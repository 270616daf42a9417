"""How many multiplications something takes: work that depends on no machine."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

_ATTENTION = "_scaled_dot_product"  # in the name of every fused kernel


class Multiplications(TorchDispatchMode):
    """``with Multiplications() as counted:`` counts those of linear layers, convolutions and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count it. A compound one is taken apart first."""
        kwargs = kwargs or {}
        known = flop_registry.get(func.overloadpacket)
        if known is None:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        output = func(*args, **kwargs)
        if _ATTENTION in func.overloadpacket.__name__:
            query, key, value = args[:3]
            rows = query[..., 0].numel()
            self.count += rows * key.shape[-2] * (query.shape[-1] + value.shape[-1])
        elif known is not None:
            self.count += known(*args, **kwargs, out_val=output) // 2  # a multiplication and an addition
        return output
