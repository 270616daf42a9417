"""What a declared setting has: its range or choices, its label and help, and how its text is read."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

from ..errors import SettingsError

VERSION_KEY = "ToDo version"
Factor = int | Literal["auto"]
Share = float | Literal["auto"]
_KINDS = {bool: "flag", float: "number", int: "integer", Factor: "factor", Share: "share", int | None: "seed"}


@dataclass(frozen=True)
class Setting:
    """One declared setting: its possible values, and when it has an effect. Its field gives name, type and default."""

    label: str
    used: Callable[[Any], bool] = lambda settings: True
    minimum: float = 0
    maximum: float = math.inf
    step: float = 1
    name: str = ""
    type: Any = None
    default: Any = None
    help: str = ""

    @property
    def kind(self) -> str:
        """One of choice, flag, number, integer, factor and share ("auto" or a number), and seed (None or integer)."""
        return "choice" if self.choices else _KINDS[self.type]

    @property
    def is_real(self) -> bool:
        """Whether its numbers need not be whole."""
        return self.kind in ("number", "share")

    @property
    def has_auto(self) -> bool:
        """Whether "auto" is a value."""
        return self.kind in ("factor", "share")

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a choice, and nothing for other kinds."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def listed(self) -> list[float]:
        """Usual numbers of a factor or share."""
        if self.kind == "factor":
            return [*range(int(self.minimum), int(self.maximum) + 1)]
        return [twentieth / 20 for twentieth in range(21)]  # the WebUI restores only defaults that its list has

    @property
    def infotext_key(self) -> str:
        """The key of its value in an image's infotext."""
        return f"ToDo {self.name.replace('_', ' ')}"

    @property
    def allowed(self) -> str:
        """The possible values, in words."""
        if self.kind == "choice":
            return ", ".join(map(repr, self.choices))
        if self.kind == "flag":
            return "True or False"
        if self.kind == "seed":
            return "None or -1 (each image's own seed) or a whole number >= 0"
        noun = "a number" if self.is_real else "a whole number"
        auto = "'auto' or " if self.has_auto else ""
        return f"{auto}{noun} from {self.minimum:g} to {self.maximum:g}"

    def check(self, value: Any) -> Any:
        """Return ``value`` in its own type, or raise SettingsError."""
        value = value.item() if getattr(value, "shape", None) == () else value  # numpy's numbers
        if self.kind == "choice" and isinstance(value, str) and value in self.choices:
            return value
        if self.kind == "flag" and isinstance(value, bool):
            return value
        if self.has_auto and isinstance(value, str) and value == "auto":  # a str: arrays compare each number
            return value
        if self.kind == "seed" and (value is None or (isinstance(value, (int, float)) and value == -1)):
            return None  # -1 is random for the WebUI's own seed, too
        if self.kind not in ("choice", "flag") and self._is_number(value):
            return float(value) if self.is_real else int(value)
        raise SettingsError(self.name, value, self.allowed)

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        if not abs(value) <= sys.float_info.max:  # NaN, infinity, and whole numbers beyond every float
            return False
        has_its_type = self.is_real or value == int(value)
        return has_its_type and self.minimum <= value <= self.maximum

    def parse(self, value: Any) -> Any:
        """Does as ``check``, after reading text: infotext, dropdowns and axes have values as text."""
        return self.check(self._read(value))

    def _read(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = value.strip()
        if self.kind == "choice" or (self.has_auto and text == "auto"):
            return text
        if self.kind == "flag":
            return {"true": True, "false": False}.get(text.lower(), text)
        if self.kind == "seed" and text.lower() in ("", "none"):
            return None
        try:
            return int(text) if text.lstrip("-").isdigit() else float(text)
        except ValueError:
            return text

    def format(self, value: Any) -> str:
        """The text of a value: ``parse(format(value)) == value``."""
        return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def strings_under_fields(declared: type) -> dict[str, str]:
    """What editors show as the documentation of a class's fields. Python keeps it in the source alone."""
    try:
        (of_class,) = ast.parse(inspect.getsource(declared)).body
    except OSError:  # a program that ships without sources
        return {}
    found = {}
    for pair in pairwise(ast.iter_child_nodes(of_class)):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = text
    return found
