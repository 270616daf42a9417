"""A module call as torch's hooks see it, and what ToDo puts on a module: a hook, or a forward.

An argument may come by position or by keyword; both are read alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from ...hosts.host import Arguments

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
Changed: TypeAlias = tuple[Args, Kwargs] | None
OnError: TypeAlias = Callable[[Exception], None] | None


def argument(args: Args, kwargs: Kwargs, position: int, name: str) -> Any:
    """The argument at ``position`` or of this name, or None."""
    return args[position] if len(args) > position else kwargs.get(name)


def attention_arguments(args: Args, kwargs: Kwargs, names: Arguments) -> tuple[Any, Any, Any]:
    """The input, the context and the mask of an attention."""
    given = len(args)
    x = args[0] if given else kwargs.get(names.hidden)
    context = args[1] if given > 1 else kwargs.get(names.context)
    return x, context, args[2] if given > 2 else kwargs.get(names.mask)


def with_argument(args: Args, kwargs: Kwargs, position: int, name: str, value: Any) -> tuple[Args, Kwargs]:
    """The call with that argument replaced."""
    if len(args) > position:
        return (*args[:position], value, *args[position + 1 :]), kwargs
    return args, {**kwargs, name: value}


@torch._disable_dynamo  # as torch.compiler.disable, without importing the compiler here
def untraced(run: Callable[..., Any], *call: Any, **keywords: Any) -> Any:
    """Run it as it is while torch.compile traces the code around it."""
    return run(*call, **keywords)


def guarded(on_error: OnError, run: Callable[..., Any], *call: Any) -> Any:
    """Run it. With ``on_error`` an exception goes there, and the result is None."""
    try:
        return run(*call)
    except Exception as error:
        if on_error is None:
            raise
        on_error(error)
        return None


class _OnModule:
    """What is on a module. Its type marks it as ToDo's, also on a copied or unpickled model.

    ``_run`` is a method, which a copy binds to the copied ``owner``.
    """

    _run: Callable[..., Any]
    _is_off = False  # compiled code may call one that is off

    @property
    def owner(self) -> Any:
        """The object whose method runs."""
        return getattr(self._run, "__self__", None)


class Hook(_OnModule):
    """One hook on one module. With ``on_error``, exceptions of a hook go there, and the call runs unchanged."""

    def __init__(self, run: Callable[..., Any], on_error: OnError = None) -> None:
        self._run, self._on_error = run, on_error
        self._handle: RemovableHandle | None = None

    def before(self, module: Module) -> Hook:
        """Run before each call of ``module``, with its arguments."""
        self._handle = module.register_forward_pre_hook(self, with_kwargs=True)
        return self

    def after(self, module: Module, *, always: bool = False) -> Hook:
        """Run after each call of ``module``; with ``always``, after an Exception too."""
        self._handle = module.register_forward_hook(self, always_call=always)
        return self

    def remove(self) -> None:
        """Take the hook off its module."""
        self._is_off = True
        if self._handle:
            self._handle.remove()

    def __call__(self, *call: Any) -> Any:
        """What torch calls. torch.compile runs it as it is, between two pieces of compiled code."""
        if self._is_off:
            return None
        if torch.compiler.is_compiling():
            return untraced(guarded, self._on_error, self._run, *call)
        if self._on_error:
            return guarded(self._on_error, self._run, *call)
        return self._run(*call)


class Forward(_OnModule):
    """A ``forward`` on one module, which decides whether the module's own one runs: no hook could keep it from running.

    ``run`` is a method that gets the arguments of a call, and returns an output or None. After None the module
    runs, and the method ``learn`` gets arguments and output; it may return another output. In compiled code both run
    uncompiled. The module does so too unless ``is_single``: torch gives up on a forward that many modules share.
    """

    def __init__(self, run: Callable[..., Any], learn: Callable[..., Any], *, is_single: bool) -> None:
        self._run, self._learn, self._is_single = run, learn, is_single
        self._module: Any = None
        self._before: Any = None  # the class's own forward, where somebody has left that on the instance

    def on(self, module: Module) -> Forward:
        """Put it on a module that runs the ``forward`` of its class."""
        self._module, self._before = module, vars(module).get("forward")
        module.forward = self
        return self

    def remove(self) -> None:
        """Take it off its module, unless somebody else has put another one over it: that one calls this one."""
        self._is_off = True
        if self._module is not None and vars(self._module).get("forward") is self:
            del self._module.forward
            if self._before:
                self._module.forward = self._before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module calls in the place of its own forward."""
        own = partial(type(self._module).forward, self._module)
        if self._is_off:
            return own(*args, **kwargs)
        if not torch.compiler.is_compiling():
            return self._decide(own, args, kwargs)
        if not self._is_single:
            return untraced(self._decide, own, args, kwargs)
        output = untraced(self._run, args, kwargs)
        if output is None:
            output = own(*args, **kwargs)
            changed = untraced(self._learn, args, kwargs, output)
            output = output if changed is None else changed
        return output

    def _decide(self, own: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        output = self._run(args, kwargs)
        if output is None:
            output = own(*args, **kwargs)
            changed = self._learn(args, kwargs, output)
            output = output if changed is None else changed
        return output


def has_other_forward(module: Module) -> bool:
    """Whether the instance has another ``forward`` than its class. sd-webui-controlnet leaves the class's on it."""
    forward = vars(module).get("forward")
    return forward is not None and getattr(forward, "__func__", None) is not type(module).forward


def hooks_on(module: Module) -> list[Hook | Forward]:
    """ToDo's hooks on this module, without those on its parts, and its forward."""
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values(), vars(module).get("forward"))
    return [hook for hook in hooks if isinstance(hook, (Hook, Forward))]


def remove_forwards(model: Module) -> None:
    """Take ToDo's forwards off a copy of a model whose modules have the original's."""
    for module in model.modules():
        if isinstance(vars(module).get("forward"), Forward):
            del module.forward
