"""The ``forward`` of a module that does not run in each step: it runs the module, or predicts what that would make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Module

from ...hosts import has_foreign_forward
from ..level_plan import Reason
from ..memory import CallMemory
from .keys_hooks import Shared
from .module_calls import Args, Forward, Kwargs, has_other_forward, read


class DeepHooks:
    """What is put on one transformer below level 1. What it adds to its input is predicted."""

    what, all_of_them, is_whole = "a deep transformer", "transformers below level 1", False

    def __init__(self, module: Module, shared: Shared) -> None:
        self._module, self._shared = module, shared
        self._kind: Any = Tensor  # of the module's outputs

    def attach(self) -> list[Forward]:
        """Put the forward on, unless somebody else has."""
        if has_other_forward(self._module):
            self._note_other_forward()
            return []
        return [Forward(self._instead, self._learn, is_single=self.is_whole).on(self._module)]

    def _note_other_forward(self) -> None:
        name = type(self._module).__name__
        self._shared.record.note(f"{self.what} runs in every step: another {name}.forward is on it")

    def _is_covered(self) -> bool:
        """Whether somebody has put a forward over ours since, as DeepCache does: both would leave out runs."""
        if isinstance(vars(self._module).get("forward"), Forward) or not has_foreign_forward(self._module):
            return False
        self._note_other_forward()
        return True

    @property
    def _memory(self) -> CallMemory | None:
        """Of the call that runs; None where this module is not to be predicted, or after an error of ours."""
        call = self._shared.calls.current
        return call.memory if call and call.is_whole == self.is_whole else None

    def _instead(self, args: Args, kwargs: Kwargs) -> Any:
        """The predicted output; None if the module must run."""
        memory, call, record = self._memory, self._shared.calls.current, self._shared.record
        if memory is None or call is None or self._is_covered() or not memory.predicts:
            return None
        predicted = self._guarded(self._predict, memory, self._input(args, kwargs))
        if predicted is None:
            return None
        call.reduced = call.is_predicted = True
        record.predicted = self.all_of_them
        return self._packed(predicted)

    def _learn(self, args: Args, kwargs: Kwargs, output: Any) -> None:
        """The module has run, if not another cache has answered."""
        memory, call = self._memory, self._shared.calls.current
        if memory is not None and call and call.has_run:
            self._guarded(self._remember, memory, self._input(args, kwargs), output)

    def _input(self, args: Args, kwargs: Kwargs) -> Tensor:
        return read(args, kwargs, 0, self._shared.host.arguments.hidden)

    def _predict(self, memory: CallMemory, x: Tensor) -> Tensor | None:
        """The output for the input ``x`` (b, c, h, w); None if too little is known."""
        history = memory.histories[self._module]
        return x + history.predict(memory.time, x) if history.can_predict(x) else None

    def _remember(self, memory: CallMemory, x: Tensor, output: Any) -> None:
        y = self._unpacked(output)
        memory.learn(self._module, x, y - x, y)

    def _unpacked(self, output: Any) -> Tensor:
        self._kind = type(output)
        return output if isinstance(output, Tensor) else output[0]

    def _packed(self, y: Tensor) -> Any:
        """The output as the module returns it: diffusers has it in a tuple, or in an object with one field."""
        if issubclass(self._kind, Tensor):
            return y
        return (y,) if self._kind is tuple else self._kind(y)

    def _guarded(self, run: Callable[..., Tensor | None], *call: Any) -> Tensor | None:
        """Run it; hand an error to the session, if that keeps errors from the caller."""
        try:
            return run(*call)
        except Exception as error:
            if self._shared.on_error is None:
                raise
            self._shared.on_error(error)
            return None


def why_not_whole_on(unet: Module) -> Reason | None:
    """Why whole calls of this UNet cannot be predicted."""
    is_free = isinstance(vars(unet).get("forward"), Forward) or not has_other_forward(unet)
    return None if is_free else "another forward is on the model"


class WholeHooks(DeepHooks):
    """What is put on a UNet of which whole calls are predicted. Its output is."""

    what, all_of_them, is_whole = "the model", "whole model", True
    _channels, _dtype = 0, None  # of its output

    def _input(self, args: Args, kwargs: Kwargs) -> Tensor:
        return read(args, kwargs, 0, self._shared.host.arguments.latent)

    def _predict(self, memory: CallMemory, x: Tensor) -> Tensor | None:
        history = memory.histories[self._module]
        x = self._noisy(x)
        return history.predict(memory.time, x) if history.can_predict(x) else None

    def _remember(self, memory: CallMemory, x: Tensor, output: Any) -> None:
        y = self._unpacked(output).clone()  # a sampler may go on with it in place, and with the latent
        self._channels, self._dtype = y.shape[1], y.dtype
        memory.learn(self._module, self._noisy(x).clone(), y, y)

    def _noisy(self, x: Tensor) -> Tensor:
        """The channels of the noisy latent, as the output has them: of an inpainting model, mask and image follow."""
        return x[:, : self._channels].to(self._dtype) if self._channels else x
