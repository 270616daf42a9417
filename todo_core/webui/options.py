"""The page Settings > ToDo: each option is declared once, and read anew for every image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import logs

SECTION = ("todo", "ToDo")
SAVED_DEFAULTS = "saved defaults"


@dataclass(frozen=True)
class Option:
    """An option of the settings page: one choice of several."""

    label: str
    help: str
    choices: tuple[str, ...]  # the first is the default
    needs_reload: bool = False


OPTIONS: Mapping[str, Option] = {
    "todo_default_preset": Option(
        "Starting preset",
        "a preset here replaces the panel's values in Settings > Defaults",
        (SAVED_DEFAULTS,),
        needs_reload=True,
    ),
    "todo_log": Option(
        "Console log",
        "each pass: also one line for each pass, with what was reduced",
        tuple(logs.LEVELS),
    ),
}


def value(key: str) -> str:
    """The user's choice now; the default if that choice no longer exists."""
    from modules import shared

    option, chosen = OPTIONS[key], getattr(shared.opts, key, None)
    known = chosen in option.choices or key == "todo_default_preset"
    return chosen if chosen and known else option.choices[0]


def register(presets: Callable[[], list[str]]) -> None:
    """Add the page to the WebUI's settings; ``presets`` returns the names of the presets."""
    from modules import shared

    for key, option in OPTIONS.items():
        shared.opts.add_option(key, _info(shared, key, option, presets))


def _info(shared: Any, key: str, option: Option, presets: Callable[[], list[str]]) -> Any:
    import gradio as gr

    def choices() -> dict[str, list[str]]:
        return {"choices": [*option.choices, *(presets() if key == "todo_default_preset" else ())]}

    component = gr.Dropdown if key == "todo_default_preset" else gr.Radio
    info = shared.OptionInfo(option.choices[0], option.label, component, choices, section=SECTION).info(option.help)
    return info.needs_reload_ui() if option.needs_reload else info
