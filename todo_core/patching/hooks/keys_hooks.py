"""The hooks of one transformer block. They read the state of the UNet call, and carry out its plan.

Target keys/values: one hook gives attn1 the reduced tokens as its context (``KeysHooks``). On a host with patches it is
the patch of all blocks that does so (``PatchedKeysHooks``). Target all is in module_hooks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ...hosts.host import KeysPatch, Site
from ...reason import Reason, Why
from ...reduction import Reduction
from ..space.level_plan import LevelPlan, Place
from ..space.methods import plan_level
from ..steps import seeds_of_rows
from .module_calls import Args, Changed, Hook, Kwargs, attention_arguments, guarded, untraced, with_argument
from .running_calls import Shared, UNetCall


class SiteHooks:
    """What the hooks of every kind do for their block: find the plan that holds, and make its reduction."""

    def __init__(self, site: Site, shared: Shared) -> None:
        self.site, self._shared, self._calls, self._names = site, shared, shared.calls, shared.host.arguments

    def attach(self) -> list[Hook]:
        """Hook the block's modules."""
        raise NotImplementedError

    def _acting(self, module: Module) -> tuple[UNetCall, LevelPlan] | None:
        """The call that runs, and the plan of this level for its grid; None where nothing is reduced.

        Other extensions may change the grid inside the UNet. The level is then planned again.
        """
        call, host = self._calls.current, self._shared.host
        plan = call.levels.get(self.site.level) if call else None
        if call is None or call.plan is None or plan is None or call.grid is None:
            return None
        if conflict := host.conflict(module, call.grid):
            self._skip(conflict)
            return None
        if call.grid is not plan.grid and call.grid != plan.grid:
            plan = plan_level(call.plan.settings, plan.method, host.level(plan.level), call.grid)
        call.why_not = plan.why or call.why_not
        return None if plan.why else (call, plan)

    def _reduction(self, plan: LevelPlan, tokens: Tensor, call: UNetCall, images: int) -> Reduction:
        """The reduction of ``tokens`` (rows, h*w, c), of so many images, that the plan asks for."""

        def seeds() -> list[int]:
            return seeds_of_rows(call.next_rows(self.site.block, images), tokens.shape[0])

        return plan.reduction(tokens, Place(call.step, self.site.rank, seeds))

    def _skip(self, why: Why) -> None:
        """Note why the layer is left alone."""
        self._shared.record.note(Reason.NOT_REDUCED(self.site.level, why))


class KeysHooks(SiteHooks):
    """Target keys/values, by a hook on attn1."""

    def attach(self) -> list[Hook]:
        """Hook attn1."""
        block: Any = self.site.block
        return [Hook(self._reduce, self._shared.on_error).before(block.attn1)]

    def _reduce(self, attention: Module, args: Args, kwargs: Kwargs) -> Changed:
        x, context, mask = attention_arguments(args, kwargs, self._names)
        shorten = self._shortener(attention, x, x, context, None if mask is None else Reason.MASK)
        if shorten is None:
            return None
        return with_argument(args, kwargs, 1, self._names.context, shorten(x if context is None else context))

    def _shortener(
        self, attention: Module, queries: Tensor, x: Tensor, context: Any, conflict: Why | None
    ) -> Callable[[Tensor], Tensor] | None:
        """What shortens the keys, (b, grids * h*w, c) to (b, grids * kept, c); None where they must stay as they are.

        ``x`` is the attention's input, and ``context`` what it was given for its keys. A ``conflict`` forbids it.
        """
        acting = self._acting(attention)
        if acting is None:
            return None
        (call, plan), (rows, queried) = acting, queries.shape[:2]
        n = plan.grid.height * plan.grid.width
        grids = self._key_grids(x, context, n, conflict)
        if grids is None:
            return None
        images = max(rows, rows * queried // n)  # a row may hold several whole grids
        reduced = self._reduction(plan, grids, call, images)
        call.reduced = True
        self._shared.record.ran(plan, call.step, self._shared.host.network)
        return lambda keys: reduced.merge(keys.reshape(grids.shape)).reshape(keys.shape[0], -1, keys.shape[-1])

    def _key_grids(self, x: Tensor, context: Any, n: int, conflict: Why | None) -> Tensor | None:
        """The tokens that the keys are made of, as (grids, n, c); None, with a note, where they must not be reduced.

        ``x`` (b, tokens, c) is the attention's input. The cases:
        - no context, or x itself as the context: self-attention;
        - x followed by other grids of n tokens, as ControlNet's reference banks do: each grid is reduced by itself;
        - rows joined to one, (1, b*n, c), as StyleAlign does: again each grid is reduced by itself;
        - any other context belongs to another extension.
        """
        tokens, why = x if context is None else context, conflict
        if tokens.ndim != 3 or tokens.shape[1] % n or tokens.shape[-1] != x.shape[-1]:
            why = Reason.NO_GRID(n)
        elif tokens is not x and (tokens.shape[0] != x.shape[0] or tokens.shape[1] <= x.shape[1]):
            why = Reason.OTHER_SOURCE
        if why:
            self._skip(why)
            return None
        return tokens.reshape(-1, n, tokens.shape[-1])


class PatchedKeysHooks(KeysHooks):
    """Target keys/values, by a patch of the host for all blocks; hooks tell it which block is running."""

    def attach(self) -> list[Hook]:
        """Hook the block."""
        return [Hook(self._enter).before(self.site.block), Hook(self._leave).after(self.site.block)]

    def _enter(self, *_: Any) -> None:
        if call := self._calls.current:
            call.site = self.site

    def _leave(self, *_: Any) -> None:
        if call := self._calls.current:
            call.site = None

    def patch(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Shorten keys and values. ``x`` may be shorter already: the host's token merging merges only that."""
        block: Any = self.site.block
        conflict = Reason.OTHER_VALUES if values.shape != keys.shape else None
        if x.shape[0] != keys.shape[0]:  # reForge's HyperTile splits the queries alone
            conflict = Reason.TILED_QUERIES
        shorten = self._shortener(block.attn1, x, keys, None, conflict)
        if shorten is None:
            return None
        shorter = shorten(keys)
        return x, shorter, shorter if values is keys else shorten(values)


def keys_patch(sites: Mapping[Site, SiteHooks], shared: Shared) -> KeysPatch:
    """The patch of all blocks, for a host that takes one.

    A function in a function: such hosts copy their options deeply, which would copy the object of a bound method.
    """

    def patch(x: Tensor, keys: Tensor, values: Tensor, _: Any) -> tuple[Tensor, Tensor, Tensor]:
        return untraced(run, x, keys, values) if torch.compiler.is_compiling() else run(x, keys, values)

    def run(x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        call = shared.calls.current
        hooks = sites[call.site] if call and call.site else None
        if not isinstance(hooks, PatchedKeysHooks):
            return x, keys, values
        return guarded(shared.on_error, hooks.patch, x, keys, values) or (x, keys, values)

    return patch
