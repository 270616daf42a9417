"""The hooks of one transformer block. They read the state of the UNet call, and carry out its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.nn import Module

from .. import reduction
from ..hosts import Handle, Host, KeysPatch, Site
from ..reduction import Reduction
from ..settings import Settings
from .module_calls import Args, Changed, Kwargs, guarded, read, write
from .plan import LevelPlan, plan_level
from .record import Record
from .steps import seeds_of_rows
from .token_grid import TokenGrid


@dataclass
class UNetCall:
    """What all hooks read during one UNet call. Without ``levels``, nothing is reduced; so it is between two calls."""

    levels: dict[int, LevelPlan] = field(default_factory=dict)
    step: int = 0
    seeds: tuple[int, ...] = (0,)
    grid: TokenGrid | None = None  # of the spatial transformer that is running
    running: SiteHooks | None = None  # the block that is running, for a host with patches

    def clear(self) -> None:
        """End the call."""
        self.levels, self.grid, self.running = {}, None, None


class SiteHooks:
    """The hooks of one block.

    Target keys/values: one hook gives attn1 the reduced tokens as its context. On a host with patches it is the patch
    of all blocks that does so; hooks on the block tell it which one is running.
    Target all: each chosen module gets a merged input, and its output is unmerged. All modules of the block use one
    reduction, that of the block's input.
    """

    def __init__(
        self,
        site: Site,
        host: Host,
        settings: Settings,
        call: UNetCall,
        record: Record,
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self.site, self._host, self._names, self._settings = site, host, host.arguments, settings
        self._call, self._record, self._on_error = call, record, on_error
        self.clear()

    def attach(self) -> list[Handle]:
        """Hook the block's modules; the handles take the hooks off."""
        block: Any = self.site.block
        handles: list[Handle]
        if self._settings.target == "keys/values" and self._host.patch_keys:
            return [block.register_forward_pre_hook(self._enter), block.register_forward_hook(self._leave)]
        if self._settings.target == "keys/values":
            return [block.attn1.register_forward_pre_hook(guarded(self._reduce_keys, self._on_error), with_kwargs=True)]
        handles = [
            block.register_forward_pre_hook(self._keep_input, with_kwargs=True),
            block.register_forward_hook(lambda *_: self.clear()),
        ]
        chosen = {"attn1": self._settings.attn, "attn2": self._settings.crossattn, "ff": self._settings.mlp}
        for part in (getattr(block, name, None) for name, on in chosen.items() if on):
            if part is not None:
                handles.append(part.register_forward_pre_hook(guarded(self._merge, self._on_error), with_kwargs=True))
                handles.append(part.register_forward_hook(self._unmerge))
        return handles

    def clear(self) -> None:
        """Forget the tensors of the last call."""
        self._block_input: Tensor | None = None
        self._block_reduction: Reduction | None = None  # of that input
        self._merged_by: Reduction | None = None  # what the output of the running module is unmerged by

    def _enter(self, *_: Any) -> None:
        self._call.running = self

    def _leave(self, *_: Any) -> None:
        self._call.running = None

    def reduce_patched_keys(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As ``_reduce_keys``, in a host's patch. ``x`` may be shorter: the host's token merging merges only that."""
        block: Any = self.site.block
        plan = self._plan(block.attn1)
        grids = None if plan is None else self._key_grids(keys, None, plan.grid.tokens, has_mask=False)
        if plan is None or grids is None:
            return x, keys, values
        if values.shape != keys.shape:
            self._skip("its values are not those of its keys")
            return x, keys, values
        reduced = self._reduction(plan, grids)

        def merged(tokens: Tensor) -> Tensor:
            return reduced.merge(tokens.reshape(grids.shape)).reshape(tokens.shape[0], -1, tokens.shape[-1])

        self._record.ran(plan, self._call.step)
        shorter = merged(keys)
        return x, shorter, shorter if values is keys else merged(values)

    def _reduce_keys(self, attention: Module, args: Args, kwargs: Kwargs) -> Changed:
        plan = self._plan(attention)
        if plan is None:
            return None
        x, context = read(args, kwargs, 0, self._names.hidden), read(args, kwargs, 1, self._names.context)
        grids = self._key_grids(x, context, plan.grid.tokens, has_mask=self._has_mask(args, kwargs))
        if grids is None:
            return None
        keys = self._reduction(plan, grids).merge(grids).reshape(x.shape[0], -1, x.shape[-1])
        self._record.ran(plan, self._call.step)
        return write(args, kwargs, 1, self._names.context, keys)

    def _key_grids(self, x: Tensor, context: Any, n: int, *, has_mask: bool) -> Tensor | None:
        """The tokens that the keys are made of, as (grids, n, c); None, with a note, where they must not be reduced.

        ``x`` (b, tokens, c) is the attention's input. The cases:
        - no context, or x itself as the context: self-attention;
        - x followed by other grids of n tokens, as ControlNet's reference banks do: each grid is reduced by itself;
        - rows joined to one, (1, b*n, c), as StyleAlign does: again each grid is reduced by itself;
        - any other context belongs to another extension.
        """
        tokens, why = x if context is None else context, ""
        if tokens.ndim != 3 or tokens.shape[1] % n or tokens.shape[-1] != x.shape[-1]:
            why = f"its keys are not whole grids of {n:,} tokens"
        elif tokens is not x and (tokens.shape[0] != x.shape[0] or tokens.shape[1] == n):
            why = "its keys come from another source"
        elif has_mask:
            why = "it has a mask"
        if why:
            self._skip(why)
            return None
        return tokens.reshape(-1, n, tokens.shape[-1])

    def _keep_input(self, block: Module, args: Args, kwargs: Kwargs) -> None:
        self._block_input = read(args, kwargs, 0, self._names.hidden) if self._call.levels else None

    def _merge(self, module: Module, args: Args, kwargs: Kwargs) -> Changed:
        plan = self._plan(module)
        if plan is None or self._block_input is None:
            return None
        x = read(args, kwargs, 0, self._names.hidden)
        if x.shape != self._block_input.shape or x.shape[1] != plan.grid.tokens:
            self._skip(f"its input is not a grid of {plan.grid.tokens:,} tokens")
            return None
        if module is getattr(self.site.block, "attn1", None) and self._has_mask(args, kwargs):
            self._skip("it has a mask")
            return None
        self._block_reduction = self._block_reduction or self._reduction(plan, self._block_input)
        merged = self._block_reduction.merge(x)
        if read(args, kwargs, 1, self._names.context) is x:  # ControlNet passes x itself as the context
            args, kwargs = write(args, kwargs, 1, self._names.context, merged)
            if kwargs.get("value") is not None:  # hosts with patches pass the values beside the keys
                values = kwargs["value"]
                kwargs = {**kwargs, "value": merged if values is x else self._block_reduction.merge(values)}
        self._merged_by = self._block_reduction
        self._record.ran(plan, self._call.step)
        return write(args, kwargs, 0, self._names.hidden, merged)

    def _unmerge(self, module: Module, args: Args, output: Tensor) -> Tensor | None:
        merged_by, self._merged_by = self._merged_by, None
        return None if merged_by is None else merged_by.unmerge(output)

    def _has_mask(self, args: Args, kwargs: Kwargs) -> bool:
        return read(args, kwargs, 2, self._names.mask) is not None

    def _skip(self, why: str) -> None:
        self._record.note(f"a layer at level {self.site.level} is not reduced: {why}")

    def _plan(self, module: Module) -> LevelPlan | None:
        """The plan of this level for the grid that runs; None where nothing is reduced.

        Other extensions may change the grid inside the UNet. The level is then planned again.
        """
        plan, grid = self._call.levels.get(self.site.level), self._call.grid
        if plan is None or grid is None:
            return None
        conflict = self._host.conflict(module)
        if conflict:
            self._skip(conflict)
            return None
        if grid != plan.grid:
            plan = plan_level(self._settings, plan.method, self._host.level(plan.level), grid)
        return plan if plan.reduces else None

    def _reduction(self, plan: LevelPlan, tokens: Tensor) -> Reduction:
        """The reduction of ``tokens`` (rows, h*w, c) that the plan asks for."""
        settings, step, rank = self._settings, self._call.step, self.site.rank
        if plan.target_grid is not None:
            turn = step + rank if settings.phase == "rotate" else None
            return reduction.downsample(plan.grid.size, plan.target_grid.size, settings.resample, turn=turn)
        if plan.method == "cluster":
            return reduction.cluster(tokens, plan.keys)
        size, cell, draws = plan.grid.size, (settings.sy, settings.sx), None
        if settings.random:
            seeds = seeds_of_rows(self._call.seeds, tokens.shape[0])
            draws = reduction.random_draws(seeds, step, rank, size, cell)
        return reduction.match(tokens, size, plan.amount, cell, draws, reach=settings.reach)


def keys_patch(call: UNetCall, on_error: Callable[[Exception], None] | None) -> KeysPatch:
    """The patch of all blocks, for a host that takes one.

    A function in a function: such hosts copy their options deeply, which would copy the object of a bound method.
    """

    def patch(x: Tensor, keys: Tensor, values: Tensor, _: Any) -> tuple[Tensor, Tensor, Tensor]:
        if call.running is None:
            return x, keys, values
        try:
            return call.running.reduce_patched_keys(x, keys, values)
        except Exception as error:
            if on_error is None:
                raise
            on_error(error)
            return x, keys, values

    return patch
