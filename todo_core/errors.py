"""The errors of this project: an invalid setting, and a model that cannot be reduced."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Any


class SettingsError(ValueError):
    """An invalid setting. Names the field, its value and what is allowed.

    Attributes: ``field`` (str), ``value`` (anything), ``allowed`` (str).
    """

    def __init__(self, field: str, value: Any, allowed: str) -> None:
        super().__init__(f"{field} = {short_repr(value)} is not possible; allowed: {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


class UnsupportedModelError(TypeError):
    """A model that cannot be reduced. Names its class and the reason."""

    def __init__(self, model: Any, reason: str) -> None:
        name = type(model).__name__
        super().__init__(f"{name} cannot be reduced: {reason}")
        self.model_name, self.reason = name, reason


class UnknownNameError(SettingsError):
    """A name that is no setting; ``allowed`` has those that there are."""


def unknown_name(name: Any, value: Any, names: Iterable[str]) -> SettingsError:
    """The error for a name that is none of ``names``, with the nearest of them."""
    shown, known = str(name)[:100], list(names)
    error = UnknownNameError(shown, value, ", ".join(known))
    error.args = (f"{shown!r} is not a setting{_nearest(shown, known)}; the settings are: {error.allowed}",)
    return error


def none_of(field: str, value: Any, names: Iterable[str]) -> SettingsError:
    """The error for a value that is none of ``names``, with the nearest of them."""
    known = list(names)
    return SettingsError(field, value, f"{', '.join(map(repr, known))}{_nearest(value, known)}")


def _nearest(wrong: Any, known: list[str]) -> str:
    if not isinstance(wrong, str):
        return ""
    similarity = {each: SequenceMatcher(None, each.lower(), wrong[:100].lower()).ratio() for each in known}
    nearest = max(known, key=similarity.__getitem__)  # the first of equals: level 1 before level 2
    return f" (did you mean {nearest}?)" if similarity[nearest] >= 0.6 else ""


def short_repr(value: Any) -> str:
    """``repr``, shortened: a value from outside can be of any size, and Python refuses to print a huge integer."""
    try:
        text = repr(value)
    except ValueError:
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:97]}..."
