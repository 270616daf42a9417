"""What of ComfyUI is called, and what differs between its versions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from textwrap import fill
from typing import Any

from ..hosts.conditions import chain_of

_LINE = 39  # characters: a node's usual width
_KEY = "todo"  # of our wrappers, so that a second node replaces the first
_REPLACED = "todo_replaced"  # in the options of a UNet call: the blocks whose self-attention is replaced


def wrap_samplings(patcher: Any, wrapper: Callable[..., Any]) -> None:
    """Run ``wrapper`` around each sampling with this model, and no earlier one of ToDo."""
    from comfy.patcher_extension import WrappersMP

    patcher.remove_wrappers_with_key(WrappersMP.OUTER_SAMPLE, _KEY)
    patcher.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, _KEY, wrapper)


def wrap_steps(guider: Any, wrapper: Callable[..., Any]) -> None:
    """Run ``wrapper`` around each denoiser call of the running sampling. Its guider has options of its own."""
    from comfy.patcher_extension import WrappersMP, add_wrapper_with_key

    add_wrapper_with_key(WrappersMP.PREDICT_NOISE, _KEY, wrapper, guider.model_options, is_model_options=True)
    add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, _KEY, _name_replaced, guider.model_options, is_model_options=True)


def _name_replaced(
    executor: Any, x: Any, time: Any, context: Any, y: Any, control: Any, options: Any, **more: Any
) -> Any:
    """Around a call of the UNet: tells patches, which do not see them, what replaces self-attentions."""
    options[_REPLACED] = frozenset(options.get("patches_replace", {}).get("attn1", ()))
    return executor(x, time, context, y, control, options, **more)


def is_replaced(options: dict[str, Any]) -> bool:
    """Whether a node has replaced the self-attention of the block whose options these are, as PAG does."""
    block = options.get("block")
    names = {block, (*block, options.get("block_index", 0))} if block else set()
    return bool(names & options.get(_REPLACED, frozenset()))


def server() -> Any:
    """The server that takes the prompts; None where no page is served."""
    return getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)


def show_on_node(text: str, node: str | None) -> None:
    """Show a text on the node of this id, in the browser, if there is one. Versions before May 2025 cannot.

    In a subgraph the id is "graph:node". The graph shows the text too: the page draws no node inside a closed one.
    Each part begins a line, and lines are short: classic nodes break long ones inside words.
    """
    text = "\n".join(fill(part, _LINE) for part in text.replace("; ", ";\n").splitlines())
    send = getattr(server(), "send_progress_text", None)
    while send and node:
        send(text, node)
        node = node.rpartition(":")[0]


def running_prompt() -> Any:
    """The id of the prompt that runs; None where ComfyUI does not tell it."""
    return getattr(server(), "last_prompt_id", None)


def controls_of(guider: Any) -> list[Any]:
    """All ControlNets and other adapters in the conditions of the running sampling."""
    conditions = (each for of_kind in guider.conds.values() for each in of_kind)
    return [control for condition in conditions for control in chain_of(condition.get("control"))]


def controlnets_of(guider: Any) -> list[Any]:
    """The models of the ControlNets among them."""
    found = (getattr(control, "control_model", None) for control in controls_of(guider))
    return list({id(model): model for model in found if model is not None}.values())
