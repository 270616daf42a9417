"""The inputs of the nodes, made from the declared settings, and the settings made from their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from ..errors import SettingsError
from ..settings import BUILT_IN, PRESET_HELP, SETTINGS, Setting, Settings

AS_PRESET = "preset"
"""The value of an input that leaves its setting to the preset."""

LARGEST_SEED = 2**53 - 1  # the largest whole number that the page can hold
MAIN = ("factor_1", "start", "end", "interval", "predict", "tolerance")
"""The settings of the node ToDo."""
REST = tuple(name for name in SETTINGS if name not in (*MAIN, "passes"))
"""Those of the node ToDo settings. There are no passes: a model is wired to the samplings that it is for."""

Input = tuple[Any, dict[str, Any]]
_LISTED = {
    "flag": (True, False),
    "number": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9),
    "integer": (1, 2, 3, 4, 8),
    "tolerance": (0.02, 0.2, 0.4),
}


class _Choices(list[str]):
    """The values of a choice. ComfyUI looks a value up here; it may be another one that ``read`` takes."""

    def __init__(self, listed: Iterable[Any], read: Callable[[Any], Any]) -> None:
        super().__init__(map(str, listed))
        self._read = read

    def __contains__(self, value: object) -> bool:
        with suppress(SettingsError):
            return super().__contains__(value) or self._read(value) is not None
        return False


def preset_input() -> Input:
    """The choice of a built-in preset."""
    lines = (f"{name}: {does}" for name, does in PRESET_HELP.items())
    return list(BUILT_IN), {"default": next(iter(BUILT_IN)), "tooltip": "\n".join(lines)}


def inputs_of(names: Iterable[str], **more: Any) -> dict[str, Input]:
    """The inputs of these settings; ``more`` are options of each."""
    inputs = ((name, _input(SETTINGS[name])) for name in names)
    return {name: (kind, options | more) for name, (kind, options) in inputs}


def _input(setting: Setting) -> Input:
    """An input that is left to the preset by default."""
    options = {"tooltip": setting.help, "display_name": setting.label}
    if setting.kind == "seed":
        # without the last one, the page would change the value after each run
        return "INT", {**options, "default": -1, "min": -1, "max": LARGEST_SEED, "control_after_generate": False}
    listed: Iterable[Any] = _LISTED.get(setting.name, _LISTED.get(setting.kind, setting.choices))
    if setting.kind == "number":
        listed = sorted({*listed, *(getattr(preset, setting.name) for preset in BUILT_IN.values())})
    if setting.has_auto:
        listed = ("auto", *map(setting.format, setting.listed))
    options["tooltip"] += f" {AS_PRESET}: as the preset has it."
    return _Choices([AS_PRESET, *listed], setting.parse), {**options, "default": AS_PRESET}


def settings_of(preset: Any, rest: Mapping[str, Any], main: Mapping[str, Any]) -> Settings:
    """The preset with what the inputs of both nodes set. Raises SettingsError."""
    base, given = Settings.preset(preset), (*rest.items(), *main.items())
    chosen = {name: value for name, value in given if value != AS_PRESET and (name, value) != ("seed", -1)}
    return Settings.parse(base.to_dict() | chosen)


def settings_of_nodes(prompt: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of each node ToDo in a prompt. Not where ComfyUI refuses them, or a link, a list, gives a value."""
    found = {}
    for name, inputs in ((name, node["inputs"]) for name, node in prompt.items() if node["class_type"] == "ToDo"):
        with suppress(SettingsError, KeyError):
            link = inputs.get("settings")
            rest = prompt[link[0]]["inputs"] if link else {}
            settings = settings_of(inputs["preset"], rest, {each: inputs[each] for each in MAIN if each in inputs})
            found[name] = {each: getattr(settings, each) for each in (*MAIN, *REST)}
    return found


def why_not(values: Mapping[str, Any]) -> str | None:
    """Why the node ToDo cannot take these values; None if it can. Linked inputs have none yet."""
    try:
        settings_of(next(iter(BUILT_IN)), {}, {name: value for name, value in values.items() if value is not None})
    except SettingsError as error:
        return str(error)
    return None
