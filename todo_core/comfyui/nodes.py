"""The nodes: *ToDo* reduces the samplings of a model, *ToDo settings* has the settings that *ToDo* does not show."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

from .. import __version__
from ..errors import UnsupportedModelError
from ..hosts import detect
from . import compat
from .inputs import MAIN, REST, inputs_of, preset_input, settings_of, settings_of_nodes, why_not
from .sampling import reduced_sampling

log = logging.getLogger("todo_core")

_TYPE = "TODO_SETTINGS"
_CATEGORY = "model/patch/unet"


class ToDo:
    """Model in, model out. Samplers that get the model from here reduce self-attention."""

    DESCRIPTION = (
        "Large images take less time: whole steps and layers are predicted, and self-attention reads fewer tokens. "
        "Wire it before the KSampler of the large pass; after a run, the node tells what was left out."
    )
    SEARCH_ALIASES = (
        "hires", "hires fix", "faster hires", "upscale", "speed", "speed up", "faster", "accelerate", "optimize",
        "optimization", "SDXL", "cache", "step cache", "token merging", "token downsampling", "tome", "tomesd",
        "hypertile",
    )  # fmt: skip
    CATEGORY, FUNCTION, RETURN_TYPES = _CATEGORY, "patch", ("MODEL",)
    OUTPUT_TOOLTIPS = ("The model, reduced while it samples.",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """The inputs, as ComfyUI asks for them."""
        model = ("MODEL", {"tooltip": "SD 1, SD 2, SDXL or Stable Video Diffusion. Other models pass through."})
        settings = (_TYPE, {"tooltip": "From the node ToDo settings, on top of the preset."})
        return {
            "required": {"model": model, "preset": preset_input()},
            "optional": {**inputs_of(MAIN, advanced=True), "settings": settings},  # a program may leave them out
            "hidden": {"node": "UNIQUE_ID"},
        }

    @classmethod
    def VALIDATE_INPUTS(cls, start: Any = None, end: Any = None) -> str | Literal[True]:
        """What ComfyUI refuses when the prompt is queued."""
        return why_not({"start": start, "end": end}) or True

    def patch(
        self, model: Any, preset: str, settings: Mapping[str, Any] | None = None, node: str | None = None, **values: Any
    ) -> tuple[Any]:
        """A clone of the model whose samplings are reduced; the model itself if it cannot be reduced."""
        wanted = settings_of(preset, settings or {}, values)

        def tell(text: str, level: int = logging.INFO) -> None:
            log.log(level, text)
            compat.show_on_node(text, node)

        try:
            detect(model)
        except UnsupportedModelError as error:
            tell(f"ToDo leaves this model as it is: {error}", logging.WARNING)
            return (model,)
        model = model.clone()
        compat.wrap_samplings(model, reduced_sampling(wanted, tell))
        return (model,)


class ToDoSettings:
    """The settings that the node ToDo does not show."""

    DESCRIPTION = "All other settings, for the node ToDo, on top of its preset."
    CATEGORY, FUNCTION, RETURN_TYPES, RETURN_NAMES = _CATEGORY, "collect", (_TYPE,), ("settings",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """The inputs, as ComfyUI asks for them."""
        return {"required": {}, "optional": inputs_of(REST), "hidden": {"prompt": "PROMPT", "node": "UNIQUE_ID"}}

    def collect(self, prompt: Mapping[str, Any] | None = None, node: str = "", **values: Any) -> tuple[dict[str, Any]]:
        """The inputs as they are set, for the node *ToDo*. Some are its own today, and older prompts have them here."""
        own = (prompt or {}).get(node, {"inputs": {}})["inputs"]
        return ({name: own[name] for name in MAIN if name in own} | values,)


NODE_CLASS_MAPPINGS = {"ToDo": ToDo, "ToDoSettings": ToDoSettings}
NODE_DISPLAY_NAME_MAPPINGS = {"ToDo": "ToDo: faster large images (hires fix)", "ToDoSettings": "ToDo settings"}


def note_settings(data: dict[str, Any]) -> dict[str, Any]:
    """Write the settings of each node ToDo into a prompt's workflow, which saved images have: presets may change."""
    workflow = (data.get("extra_data", {}).get("extra_pnginfo") or {}).get("workflow") or {}
    workflow.setdefault("extra", {}).pop("ToDo", None)
    if settings := settings_of_nodes(data.get("prompt", {})):
        workflow["extra"]["ToDo"] = {"version": __version__, "settings": settings}
    return data


if server := compat.server():
    server.add_on_prompt_handler(note_settings)  # runs for each prompt, a node only when its inputs have changed
