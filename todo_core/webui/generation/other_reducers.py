"""Other features that reduce self-attention: the WebUI's token merging and HyperTile, sd-webui-token-downsampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_DOWNSAMPLING_FACTORS = ("token_downsampling_factor", "token_downsampling_factor2")
"""Options of sd-webui-token-downsampling. An attribute of this name on a processing object overrides the option."""


@dataclass(frozen=True)
class Reducer:
    """A feature of the WebUI that is on: its name, and the verb for what it does to a layer."""

    name: str
    verb: str

    @property
    def merges(self) -> bool:
        """Whether this is the WebUI's token merging."""
        return self.verb == "merges"


def active_in_pass(p: Any, pass_name: str) -> list[Reducer]:
    """The WebUI's own features that change self-attention in this pass."""
    from modules import shared

    found = []
    ratio = p.get_token_merging_ratio(for_hr=pass_name == "hires")
    if ratio:
        found.append(Reducer(f"Token merging ({ratio:g})", "merges"))
    second = pass_name == "hires" and getattr(shared.opts, "hypertile_enable_unet_secondpass", False)
    if getattr(shared.opts, "hypertile_enable_unet", False) or second:
        found.append(Reducer("HyperTile", "tiles"))
    return found


def merging_is_always_on() -> bool:
    """Whether the WebUI's options merge tokens in every generation."""
    from modules import shared

    names = ("token_merging_ratio", "token_merging_ratio_hr")
    return any(getattr(shared.opts, name, 0) for name in names)


def downsampling_is_on(p: Any) -> bool:
    """Whether sd-webui-token-downsampling is installed and would reduce this generation."""
    from modules import shared

    # the values stay in config.json after the extension is uninstalled; its options do not
    installed = [name for name in _DOWNSAMPLING_FACTORS if name in shared.opts.data_labels]
    return any(getattr(p, name, getattr(shared.opts, name)) > 1 for name in installed)


def disable_downsampling(p: Any) -> None:
    """Switch sd-webui-token-downsampling off for this generation. Call it before ``process``, where it starts."""
    for name in _DOWNSAMPLING_FACTORS:
        setattr(p, name, 1)
