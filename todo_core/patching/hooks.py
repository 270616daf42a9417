"""The hooks of one transformer block: they read what is armed and carry it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from .. import reduction
from ..hosts import Host, Site
from ..reduction import Reduction
from ..settings import Settings
from .module_calls import Args, Changed, Kwargs, guarded, read, write
from .plan import LevelPlan, plan_level
from .record import Record
from .steps import stretched
from .token_grid import TokenGrid


@dataclass
class Armed:
    """What all hooks read, for the time of one UNet call; empty at any other time."""

    levels: dict[int, LevelPlan] = field(default_factory=dict)
    step: int = 0
    seeds: tuple[int, ...] = (0,)
    grid: TokenGrid | None = None  # of the spatial transformer that is running

    def clear(self) -> None:
        """Disarm."""
        self.levels, self.grid = {}, None


class SiteHooks:
    """One block. For target keys/values a hook on attn1 puts reduced tokens in the place of its context; for target
    all, each chosen module's input is merged and its output unmerged, by one reduction of the block's input."""

    def __init__(
        self,
        site: Site,
        host: Host,
        settings: Settings,
        armed: Armed,
        record: Record,
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self.site, self._host, self._names, self._settings = site, host, host.arguments, settings
        self._armed, self._record, self._on_error = armed, record, on_error
        self.clear()

    def attach(self) -> list[RemovableHandle]:
        """Hook the block's modules; the handles take the hooks off."""
        block: Any = self.site.block
        if self._settings.target == "keys/values":
            return [
                block.attn1.register_forward_pre_hook(guarded(self._shorten_keys, self._on_error), with_kwargs=True)
            ]
        handles = [
            block.register_forward_pre_hook(self._enter, with_kwargs=True),
            block.register_forward_hook(lambda *_: self.clear()),
        ]
        wanted = {"attn1": self._settings.attn, "attn2": self._settings.crossattn, "ff": self._settings.mlp}
        for part in (getattr(block, name, None) for name, on in wanted.items() if on):
            if part is not None:
                handles.append(part.register_forward_pre_hook(guarded(self._merge, self._on_error), with_kwargs=True))
                handles.append(part.register_forward_hook(self._unmerge))
        return handles

    def clear(self) -> None:
        """Forget the call that is over."""
        self._input: Tensor | None = None
        self._shared: Reduction | None = None
        self._pending: Reduction | None = None

    def _shorten_keys(self, attention: Module, args: Args, kwargs: Kwargs) -> Changed:
        plan = self._plan(attention)
        if plan is None:
            return None
        x, context = read(args, kwargs, 0, self._names.hidden), read(args, kwargs, 1, self._names.context)
        grids = self._own_grids(x, context, plan.grid.tokens, args, kwargs)
        if grids is None:
            return None
        keys = self._reduction(plan, grids).merge(grids).reshape(x.shape[0], -1, x.shape[-1])
        self._record.ran(plan, self._armed.step)
        return write(args, kwargs, 1, self._names.context, keys)

    def _own_grids(self, x: Tensor, context: Any, n: int, args: Args, kwargs: Kwargs) -> Tensor | None:
        """The keys' tokens as (grids, n, c), if this is self-attention over whole grids; else None and a note.

        A context that is not the input is the input and more grids behind it, or somebody else's.
        """
        tokens, why = x if context is None else context, ""
        if tokens.ndim != 3 or tokens.shape[1] % n or tokens.shape[-1] != x.shape[-1]:
            why = f"its keys are not whole grids of {n:,} tokens"
        elif tokens is not x and (tokens.shape[0] != x.shape[0] or tokens.shape[1] == n):
            why = "its keys come from another source"
        elif self._is_masked(args, kwargs):
            why = "it has a mask"
        if why:
            self._leave(why)
            return None
        return tokens.reshape(-1, n, tokens.shape[-1])

    def _enter(self, block: Module, args: Args, kwargs: Kwargs) -> None:
        self._input = read(args, kwargs, 0, self._names.hidden) if self._armed.levels else None

    def _merge(self, module: Module, args: Args, kwargs: Kwargs) -> Changed:
        plan = self._plan(module)
        if plan is None or self._input is None:
            return None
        x = read(args, kwargs, 0, self._names.hidden)
        if x.shape != self._input.shape or x.shape[1] != plan.grid.tokens:
            self._leave(f"its input is not a grid of {plan.grid.tokens:,} tokens")
            return None
        if module is getattr(self.site.block, "attn1", None) and self._is_masked(args, kwargs):
            self._leave("it has a mask")
            return None
        self._shared = self._shared or self._reduction(plan, self._input)
        merged = self._shared.merge(x)
        if read(args, kwargs, 1, self._names.context) is x:  # ControlNet hands self-attention its own input
            args, kwargs = write(args, kwargs, 1, self._names.context, merged)
        self._pending = self._shared
        self._record.ran(plan, self._armed.step)
        return write(args, kwargs, 0, self._names.hidden, merged)

    def _unmerge(self, module: Module, args: Args, output: Tensor) -> Tensor | None:
        pending, self._pending = self._pending, None
        return None if pending is None else pending.unmerge(output)

    def _is_masked(self, args: Args, kwargs: Kwargs) -> bool:
        return read(args, kwargs, 2, self._names.mask) is not None

    def _leave(self, why: str) -> None:
        self._record.note(f"an attention at level {self.site.level} is left whole: {why}")

    def _plan(self, module: Module) -> LevelPlan | None:
        """The armed plan of this level, made again if the grid seen is another than the latent's size foretold."""
        plan, grid = self._armed.levels.get(self.site.level), self._armed.grid
        if plan is None or grid is None:
            return None
        busy = self._host.busy(module)
        if busy:
            self._leave(busy)
            return None
        if grid != plan.grid:
            side = self._host.trained_side_at(plan.level)
            plan = plan_level(self._settings, plan.method, plan.level, grid, side, plan.blocks)
        return plan if plan.reduces else None

    def _reduction(self, plan: LevelPlan, tokens: Tensor) -> Reduction:
        """The reduction of ``tokens`` (rows, h*w, c) that the plan asks for."""
        settings, step, place = self._settings, self._armed.step, self.site.place
        if plan.target_grid is not None:
            turn = step + place if settings.phase == "rotate" else None
            return reduction.downsample(plan.grid.size, plan.target_grid.size, settings.resample, turn=turn)
        if plan.method == "cluster":
            return reduction.cluster(tokens, plan.keys)
        size, cell, draws = plan.grid.size, (settings.sy, settings.sx), None
        if settings.random:
            seeds = stretched(self._armed.seeds, tokens.shape[0])
            draws = reduction.random_draws(seeds, step, place, size, cell)
        return reduction.match(tokens, size, plan.amount, cell, draws, reach=settings.reach)
