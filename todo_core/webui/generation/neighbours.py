"""Others that reduce the same attention: the host's token merging and HyperTile, and sd-webui-token-downsampling."""

from __future__ import annotations

from typing import Any

_THEIR_FACTORS = ("token_downsampling_factor", "token_downsampling_factor2")
"""sd-webui-token-downsampling's options; an attribute of this name on a processing object goes before the option."""


def in_pass(p: Any, name: str) -> list[str]:
    """The host's own features that are on in this pass, in words."""
    from modules import shared

    found = []
    ratio = p.get_token_merging_ratio(for_hr=name == "hires")
    if ratio:
        found.append(f"the host's token merging ({ratio:g})")
    second = name == "hires" and getattr(shared.opts, "hypertile_enable_unet_secondpass", False)
    if getattr(shared.opts, "hypertile_enable_unet", False) or second:
        found.append("HyperTile")
    return found


def merges_by_default() -> bool:
    """Whether the host merges tokens in every generation, by its own settings page."""
    from modules import shared

    names = ("token_merging_ratio", "token_merging_ratio_hr")
    return any(getattr(shared.opts, name, 0) for name in names)


def downsampling(p: Any) -> bool:
    """Whether sd-webui-token-downsampling is installed and would act on this generation."""
    from modules import shared

    there = [name for name in _THEIR_FACTORS if name in shared.opts.data_labels]  # values outlive an uninstall
    return any(getattr(p, name, getattr(shared.opts, name)) > 1 for name in there)


def silence_downsampling(p: Any) -> None:
    """Switch it off for this generation, as an axis of its own can; before ``process``, in which it begins."""
    for name in _THEIR_FACTORS:
        setattr(p, name, 1)
