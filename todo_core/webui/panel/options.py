"""The page Settings > ToDo: each option declared once, and read from the host anew whenever it matters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import logs

SECTION = ("todo", "ToDo")
AS_SAVED = "as saved in the page's defaults"


@dataclass(frozen=True)
class Option:
    """An option of the settings page: one choice of several."""

    label: str
    help: str
    choices: tuple[str, ...]  # the first is the default
    needs_reload: bool = False


OPTIONS: Mapping[str, Option] = {
    "todo_default_preset": Option(
        "Preset that the panel starts with",
        "with one, the panel no longer takes part in Settings > Defaults",
        (AS_SAVED,),
        needs_reload=True,
    ),
    "todo_beside_merging": Option(
        "Where the host's token merging or HyperTile is on too",
        "warn: ToDo reduces what they leave whole, and says so; stand aside: it reduces nothing in such a pass",
        ("warn", "stand aside"),
    ),
    "todo_beside_downsampling": Option(
        "Where sd-webui-token-downsampling is on too",
        "the two never act on one image: take over switches the other off for it, stand aside leaves it to the other",
        ("take over", "stand aside"),
    ),
    "todo_paste_merging": Option(
        "Images made with the host's token merging are pasted",
        "into the panel, as the ToMe settings that do the same; or into the host's override settings, as without ToDo",
        ("into the panel", "into the override settings"),
    ),
    "todo_log": Option(
        "What ToDo writes to the console",
        "each pass tells what was reduced in it",
        tuple(logs.LEVELS),
    ),
}


def value(key: str) -> str:
    """What the user has chosen, now. The default, where that choice is none of today's."""
    from modules import shared

    option, chosen = OPTIONS[key], getattr(shared.opts, key, None)
    known = chosen in option.choices or key == "todo_default_preset"
    return chosen if chosen and known else option.choices[0]


def register(presets: Callable[[], list[str]]) -> None:
    """Put the page into the host's settings; ``presets`` names those there are."""
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
