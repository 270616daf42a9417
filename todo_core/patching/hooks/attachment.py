"""All that a session has on its model. Each hook and each ``forward`` comes off by its handle."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch.nn import Module

from ...hosts.compiled_code import is_compiled
from ...hosts.host import Handle
from ...token_grid import TokenGrid
from ..plan import Plan
from ..space.level_plan import LEVELS
from .deep_hooks import DeepHooks, WholeHooks
from .keys_hooks import KeysHooks, PatchedKeysHooks, SiteHooks, keys_patch
from .module_calls import Args, Hook, Kwargs, argument
from .module_hooks import ModuleHooks
from .running_calls import Shared


class Attachment:
    """The hooks around each call, those of the blocks that are reduced, and the forwards that predict."""

    def __init__(self, plan: Plan, shared: Shared) -> None:
        host, self._shared = shared.host, shared
        self._patch_keys = None if shared.modules else host.patch_keys
        kind = ModuleHooks if shared.modules else PatchedKeysHooks if self._patch_keys else KeysHooks
        self._sites: list[SiteHooks] = [kind(site, shared) for site in host.sites if site.level in LEVELS]
        self._predictors: list[DeepHooks] = [WholeHooks(host.unet, shared)] if plan.whole.may_predict else []
        if plan.deep.may_predict:
            self._predictors += [DeepHooks(transformer, shared) for transformer in host.deep_transformers]
        self._waiting: list[DeepHooks] = []  # predictors whose forward is not on the model yet
        self._levels: set[int] = set()  # whose blocks have hooks
        self._handles: list[Handle] = []
        self._compiled, self._looks = False, 2  # how often to look yet

    def __bool__(self) -> bool:
        """Whether anything is on the model."""
        return bool(self._handles)

    @property
    def watches(self) -> bool:
        """Whether a hook tells that the model's own code runs. Compiled code cannot get hooks while it runs."""
        return bool(self._shared.host.sites) and not self._compiled

    def put_on(
        self, plan: Plan, begin: Callable[..., None], run: Callable[..., None], end: Callable[..., None]
    ) -> None:
        """Put on what the plan needs. The hooks call ``begin`` and ``end`` around each call, ``run`` inside it."""
        self.take_off()
        host, on_error = self._shared.host, self._shared.on_error
        self._handles += [Hook(begin, on_error).before(host.unet), Hook(end).after(host.unet, always=True)]
        if self._patch_keys:
            self._handles.append(
                self._patch_keys(keys_patch({hooks.site: hooks for hooks in self._sites}, self._shared))
            )
        self._waiting = [*self._predictors]
        self._look()
        self._add_levels(LEVELS if self._compiled else [level.level for level in plan.reduced])
        self._add_forwards()
        if self.watches:
            self._handles.append(Hook(run).before(host.sites[0].transformer))
        if self._compiled:
            torch.compiler.reset()

    def add(self, plan: Plan) -> None:
        """Put on what a call needs besides. Where another forward was in the way, look again."""
        self._add_levels(level.level for level in plan.reduced)
        if not self._compiled:
            self._add_forwards()

    def take_off(self) -> None:
        """Take everything off."""
        if self._handles:
            self._look()
            if self._compiled:
                torch.compiler.reset()
        while self._handles:
            self._handles.pop().remove()
        self._levels.clear()
        self._shared.calls.clear()

    def remove(self) -> None:
        """Take everything off: the pass is over, and somebody may compile the model."""
        self._looks = 2
        self.take_off()
        self._looks = 2

    def _look(self) -> None:
        """Whether the model has compiled code. Looked up when hooks first go on, and off: a call may compile it."""
        if self._looks:
            self._looks, self._compiled = self._looks - 1, is_compiled(self._shared.host.unet)

    def _add_levels(self, levels: Iterable[int]) -> None:
        """Hook the blocks of these levels, once. In SDXL most blocks stand at the one that is seldom reduced."""
        missing = {*levels} - self._levels
        sites = [hooks for hooks in self._sites if hooks.site.level in missing]
        for transformer in {hooks.site.transformer: None for hooks in sites}:
            self._handles.append(Hook(self._read_grid, self._shared.on_error).before(transformer))
        for hooks in sites:
            self._handles += hooks.attach()
        self._levels |= missing

    def _add_forwards(self) -> None:
        """Put on the forwards that are missing, unless others are there, which is noted."""
        put = [(predictor, predictor.attach()) for predictor in self._waiting]
        self._handles += [handle for _, handles in put for handle in handles]
        self._waiting = [predictor for predictor, handles in put if not handles]

    def _read_grid(self, transformer: Module, args: Args, kwargs: Kwargs) -> None:
        call = self._shared.calls.current
        if call and call.levels:
            call.grid = TokenGrid.of(argument(args, kwargs, 0, self._shared.host.arguments.hidden).shape)
