"""Other features that reduce self-attention: the WebUI's token merging, and sd-webui-token-downsampling."""

from __future__ import annotations

from typing import Any

_DOWNSAMPLING_FACTORS = ("token_downsampling_factor", "token_downsampling_factor2")
"""Options of sd-webui-token-downsampling. An attribute of this name on a processing object overrides the option."""


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
