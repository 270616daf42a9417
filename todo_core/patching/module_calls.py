"""A module call as torch's hooks see it. An argument may come by position or by keyword; both are read alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch.nn import Module

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
Changed: TypeAlias = tuple[Args, Kwargs] | None
PreHook: TypeAlias = Callable[[Module, Args, Kwargs], Changed]


def read(args: Args, kwargs: Kwargs, position: int, name: str) -> Any:
    """The argument at ``position`` or of this name, or None."""
    return args[position] if len(args) > position else kwargs.get(name)


def write(args: Args, kwargs: Kwargs, position: int, name: str, value: Any) -> tuple[Args, Kwargs]:
    """The call with that argument replaced."""
    if len(args) > position:
        return (*args[:position], value, *args[position + 1 :]), kwargs
    return args, {**kwargs, name: value}


def guarded(hook: PreHook, on_error: Callable[[Exception], None] | None) -> PreHook:
    """``hook``; with ``on_error``, its exceptions go there, and the call runs unchanged."""
    if on_error is None:
        return hook

    def run(module: Module, args: Args, kwargs: Kwargs) -> Changed:
        try:
            return hook(module, args, kwargs)
        except Exception as error:
            on_error(error)
            return None

    return run
