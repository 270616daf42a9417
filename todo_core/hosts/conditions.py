"""What a UNet call depends on beside latent and timestep, and which of its rows are of the prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves, tree_map

# of ldm and sgm (y), and of diffusers: pooled text, size, class, guidance embedding, masks of the prompt, LoRA's scale
_NAMES = ("y", "added_cond_kwargs", "class_labels", "timestep_cond", "encoder_attention_mask", "cross_attention_kwargs")
_OF_CONTROLNET = "mid_block_additional_residual"


def conditions_of(context: Any, kwargs: Mapping[str, Any]) -> tuple[list[Tensor], list[Any]]:
    """Tensors that must have the same values in each call, and other values that must be equal.

    A ControlNet's additions change in each step. Only which there are must stay: diffusers passes zeros after the
    ControlNet's end.
    """
    leaves = tree_leaves([context, *(kwargs.get(name) for name in _NAMES)])
    tensors = list({id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor)}.values())
    others = [leaf for leaf in leaves if isinstance(leaf, (bool, int, float, str))]
    others += [name for name, value in kwargs.items() if value is not None]
    others += [tree_map(type, kwargs["control"])] if kwargs.get("control") else []
    added = kwargs.get(_OF_CONTROLNET)
    tensors += [added.any()] if isinstance(added, Tensor) else []
    return tensors, others


class Adapters:
    """LoRAs, in layers of peft, and IP-Adapters, in diffusers' processors: what acts of them may change in mid-pass."""

    def __init__(self) -> None:
        self._loaded: Any = None
        self._variables: list[dict[str, Any]] = []

    def state(self, model: Module) -> str:
        """Which adapters act in which layer, and their scales. The layers are looked up again after one was loaded."""
        loaded = [*getattr(model, "peft_config", ())], getattr(model, "encoder_hid_proj", None)
        if loaded != self._loaded:
            each = [vars(module) for module in model.modules()]
            self._variables = [own for own in each if "scaling" in own or isinstance(own.get("scale"), list)]
            self._loaded = loaded
        names = "scaling", "_active_adapter", "_disable_adapters", "scale"
        return str([own.get(name) for own in self._variables for name in names])


def chain_of(last: Any) -> list[Any]:
    """A ControlNet or other adapter of ComfyUI and the Forge family, and those that act before it."""
    found = []
    while last is not None:
        found.append(last)
        last = getattr(last, "previous_controlnet", None)
    return found


def acting_at(control: Any, sigma: float) -> str:
    """What one of them is, where it acts with this much noise; else "". A T2I-Adapter runs once for all calls."""
    begin, end = getattr(control, "timestep_range", None) or (math.inf, 0.0)
    kind = "T2I-Adapter" if hasattr(control, "t2i_model") else "ControlNet"
    return kind if begin >= sigma >= end else ""


def has_controlnet(kwargs: Mapping[str, Any], controls: Sequence[str]) -> bool:
    """Whether a ControlNet has run for this call. ``controls`` are those that act, where somebody tells it."""
    is_given = any(kwargs.get(name) is not None for name in ("control", _OF_CONTROLNET))
    return is_given and (not controls or "ControlNet" in controls)


def replaces_attention(kwargs: Mapping[str, Any]) -> bool:
    """Whether a call in ComfyUI or the Forge family has self-attentions replaced, by functions that may keep them."""
    replaced = (kwargs.get("transformer_options") or {}).get("patches_replace") or {}
    return bool(replaced.get("attn1"))


def weights_of_parts(guidance: Sequence[float] | None, kwargs: Mapping[str, Any]) -> tuple[float, ...] | None:
    """The weight of each part of a call's rows in the guided output; None where the call tells no parts.

    ComfyUI and the Forge family tell which prompt each part is of; ``guidance`` has the weight of each prompt. Parts of
    one prompt, as those of two prompts that are combined, share it.
    """
    parts = (kwargs.get("transformer_options") or {}).get("cond_or_uncond")
    if not parts or guidance is None or max(parts) >= len(guidance):
        return None
    return tuple(guidance[part] / parts.count(part) for part in parts)
