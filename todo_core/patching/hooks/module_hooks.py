"""The hooks of one transformer block for target all: a chosen module gets a merged input, its output is unmerged."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Module

from ...hosts.host import has_foreign_forward
from ...reason import Reason, Why
from .keys_hooks import SiteHooks
from .module_calls import Args, Changed, Hook, Kwargs, argument, with_argument
from .running_calls import BlockRun


class ModuleHooks(SiteHooks):
    """Target all. The modules of a block use one reduction, that of the block's input."""

    def attach(self) -> list[Hook]:
        """Hook the block and its chosen modules; a block may have no cross-attention."""
        block = self.site.block
        hooks = [Hook(self._keep_input).before(block), Hook(self._end_block).after(block)]
        for part in filter(None, (getattr(block, name, None) for name in self._shared.modules)):
            hooks += [Hook(self._merge, self._shared.on_error).before(part), Hook(self._unmerge).after(part)]
        return hooks

    def _keep_input(self, block: Module, args: Args, kwargs: Kwargs) -> None:
        call = self._calls.current
        if call and call.levels:
            call.block = BlockRun(argument(args, kwargs, 0, self._names.hidden))

    def _end_block(self, *_: Any) -> None:
        if call := self._calls.current:
            call.block = BlockRun()

    def _merge(self, module: Module, args: Args, kwargs: Kwargs) -> Changed:
        running = self._calls.current
        if running is None or running.block.input is None:
            return None
        run, block_input = running.block, running.block.input
        run.merged_by = None  # an exception may have left it
        x, acting = argument(args, kwargs, 0, self._names.hidden), self._acting(module)
        if acting is None:
            return None
        call, plan = acting
        mask = None if argument(args, kwargs, 2, self._names.mask) is None else Reason.MASK
        if why := self._why_whole(module, x, block_input, plan.grid.tokens, mask):
            self._skip(why)
            return None
        run.reduction = run.reduction or self._reduction(plan, block_input, call, block_input.shape[0])
        merged = run.reduction.merge(x)
        if argument(args, kwargs, 1, self._names.context) is x:  # ControlNet passes x itself as the context
            args, kwargs = with_argument(args, kwargs, 1, self._names.context, merged)
            if kwargs.get("value") is not None:  # hosts with patches pass the values beside the keys
                values = kwargs["value"]
                kwargs = {**kwargs, "value": merged if values is x else run.reduction.merge(values)}
        run.merged_by = run.reduction
        call.reduced = True
        self._shared.record.ran(plan, call.step, self._shared.host.network)
        return with_argument(args, kwargs, 0, self._names.hidden, merged)

    def _why_whole(self, module: Module, x: Tensor, block_input: Tensor, n: int, mask: Why | None) -> Why | None:
        """Why the module may not see fewer than the block's tokens, if so."""
        name = next((name for name in self._shared.modules if getattr(self.site.block, name, None) is module), "")
        if has_foreign_forward(module):
            return Reason.REPLACED_FORWARD(name)
        if x.shape != block_input.shape or x.shape[1] != n:
            return Reason.NO_INPUT_GRID(n)
        return mask if name == "attn1" else None

    def _unmerge(self, module: Module, args: Args, output: Tensor) -> Tensor | None:
        call = self._calls.current
        if call is None or call.block.merged_by is None:
            return None
        merged_by, call.block.merged_by = call.block.merged_by, None
        return merged_by.unmerge(output)
