"""What the user has chosen to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import SettingsError
from ...settings.presets import Presets
from ..panel.error_text import PanelError

PANEL = "the panel's settings"
SEPARATOR = ";"


@dataclass(frozen=True)
class CompareRequest:
    """The values of Compare's controls."""

    names: tuple[str, ...]  # presets and PANEL
    img2img: bool = True  # let presets act in img2img too
    heat_maps: bool = True

    @classmethod
    def of(cls, names: Any, img2img: bool, heat_maps: bool, presets: Presets) -> CompareRequest:
        """Check ``names``, a list or text with semicolons. PanelError if there is none, or no preset of a name."""
        listed = names.split(SEPARATOR) if isinstance(names, str) else list(names or ())
        chosen = tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))
        try:
            if not chosen:
                raise SettingsError("presets", names, f"at least one of {', '.join([PANEL, *presets.names])}")
            for name in chosen:
                if name != PANEL:
                    presets.get(name)
        except SettingsError as error:
            raise PanelError(error) from None
        return cls(chosen, bool(img2img), bool(heat_maps))
