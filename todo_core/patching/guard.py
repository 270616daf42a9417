"""What forbids to predict a call of the model, in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from ..errors import UnsupportedModelError
from ..hosts import Host
from ..hosts.conditions import replaces_attention
from ..reason import Reason, Why
from .hooks.module_calls import Args, Hook, Kwargs

CHECKPOINTED = (
    "its blocks are checkpointed, and the backward pass would compute them without the reduction. "
    "Switch gradient checkpointing off, or use torch.no_grad()"
)


class GuardedCall(NamedTuple):
    """What is known of a call that may be predicted."""

    host: Host
    unet: Module  # the one that runs
    args: Args
    kwargs: Kwargs
    is_first: bool  # of its step
    has_threads: bool  # other threads run the model too


REFUSALS: dict[Reason, Callable[[GuardedCall], bool]] = {
    Reason.REPLICAS: lambda call: call.unet is not call.host.unet,
    Reason.THREADS: lambda call: call.has_threads,
    Reason.GRADIENTS: lambda call: _asks_for_gradients(call.host, call.args, call.kwargs),
    Reason.LISTENED: lambda call: _is_listened_to(call.host),
    # as self-attention guidance does in ComfyUI; another guidance replaces it in later calls of a step alone
    Reason.ATTENTION_READ: lambda call: call.is_first and replaces_attention(call.kwargs),
}


def why_not_predicted(call: GuardedCall) -> Why | None:
    """Why nothing may be remembered and predicted in a call."""
    return next((reason for reason, forbids in REFUSALS.items() if forbids(call)), None)


def refuse_checkpoints(host: Host, args: Args, kwargs: Kwargs) -> None:
    """Raise where a backward pass would compute checkpointed blocks again: no session would reduce them then."""
    if torch.is_grad_enabled() and host.is_checkpointed() and _asks_for_gradients(host, args, kwargs):
        raise UnsupportedModelError(host.unet, CHECKPOINTED)


def _is_listened_to(host: Host) -> bool:
    """Whether somebody reads the deep layers, as self-attention guidance does in diffusers."""
    hooks = (hook for module in host.deep_transformers for hook in module._forward_hooks.values())
    return not all(isinstance(hook, Hook) for hook in hooks)


def _asks_for_gradients(host: Host, args: Args, kwargs: Kwargs) -> bool:
    if not torch.is_grad_enabled():  # before anything else: samplers run without, at every step
        return False
    tensors = (*args, *kwargs.values(), *host.unet.parameters())
    return any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in tensors)
