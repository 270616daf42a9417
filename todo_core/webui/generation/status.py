"""The lines under the image: what ToDo did in each pass, or why it did nothing."""

from __future__ import annotations

from ...errors import SettingsError, UnsupportedModelError
from ...patching.plan import Plan

DOWNSAMPLING = "sd-webui-token-downsampling"


def reduced(pass_name: str, summary: str) -> str:
    """A pass in which something was reduced; the record sums it up."""
    return f"ToDo reduced the {pass_name} pass: {summary}"


def of_cell(cell: str, line: str) -> str:
    """The line of one cell of an X/Y/Z plot, after the cell's values; the line itself outside of a plot."""
    return f"ToDo with {cell}: {line.removeprefix('ToDo ')}" if cell else line


def not_reduced(pass_name: str, reason: str) -> str:
    """A pass in which ToDo was active, but did not reduce anything."""
    return f"ToDo reduced nothing in the {pass_name} pass: {reason}"


def nothing_to_reduce(plan: Plan) -> str:
    """A pass whose plan reduces nothing."""
    return f"ToDo found {plan.nothing_to_reduce}"


def no_pass(reason: str) -> str:
    """A generation without any pass in which ToDo was to act."""
    return f"ToDo reduced nothing: {reason}"


def failed(pass_name: str, error: Exception) -> str:
    """An error of the extension, or a model that it cannot reduce."""
    if isinstance(error, UnsupportedModelError):
        return f"ToDo cannot reduce {error.model_name}: {error.reason}"
    return f"ToDo stopped in the {pass_name} pass: {error}"


def invalid_settings(error: SettingsError | str) -> str:
    """Values that are not possible."""
    return f"ToDo is off for this image. {error}"


def merging(ratio: float) -> str:
    """The WebUI merges tokens in some layers of the pass."""
    return f"Token merging ({ratio:g}) is on: ToDo skips the layers that it merges"


def downsampling_off() -> str:
    """ToDo replaces sd-webui-token-downsampling for this image."""
    return f"{DOWNSAMPLING} is on: ToDo switches it off for this image"
