"""What the functions that run at the moment know, and tell nobody: their variables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def find_frame(is_it: Callable[[FrameType], bool]) -> FrameType | None:
    """The innermost running function of this thread that ``is_it``."""
    frame: FrameType | None = sys._getframe(1)
    while frame and not is_it(frame):
        frame = frame.f_back
    return frame


def variable(name: str) -> Any:
    """The variable of this name in the innermost function that has it; None where none has."""
    frame = find_frame(lambda each: name in each.f_locals)
    return frame.f_locals[name] if frame else None
