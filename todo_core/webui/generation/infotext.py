"""Infotext: written from what really ran, pasted back into the panel."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from ... import __version__
from ...errors import SettingsError
from ...settings import SETTINGS, VERSION_KEY, Settings

KEYS = (*(declared.infotext_key for declared in SETTINGS.values()), VERSION_KEY)
ENABLED_KEY = "ToDo enabled"  # no image has it: the keys of one that was reduced say so
ERROR_KEY = "ToDo error"  # in the infotext that is pasted into the page: what this version does not know of it


def clear(params: dict[str, Any]) -> None:
    """Remove our keys from a generation's parameters: the next batch may run with other settings."""
    for key in KEYS:
        params.pop(key, None)


def write(params: dict[str, Any], as_infotext: Callable[[], dict[str, str]], is_img2img: bool) -> None:
    """Write settings into a generation's parameters, if there are any: those of a pass that were used, or will be."""
    if written := as_infotext():
        clear(params)
        params.update({**written, VERSION_KEY: __version__})
        if is_img2img:
            params.pop(SETTINGS["passes"].infotext_key, None)


def settings_of(params: Mapping[str, Any]) -> Settings | None:
    """The settings of a pasted image that this extension or sd-webui-token-downsampling reduced; else None.

    sd-webui-token-downsampling acts in every pass and keeps the same token of each cell. Its factor 1 or end 0 does
    nothing.
    """
    ours = Settings.from_infotext(params)
    if ours or "ToDo factor" not in params:
        return ours
    factors = {name: SETTINGS[name].parse(_whole(params.get(key, 1))) for name, key in _THEIR_FACTORS.items()}
    end = SETTINGS["end"].parse(params.get("ToDo disable after", 1))
    if end == 0 or {*factors.values()} == {1}:
        return None
    return Settings(**factors, end=end, phase="fixed", passes="all", interval=1)


_THEIR_FACTORS = {"factor_1": "ToDo factor", "factor_2": "ToDo factor2"}  # in steps of 0.5


def _whole(factor: Any) -> Any:
    """The nearest whole number, or the text if it is not a number."""
    try:
        return math.floor(float(factor) + 0.5)
    except (ValueError, OverflowError):
        return factor


def convert_token_merging(params: dict[str, Any]) -> None:
    """Turn the keys of the WebUI's token merging into ours, if one set of settings can express them.

    This removes the WebUI's keys. Otherwise the WebUI would set its own override from them and merge as well.
    The WebUI merges in cells of 2 x 2 with fixed destinations. So it removes at most three quarters of the tokens.
    ``Token merging ratio`` applies to the first pass and to img2img.
    """
    is_ours = any(key in params for key in (SETTINGS["method"].infotext_key, VERSION_KEY, "ToDo factor"))
    if is_ours or not any(key in params for key in _MERGING_KEYS):
        return
    first, hires = (float(params.get(key, 0)) for key in _MERGING_KEYS)
    if first and hires and first != hires:
        return
    settings = Settings(
        method="similarity",
        target="all",
        ratio_1=min(first or hires, 0.75),
        random=False,
        passes="all" if first and hires else "first" if first else "hires",
        interval=1,
    )
    for key in _MERGING_KEYS:
        params.pop(key, None)
    params.update(settings.to_infotext())


_MERGING_KEYS = ("Token merging ratio", "Token merging ratio hr")


class PasteField(str):
    """The infotext key of a control, and the function from a pasted infotext to the control's value.

    The WebUI calls it to paste an image. To send the values of one tab to another, it looks for equal keys.
    """

    _name: str
    _show: Callable[[Any], Any]

    @classmethod
    def of(cls, key: str, name: str, show: Callable[[Any], Any]) -> PasteField:
        """The field of the setting ``name``, or of "enabled"; ``show`` makes its control's value."""
        field = cls(key)
        field._name, field._show = name, show
        return field

    def __call__(self, params: Mapping[str, Any]) -> Any:
        """The control's value in a pasted infotext; None leaves the control alone."""
        values = _pasted(params)
        if self._name == "enabled":
            _warn(params, values)
        return self._show(values[self._name]) if self._name in values else None


def _pasted(params: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an infotext by name.

    An API request with an unknown value gets it, or a sentence about it, as its method: that one may be any text, and
    the generation reports it.
    """
    try:
        settings = None if ERROR_KEY in params else settings_of(params)
    except SettingsError as error:
        return {"enabled": True, "method": error.value if error.field == "method" else str(error)}
    return {"enabled": True, **settings.to_dict()} if settings else {"enabled": False}


def _warn(params: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Warn on the page of values that are unknown or rounded."""
    import gradio as gr

    if ERROR_KEY in params:
        gr.Warning(f"ToDo is off: this version does not know a value of the pasted image. {params[ERROR_KEY]}")
    for name, key in _THEIR_FACTORS.items():
        if name in values and re.fullmatch(r"\d*\.\d*[1-9]\d*", str(params.get(key))):
            gr.Warning(f"{SETTINGS[name].label}: {params[key]} of the image is now {values[name]}.")
