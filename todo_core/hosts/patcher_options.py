"""The options of a model patcher, as the Forge family and ComfyUI have them.

They hold functions that each block calls. One kind is ``attn1_patch``: (input, keys, values, options) -> (input, keys,
values) of self-attention, before the projections. Other features project the keys themselves, so a hook on attn1 would
miss them; a patch does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .host import KeysPatch


def with_keys_patch(options: dict[str, Any], patch: KeysPatch) -> dict[str, Any]:
    """``model_options`` with one more patch, the last: it gets what the patches of others have left.

    Only the dicts that lead to the patch are copied. ``clone`` of a patcher would also copy every object that other
    extensions have in the options, and so lose what those objects learn in a step.
    """
    transformer = options.get("transformer_options", {})
    patches = transformer.get("patches", {})
    patches = {**patches, "attn1_patch": [*patches.get("attn1_patch", ()), patch]}
    return {**options, "transformer_options": {**transformer, "patches": patches}}


class PatchHandle:
    """Adds a patch to the options of the current patcher; ``remove`` gives the patcher its own options back."""

    def __init__(self, current_patcher: Callable[[], Any], patch: KeysPatch) -> None:
        self._patcher = current_patcher()
        self._before = self._patcher.model_options
        self._ours = with_keys_patch(self._before, patch)
        self._patcher.model_options = self._ours

    def remove(self) -> None:
        """Take the patch off, unless something else has replaced the options."""
        if self._patcher.model_options is self._ours:
            self._patcher.model_options = self._before
