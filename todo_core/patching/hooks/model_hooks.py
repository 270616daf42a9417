"""All hooks of a session on its model: around the UNet's calls, on its blocks, and on what is predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch.nn import Module

from ...hosts import Handle
from ...hosts.compiled_code import forget_compiled_code, is_compiled
from ...token_grid import TokenGrid
from ..level_plan import LEVELS
from .deep_hooks import DeepHooks
from .keys_hooks import KeysHooks, PatchedKeysHooks, Shared, SiteHooks, keys_patch
from .module_calls import Args, Hook, Kwargs, read
from .module_hooks import ModuleHooks


class ModelHooks:
    """``attach`` puts them on, ``detach`` takes them off. Blocks of a level get theirs when that is first reduced."""

    def __init__(self, shared: Shared, predictors: Sequence[DeepHooks]) -> None:
        self._shared, self._host, self._predictors = shared, shared.host, predictors
        reduces_keys = shared.settings.target == "keys/values"
        self._patch_keys = self._host.patch_keys if reduces_keys else None
        kind = PatchedKeysHooks if self._patch_keys else KeysHooks if reduces_keys else ModuleHooks
        self._sites: list[SiteHooks] = [kind(site, shared) for site in self._host.sites if site.level in LEVELS]
        self._levels: set[int] = set()  # that have hooks
        self._handles: list[Handle] = []
        self.watches = bool(predictors) and not is_compiled(self._host.unet)  # whether the model's own code runs

    @property
    def are_on(self) -> bool:
        """Whether they are on the model."""
        return bool(self._handles)

    def attach(self, begin_call: Callable[..., None], end_call: Callable[..., None], levels: Iterable[int]) -> None:
        """Put them on, with these two around each call of the UNet, and blocks of ``levels``."""
        unet, on_error = self._host.unet, self._shared.on_error
        self._handles += [Hook(begin_call, on_error).before(unet), Hook(end_call).after(unet, always=True)]
        if self._patch_keys:
            by_site = {hooks.site: hooks for hooks in self._sites}
            self._handles.append(self._patch_keys(keys_patch(by_site, self._shared)))
        # compiled code cannot get hooks while it runs
        self.add_levels(LEVELS if is_compiled(unet) else levels)
        for predictor in self._predictors:
            self._handles += predictor.attach()
        if self.watches:
            self._handles.append(Hook(self._note_run).before(self._host.sites[0].transformer))
        forget_compiled_code(unet)

    def add_levels(self, levels: Iterable[int]) -> None:
        """Hook the blocks of these levels, once. In SDXL most blocks stand at the one that is seldom reduced."""
        missing = {*levels} - self._levels
        sites = [hooks for hooks in self._sites if hooks.site.level in missing]
        for transformer in {hooks.site.transformer: None for hooks in sites}:
            self._handles.append(Hook(self._read_grid, self._shared.on_error).before(transformer))
        for hooks in sites:
            self._handles += hooks.attach()
        self._levels |= missing

    def detach(self) -> None:
        """Take every hook off."""
        if self._handles:
            forget_compiled_code(self._host.unet)
        while self._handles:
            self._handles.pop().remove()
        self._levels.clear()

    def note_conflicts(self, grids: dict[int, TokenGrid]) -> None:
        """Note the layers of these levels, with these grids, that must not be reduced at the moment."""
        for hooks in self._sites:
            if hooks.site.level in grids:
                hooks.note_conflict(grids[hooks.site.level])

    def _read_grid(self, transformer: Module, args: Args, kwargs: Kwargs) -> None:
        call = self._shared.calls.current
        if call and call.levels:
            call.grid = TokenGrid.of(read(args, kwargs, 0, self._host.arguments.hidden).shape)

    def _note_run(self, *_: Any) -> None:
        """The first transformer, which is never predicted, runs: EasyCache of ComfyUI acts inside the UNet's call."""
        if call := self._shared.calls.current:
            call.has_run = True
