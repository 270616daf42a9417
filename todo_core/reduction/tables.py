"""Index tables: a device gets each of them once, so that no later call pays launches or waits for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import torch

Make = TypeVar("Make", bound=Callable[..., Any])


def kept_tables(make: Make) -> Make:
    """Keep what ``make`` returns for its arguments, of which the last is the device. They decide all its values.

    Nothing is read or kept under a mode that makes other tensors, such as those of torch.export. ``make`` names the
    device of each tensor, as a default device would be another mode.
    """

    @wraps(make)
    def lasting(*args: Any) -> Any:
        with torch.inference_mode(False):  # what is kept outlives a caller's inference mode
            return make(*args)

    cached = lru_cache(maxsize=64)(lasting)

    @wraps(make)
    def tables(*args: Any) -> Any:
        return (cached if makes_plain_tensors(args[-1]) else lasting)(*args)

    tables.cache_clear = cached.cache_clear  # type: ignore[attr-defined]
    return tables  # type: ignore[return-value]


def makes_plain_tensors(device: torch.device) -> bool:
    """Whether a tensor that is made here and now has data of its own, for anybody to use."""
    if torch.compiler.is_compiling():
        return False
    made = torch.empty(0, device=device)
    return type(made) is torch.Tensor and not torch._is_functional_tensor(made)
