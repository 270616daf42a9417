"""The hooks of one transformer block for target all: a chosen module gets a merged input, its output is unmerged."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Module

from ...hosts import has_foreign_forward
from ..level_plan import LevelPlan
from .keys_hooks import SiteHooks
from .module_calls import Args, Changed, Hook, Kwargs, read, write
from .running_calls import BlockRun

_MODULES = ("attn1", "attn2", "ff")


class ModuleHooks(SiteHooks):
    """Target all. The modules of a block use one reduction, that of the block's input."""

    def attach(self) -> list[Hook]:
        """Hook the block and its chosen modules."""
        block, settings = self.site.block, self._shared.settings
        hooks = [Hook(self._keep_input).before(block), Hook(self._end_block).after(block)]
        chosen = settings.attn, settings.crossattn, settings.mlp
        for part in (getattr(block, name, None) for name, on in zip(_MODULES, chosen, strict=True) if on):
            if part is not None:  # a block may have no cross-attention
                hooks += [Hook(self._merge, self._shared.on_error).before(part), Hook(self._unmerge).after(part)]
        return hooks

    def _reduces_attention(self) -> bool:
        return self._shared.settings.attn

    def _keep_input(self, block: Module, args: Args, kwargs: Kwargs) -> None:
        call = self._call
        if call and call.levels:
            call.block = BlockRun(read(args, kwargs, 0, self._names.hidden))

    def _end_block(self, *_: Any) -> None:
        if call := self._call:
            call.block = BlockRun()

    def _merge(self, module: Module, args: Args, kwargs: Kwargs) -> Changed:
        call = self._call
        if call is None or call.block.input is None:
            return None
        run, block_input = call.block, call.block.input
        run.merged_by = None  # an exception may have left it
        plan = self._plan(module, call)
        x = read(args, kwargs, 0, self._names.hidden)
        if plan is None or not self._may_merge(module, x, block_input, plan, has_mask=self._has_mask(args, kwargs)):
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

    def _may_merge(self, module: Module, x: Tensor, block_input: Tensor, plan: LevelPlan, *, has_mask: bool) -> bool:
        """Whether the module sees the block's tokens, and may see fewer of them; with a note where it may not."""
        name, why = self._name(module), ""
        if has_foreign_forward(module):
            why = f"another extension has replaced its {name}.forward"
        elif x.shape != block_input.shape or x.shape[1] != plan.grid.tokens:
            why = f"its input is not a grid of {plan.grid.tokens:,} tokens"
        elif name == "attn1" and has_mask:
            why = "it has a mask"
        if why:
            self._skip(why)
        return not why

    def _unmerge(self, module: Module, args: Args, output: Tensor) -> Tensor | None:
        call = self._call
        if call is None or call.block.merged_by is None:
            return None
        merged_by, call.block.merged_by = call.block.merged_by, None
        return merged_by.unmerge(output)

    def _name(self, module: Module) -> str:
        return next((name for name in _MODULES if getattr(self.site.block, name, None) is module), "")
