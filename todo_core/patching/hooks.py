"""The hooks of one transformer block. They read the state of the UNet call, and carry out its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module

from .. import reduction
from ..hosts import Host, KeysPatch, Site, has_foreign_forward
from ..reduction import Reduction
from ..settings import Settings
from .module_calls import Args, Changed, Hook, Kwargs, read, write
from .plan import LevelPlan, plan_level
from .record import Record
from .running_calls import BlockRun, RunningCalls, UNetCall
from .step_draws import StepDraws
from .steps import seeds_of_rows

_MODULES = ("attn1", "attn2", "ff")


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
        calls: RunningCalls,
        draws: StepDraws,
        record: Record,
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self.site, self._host, self._names, self._settings = site, host, host.arguments, settings
        self._calls, self._draws, self._record, self._on_error = calls, draws, record, on_error

    def attach(self) -> list[Hook]:
        """Hook the block's modules."""
        block: Any = self.site.block
        if self._settings.target == "keys/values" and self._host.patch_keys:
            return [Hook(self._enter).before(block), Hook(self._leave).after(block)]
        if self._settings.target == "keys/values":
            return [Hook(self._reduce_keys, self._on_error).before(block.attn1)]
        hooks = [Hook(self._keep_input).before(block), Hook(self._end_block).after(block)]
        chosen = self._settings.attn, self._settings.crossattn, self._settings.mlp
        for part in (getattr(block, name, None) for name, on in zip(_MODULES, chosen, strict=True) if on):
            if part is not None:
                hooks.append(Hook(self._merge, self._on_error).before(part))
                hooks.append(Hook(self._unmerge).after(part))
        return hooks

    def _enter(self, *_: Any) -> None:
        call = self._calls.current
        if call:
            call.site = self.site

    def _leave(self, *_: Any) -> None:
        call = self._calls.current
        if call:
            call.site = None

    def reduce_patched_keys(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As ``_reduce_keys``, in a host's patch. ``x`` may be shorter: the host's token merging merges only that."""
        block: Any = self.site.block
        call = self._calls.current
        plan = self._plan(block.attn1, call)
        if call is None or plan is None:
            return x, keys, values
        grids = self._key_grids(keys, None, plan.grid.tokens, has_mask=False)
        if grids is None:
            return x, keys, values
        if x.shape[0] != keys.shape[0]:  # reForge's HyperTile splits the queries alone
            self._skip("its queries are split into tiles")
            return x, keys, values
        if values.shape != keys.shape:
            self._skip("its values are not those of its keys")
            return x, keys, values
        reduced = self._reduction(plan, grids, call, _images(x, plan))

        def merged(tokens: Tensor) -> Tensor:
            return reduced.merge(tokens.reshape(grids.shape)).reshape(tokens.shape[0], -1, tokens.shape[-1])

        self._ran(plan, call)
        shorter = merged(keys)
        return x, shorter, shorter if values is keys else merged(values)

    def note_conflict(self) -> None:
        """Note it if the block's self-attention must not be reduced at the moment."""
        attention: Any = self.site.block.attn1
        conflict = self._host.conflict(attention) if self._reduces_attention() else ""
        if conflict:
            self._skip(conflict)

    def _reduces_attention(self) -> bool:
        return self._settings.target == "keys/values" or self._settings.attn

    def _reduce_keys(self, attention: Module, args: Args, kwargs: Kwargs) -> Changed:
        call = self._calls.current
        plan = self._plan(attention, call)
        if call is None or plan is None:
            return None
        x, context = read(args, kwargs, 0, self._names.hidden), read(args, kwargs, 1, self._names.context)
        grids = self._key_grids(x, context, plan.grid.tokens, has_mask=self._has_mask(args, kwargs))
        if grids is None:
            return None
        keys = self._reduction(plan, grids, call, _images(x, plan)).merge(grids).reshape(x.shape[0], -1, x.shape[-1])
        self._ran(plan, call)
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
        call = self._calls.current
        if call and call.levels:
            call.block = BlockRun(read(args, kwargs, 0, self._names.hidden))

    def _end_block(self, block: Module, args: Args, output: Any) -> None:
        call = self._calls.current
        if call:
            call.block = BlockRun()

    def _merge(self, module: Module, args: Args, kwargs: Kwargs) -> Changed:
        call = self._calls.current
        if call is None or call.block.input is None:
            return None
        run, block_input = call.block, call.block.input
        run.merged_by = None  # an exception may have left it
        plan = self._plan(module, call)
        if plan is None:
            return None
        if has_foreign_forward(module):
            self._skip(f"another extension has replaced its {self._name(module)}.forward")
            return None
        x = read(args, kwargs, 0, self._names.hidden)
        if x.shape != block_input.shape or x.shape[1] != plan.grid.tokens:
            self._skip(f"its input is not a grid of {plan.grid.tokens:,} tokens")
            return None
        if self._name(module) == "attn1" and self._has_mask(args, kwargs):
            self._skip("it has a mask")
            return None
        run.reduction = run.reduction or self._reduction(plan, block_input, call, block_input.shape[0])
        merged = run.reduction.merge(x)
        if read(args, kwargs, 1, self._names.context) is x:  # ControlNet passes x itself as the context
            args, kwargs = write(args, kwargs, 1, self._names.context, merged)
            if kwargs.get("value") is not None:  # hosts with patches pass the values beside the keys
                values = kwargs["value"]
                kwargs = {**kwargs, "value": merged if values is x else run.reduction.merge(values)}
        run.merged_by = run.reduction
        self._ran(plan, call)
        return write(args, kwargs, 0, self._names.hidden, merged)

    def _unmerge(self, module: Module, args: Args, output: Tensor) -> Tensor | None:
        call = self._calls.current
        if call is None or call.block.merged_by is None:
            return None
        merged_by, call.block.merged_by = call.block.merged_by, None
        return merged_by.unmerge(output)

    def _ran(self, plan: LevelPlan, call: UNetCall) -> None:
        call.reduced = True
        self._record.ran(plan, call.step, self._host.network)

    def _name(self, module: Module) -> str:
        return next((name for name in _MODULES if getattr(self.site.block, name, None) is module), "")

    def _has_mask(self, args: Args, kwargs: Kwargs) -> bool:
        return read(args, kwargs, 2, self._names.mask) is not None

    def _skip(self, why: str) -> None:
        self._record.note(f"a layer at level {self.site.level} is not reduced: {why}")

    def _plan(self, module: Module, call: UNetCall | None) -> LevelPlan | None:
        """The plan of this level for the grid that runs; None where nothing is reduced.

        Other extensions may change the grid inside the UNet. The level is then planned again.
        """
        plan = call.levels.get(self.site.level) if call else None
        if call is None or plan is None or call.grid is None:
            return None
        conflict = self._host.conflict(module)
        if conflict:
            self._skip(conflict)
            return None
        if call.grid != plan.grid:
            plan = plan_level(self._settings, plan.method, self._host.level(plan.level), call.grid)
        if not plan.reduces:
            call.why_not = plan.why
        return plan if plan.reduces else None

    def _reduction(self, plan: LevelPlan, tokens: Tensor, call: UNetCall, images: int) -> Reduction:
        """The reduction of ``tokens`` (rows, h*w, c), of so many images, that the plan asks for."""
        settings, step, rank = self._settings, call.step, self.site.rank
        if plan.target_grid is not None:
            if settings.rotates:
                exact = settings.resample == "nearest-exact"
                return reduction.stride(plan.grid.size, int(plan.amount), step + rank, exact=exact)
            return reduction.downsample(plan.grid.size, plan.target_grid.size, settings.resample)
        if plan.method == "cluster":
            return reduction.cluster(tokens, plan.keys)
        size, cell, draws = plan.grid.size, (settings.sy, settings.sx), None
        if settings.random:
            seeds = seeds_of_rows(call.next_seeds(self.site.block, images), tokens.shape[0])
            draws = self._draws.rows(seeds, rank, plan, call, tokens.device)
        return reduction.match(tokens, size, plan.amount, cell, draws, reach=settings.reach)


def _images(x: Tensor, plan: LevelPlan) -> int:
    """How many images the queries ``x`` (b, tokens, c) belong to: a row may hold several whole grids."""
    return max(x.shape[0], x.shape[0] * x.shape[1] // plan.grid.tokens)


def keys_patch(
    calls: RunningCalls, sites: Mapping[Site, SiteHooks], on_error: Callable[[Exception], None] | None
) -> KeysPatch:
    """The patch of all blocks, for a host that takes one.

    A function in a function: such hosts copy their options deeply, which would copy the object of a bound method.
    """

    def patch(x: Tensor, keys: Tensor, values: Tensor, _: Any) -> tuple[Tensor, Tensor, Tensor]:
        call = calls.current
        if call is None or call.site is None:
            return x, keys, values
        try:
            return sites[call.site].reduce_patched_keys(x, keys, values)
        except Exception as error:
            if on_error is None:
                raise
            on_error(error)
            return x, keys, values

    return patch
