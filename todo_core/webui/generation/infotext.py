"""Infotext: written from what really ran, pasted back into the panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...patching.record import Record
from ...settings import INFOTEXT_PREFIX, SETTINGS, Settings

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


def settings_of(params: Mapping[str, Any]) -> Settings | None:
    """The settings of a pasted image that this extension reduced, or sd-webui-token-downsampling; else None.

    The latter acts in every pass and keeps the same token of each cell, and its factor 1 or end 0 does nothing.
    """
    if INFOTEXT_PREFIX in params or "ToDo factor" not in params:
        return Settings.from_infotext(params)
    named = {ours: SETTINGS[ours].parse(params.get(theirs, "1")) for ours, theirs in _THEIRS.items()}
    if named["end"] == 0 or named["factor_1"] == named["factor_2"] == 1:
        return None
    return Settings(**named, phase="fixed", passes="all", img2img=True)


_THEIRS = {"factor_1": "ToDo factor", "factor_2": "ToDo factor2", "end": "ToDo disable after"}


def adopt_merging(params: dict[str, Any]) -> None:
    """Turn the keys of the host's token merging into ours, if one set of settings says the same.

    The host's keys go, or it would add its own override for them and merge besides. It merges without drawing, in
    cells of 2 x 2, so at most three quarters; ``Token merging ratio`` is that of the first pass and of img2img.
    """
    if not any(key in params for key in _MERGING) or any(key in params for key in (INFOTEXT_PREFIX, "ToDo factor")):
        return
    first, hires = (float(params.get(key, 0)) for key in _MERGING)
    if first and hires and first != hires:
        return
    passes = "all" if first and hires else "first" if first else "hires"
    settings = Settings(
        method="similarity",
        target="all",
        ratio_1=min(first or hires, 0.75),
        random=False,
        passes=passes,
        img2img=bool(first),
    )
    for key in _MERGING:
        params.pop(key, None)
    params.update(settings.to_infotext())


_MERGING = ("Token merging ratio", "Token merging ratio hr")


def paste_enabled(params: Mapping[str, Any]) -> bool:
    """Whether the pasted image was reduced."""
    return settings_of(params) is not None


def paste(name: str, show: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """A function from infotext to the control of this setting; None leaves the control alone."""

    def pasted(params: Mapping[str, Any]) -> Any:
        settings = settings_of(params)
        return None if settings is None else show(getattr(settings, name))

    return pasted
