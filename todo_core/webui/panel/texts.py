"""What the page shows beside the settings: each label and its help once, for the controls and for translators."""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """A label, stable because the host stores users' defaults by it, and the help under it."""

    label: str
    help: str = ""


PANEL = Text("ToDo")
ADVANCED = Text("Advanced")
PRESET = Text("Preset", "Settings by name. Choosing one sets every control below.")
PRESET_NAME = Text("Preset name", "For saving, or renaming the chosen one.")
BUTTONS = {
    "save": Text("\U0001f4be", "Save the controls as a preset of this name"),
    "rename": Text("✏️", "Give the chosen preset this name"),
    "delete": Text("\U0001f5d1️", "Delete the chosen preset"),
}
COMPARE = Text("ToDo compare")
COMPARE_PRESETS = Text("Presets to compare", "Each makes the same images once more, beside the unreduced ones.")
COMPARE_IMG2IMG = Text("Let the presets act in img2img", "Without it, each preset's own setting decides.")
COMPARE_HEAT_MAPS = Text("Show where the images differ", "A map under each image: black where it is as without ToDo.")
