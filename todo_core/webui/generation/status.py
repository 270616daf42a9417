"""The lines under the image that no pass tells."""

from __future__ import annotations

from ...errors import SettingsError

DOWNSAMPLING = "sd-webui-token-downsampling"


def of_cell(cell: str, line: str) -> str:
    """The line of one cell of an X/Y/Z plot, after the cell's values; the line itself outside of a plot."""
    return f"ToDo with {cell}: {line.removeprefix('ToDo ')}" if cell else line


def no_pass(reason: str) -> str:
    """A generation without any pass in which ToDo was to act."""
    return f"ToDo reduced nothing: {reason}"


def invalid_settings(error: SettingsError | str) -> str:
    """Values that are not possible."""
    return f"ToDo is off for this image. {error}"


def merging(ratio: float) -> str:
    """The WebUI merges tokens in some layers of the pass."""
    return f"Token merging ({ratio:g}) is on: ToDo skips the layers that it merges"


def downsampling_off() -> str:
    """ToDo replaces sd-webui-token-downsampling for this image."""
    return f"{DOWNSAMPLING} is on: ToDo switches it off for this image"
