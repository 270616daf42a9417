"""The lines under the image: what ToDo did in each pass, or why it did nothing."""

from __future__ import annotations

from ...errors import SettingsError, UnsupportedModelError
from ...patching.plan import Plan
from ...patching.record import Record
from .other_reducers import Reducer

DOWNSAMPLING = "sd-webui-token-downsampling"


def reduced(pass_name: str, record: Record, steps: int) -> str:
    """What was reduced, and in how many of the pass's ``steps``."""
    return f"ToDo reduced the {pass_name} pass: {record.summary(steps)}"


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


def skips_layers(other: Reducer) -> str:
    """Another feature changes some layers of the pass."""
    return f"{other.name} is on: ToDo skips the layers that it {other.verb}"


def skips_pass(other: str, pass_name: str) -> str:
    """The user leaves the whole pass to another feature."""
    return f"{other} is on: ToDo skips the {pass_name} pass (Settings > ToDo)"


def downsampling_off() -> str:
    """ToDo replaces sd-webui-token-downsampling for this image."""
    return f"{DOWNSAMPLING} is on: ToDo switches it off for this image"


def downsampling_first() -> str:
    """The user leaves the image to sd-webui-token-downsampling."""
    return f"{DOWNSAMPLING} is on: ToDo skips this image (Settings > ToDo)"
