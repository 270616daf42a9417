"""What a declared setting has: its range or choices, its label and help, and how its text is read."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from ..errors import SettingsError

METHOD_KEY, VERSION_KEY = "ToDo method", "ToDo version"
Factor = int | Literal["auto"]
_AUTO_USED = re.compile(r"auto \(([\w ]+)\)")  # in infotext, with what auto has chosen
_KINDS = {bool: "flag", float: "number", int: "integer", Factor: "factor", int | None: "seed"}


@dataclass(frozen=True)
class Setting:
    """One declared setting: its possible values, and when it has an effect. Its field gives name, type and default."""

    label: str
    used: Callable[[Any], bool] = lambda settings: True
    minimum: float = 0
    maximum: float = math.inf
    step: float = 1
    in_older_images: Any = None  # the value of images from before this setting, if it is not the default
    before_0_4: Any = None  # the value of images of version 0.3 that do not name it, if it is not that of today
    name: str = ""
    type: Any = None
    default: Any = None
    help: str = ""

    @property
    def kind(self) -> str:
        """One of choice, flag, number, integer, factor ("auto" or an integer) and seed (None or an integer)."""
        return "choice" if self.choices else _KINDS[self.type]

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a choice, and nothing for other kinds."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def left_out(self) -> Any:
        """The value that infotext leaves out."""
        return self.default if self.in_older_images is None else self.in_older_images

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
        noun = "a number" if self.kind == "number" else "a whole number"
        auto = "'auto' or " if self.kind == "factor" else ""
        return f"{auto}{noun} from {self.minimum:g} to {self.maximum:g}"

    def check(self, value: Any) -> Any:
        """Return ``value`` in its own type, or raise SettingsError."""
        if self.kind == "choice" and isinstance(value, str) and value in self.choices:
            return value
        if self.kind == "flag" and isinstance(value, bool):
            return value
        if self.kind == "factor" and value == "auto":
            return value
        if self.kind == "seed" and value in (None, -1):  # -1 is random for the WebUI's own seed, too
            return None
        if self.kind in ("number", "factor", "integer", "seed") and self._is_number(value):
            return float(value) if self.kind == "number" else int(value)
        raise SettingsError(self.name, value, self.allowed)

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        if not abs(value) <= sys.float_info.max:  # NaN, infinity, and whole numbers beyond every float
            return False
        has_its_type = self.kind == "number" or value == int(value)
        return has_its_type and self.minimum <= value <= self.maximum

    def parse(self, value: Any) -> Any:
        """As ``check``, after reading text: infotext, dropdowns and axes have values as text."""
        return self.check(self._read(value))

    def parse_older(self, value: Any) -> Any:
        """As ``parse``, for images and presets: "auto (2)" is auto, factors were fractional, a choice had auto."""
        read = self._read(value)
        if read == "auto" or _AUTO_USED.fullmatch(str(read)):
            return "auto" if self.kind == "factor" else self.default
        if self.kind == "factor" and isinstance(read, float) and read >= self.minimum:
            read = min(math.floor(read + 0.5), int(self.maximum))
        return self.check(read)

    def used_by_auto(self, text: str) -> str:
        """What auto has used for an image, from its infotext; any other text, such as "auto (6 of 10)", as it is."""
        return re.sub(r"auto \((\w+)\)", r"\1", text)

    def _read(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = value.strip()
        if self.kind == "choice" or (self.kind == "factor" and text == "auto"):
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
