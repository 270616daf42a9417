"""The inputs of the nodes, made from the declared settings, and the settings made from their values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..errors import SettingsError
from ..settings import BUILT_IN, SETTINGS, Setting, Settings

AS_PRESET = "preset"
"""The value of an input that leaves its setting to the preset."""

LARGEST_SEED = 2**53 - 1  # the largest whole number that the page can hold
MAIN = ("factor_1", "interval", "start", "end")
"""The settings of the node ToDo."""
REST = tuple(name for name in SETTINGS if name not in (*MAIN, "passes"))
"""Those of the node ToDo settings. There are no passes: a model is wired to the samplings that it is for."""

Input = tuple[Any, dict[str, Any]]
# a saved workflow has values by position, so a retired setting keeps its place: before these
_RETIRED: Input = ("INT", {"default": 0, "min": 0, "max": 64, "tooltip": "Has no effect any more."})
_AFTER_RETIRED = ("predict", "tolerance")


class _Choices(list[str]):
    """The values of a choice. ComfyUI looks a value up here, and programs write a factor as a number."""

    def __contains__(self, value: object) -> bool:
        return super().__contains__(str(value))


def preset_input() -> Input:
    """The choice of a built-in preset."""
    return list(BUILT_IN), {"default": next(iter(BUILT_IN)), "tooltip": "The settings that no other input changes."}


def main_input(setting: Setting) -> Input:
    """An input of the node ToDo. Factors can be left to the preset, which is their default."""
    kind, options = rest_input(setting)
    if setting.kind != "factor":
        return kind, options
    options["tooltip"] += f" {AS_PRESET}: as the preset has it."
    return _Choices([AS_PRESET, *kind]), {**options, "default": AS_PRESET}


def read_main(values: Mapping[str, Any], base: Settings) -> Settings:
    """``base`` with the values of the node ToDo. Start and end narrow the window of ``base``. Raises SettingsError."""
    chosen = {name: value for name, value in values.items() if value != AS_PRESET}
    read = {name: SETTINGS[name].parse(value) for name, value in chosen.items()}
    if "start" in read:
        read["start"] = max(read["start"], base.start)
    if "end" in read:
        read["end"] = min(read["end"], base.end)
    return replace(base, **read)


def read_rest(values: Mapping[str, Any]) -> Settings:
    """The settings that the node ToDo settings asks for. Raises SettingsError."""
    return Settings.parse({name: None if (name, value) == ("seed", -1) else value for name, value in values.items()})


def read_nodes(prompt: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of each node ToDo in a prompt. Not where ComfyUI refuses them, or a link, a list, gives a value."""
    found = {}
    for name, inputs in ((name, node["inputs"]) for name, node in prompt.items() if node["class_type"] == "ToDo"):
        with suppress(SettingsError, KeyError):
            link = inputs.get("settings")
            base = read_rest(prompt[link[0]]["inputs"]) if link else Settings.preset(inputs["preset"])
            settings = read_main({each: inputs[each] for each in MAIN if each in inputs}, base)
            found[name] = {each: getattr(settings, each) for each in (*MAIN, *REST)}
    return found


def rest_inputs() -> dict[str, Input]:
    """The inputs of the node ToDo settings."""
    inputs = {name: rest_input(SETTINGS[name]) for name in REST}
    later = {name: inputs.pop(name) for name in _AFTER_RETIRED}
    return {**inputs, "reach": _RETIRED, **later}


def why_not(values: Mapping[str, Any]) -> str | None:
    """Why the node ToDo cannot take these values; None if it can. Linked inputs have none yet."""
    try:
        read_main({name: value for name, value in values.items() if value is not None}, Settings())
    except SettingsError as error:
        return str(error)
    return None


def rest_input(setting: Setting) -> Input:
    """An input of the node ToDo settings."""
    options = {"default": setting.default, "tooltip": setting.help, "display_name": setting.label}
    if setting.kind == "choice":
        return list(setting.choices), options
    if setting.kind == "factor":
        numbers = range(int(setting.minimum), int(setting.maximum) + 1)
        return _Choices(["auto", *map(str, numbers)]), {**options, "default": str(setting.default)}
    if setting.kind == "flag":
        return "BOOLEAN", options
    if setting.kind == "seed":
        options["tooltip"] += " -1: empty."
        # without the last one, the page would change the value after each run
        return "INT", {**options, "default": -1, "min": -1, "max": LARGEST_SEED, "control_after_generate": False}
    kind, number = ("FLOAT", float) if setting.kind == "number" else ("INT", int)
    limits = {"min": setting.minimum, "max": setting.maximum, "step": setting.step}
    return kind, {**options, **{name: number(limit) for name, limit in limits.items()}}
