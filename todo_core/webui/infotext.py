"""Infotext: written from what really ran, pasted back into the panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..record import Record
from ..settings import INFOTEXT_PREFIX, SETTINGS, Settings

KEYS = tuple(declared.infotext_key for declared in SETTINGS.values())


def clear(params: dict[str, Any]) -> None:
    """Take our keys out of a job's generation parameters: the next batch may run otherwise."""
    for key in KEYS:
        params.pop(key, None)


def write(params: dict[str, Any], settings: Settings, record: Record, *, is_img2img: bool) -> None:
    """Put the settings that had an effect into a job's generation parameters; nothing if nothing was reduced."""
    clear(params)
    if not record.levels:
        return
    without = {"passes" if is_img2img else "img2img"}
    without |= {f"{kind}_{level}" for kind in ("factor", "ratio") for level in (1, 2) if level not in record.levels}
    if settings.afterwards not in record.methods:
        settings = replace(settings, afterwards="none")
    params.update(settings.to_infotext(without=frozenset(without)))


def paste_enabled(params: Mapping[str, Any]) -> bool:
    """Whether the pasted image was reduced."""
    return INFOTEXT_PREFIX in params


def paste(name: str, show: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """A function from infotext to the control of this setting; None leaves the control alone."""

    def pasted(params: Mapping[str, Any]) -> Any:
        settings = Settings.from_infotext(params)
        return None if settings is None else show(getattr(settings, name))

    return pasted
