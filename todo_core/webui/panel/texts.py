"""The panel's and Compare's texts that belong to no setting."""

from __future__ import annotations

from typing import NamedTuple

from ...settings import AIMS, seen


class Text(NamedTuple):
    """A label and the help under it. The WebUI stores a user's defaults by label."""

    label: str
    help: str = ""


PANEL = Text("ToDo")
TITLES = {"txt2img": "ToDo: faster hires fix", "img2img": "ToDo: faster img2img"}  # of the accordion in each tab
LINE = (
    "Predicted: the model does not run in this step; partly: only its upper layers run. "
    "Reduced: it runs with fewer tokens. Tokens: the model sees the image as a grid of them. "
    "Level 1: the layers that see the finest grid. "
    "Click Generate: a line under the image says what happened."
)
ADVANCED = Text("Advanced")
PRESET = Text("Preset", "Choosing a preset sets every control.")
PRESET_NAME = Text("Preset name")
BUTTONS = {
    "save": Text("\U0001f4be", "Save the controls as a preset of this name"),
    "delete": Text("\U0001f5d1️", "Delete the chosen preset"),
}
COMPARE = Text("ToDo compare")
COMPARE_WITH_PANEL = Text("the panel's settings")
COMPARE_PRESETS = Text(
    "Presets to compare", f"Differences: {', '.join(f'{name} {seen(psnr)}' for name, psnr in AIMS.items())}."
)
COMPARE_HEAT_MAPS = Text("Difference maps", "A map under each image; black where it equals the baseline.")
COMPARE_PLAIN = Text("Plain steps", "Also the baseline with fewer steps: as many as take each preset's time.")
COMPARE_REPEATS = Text("Repeats", "Timed rounds. The table shows the median.")
