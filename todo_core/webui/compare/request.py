"""What the user has chosen to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import SettingsError
from ..panel import texts
from ..presets import Presets

FROM_PANEL = texts.COMPARE_WITH_PANEL.label  # stands for a preset
SEPARATOR = ";"
DEFAULT_REPEATS, MOST_REPEATS = 2, 10


@dataclass(frozen=True)
class CompareRequest:
    """The values of Compare's controls."""

    names: tuple[str, ...]  # presets and FROM_PANEL
    heat_maps: bool = True
    repeats: int = DEFAULT_REPEATS
    plain_steps: bool = True  # rows of the baseline with fewer steps, as many as each variant has time for

    @classmethod
    def of(cls, names: Any, heat_maps: Any, repeats: Any, plain_steps: Any, presets: Presets) -> CompareRequest:
        """Check the values; ``names`` is a list, or text with semicolons. Raises SettingsError."""
        listed = [name.strip() for name in names.split(SEPARATOR)] if isinstance(names, str) else names
        is_list = isinstance(listed, (list, tuple)) and all(isinstance(name, str) for name in listed)
        chosen = tuple(dict.fromkeys(name for name in listed if name)) if is_list else ()
        if not chosen:
            raise SettingsError("presets", names, f"at least one of {', '.join([FROM_PANEL, *presets.names])}")
        for name in chosen:
            if name != FROM_PANEL:
                presets.get(name)
        if not isinstance(repeats, (int, float)) or repeats not in range(1, MOST_REPEATS + 1):
            raise SettingsError("repeats", repeats, f"a whole number from 1 to {MOST_REPEATS}")
        return cls(chosen, bool(heat_maps), int(repeats), bool(plain_steps))
