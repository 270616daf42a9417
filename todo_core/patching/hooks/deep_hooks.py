"""The ``forward`` of a module that does not run in each step: it runs the module, or predicts what that would make."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Module

from ...hosts.host import counts_calls, has_foreign_forward
from ...reason import Reason
from ..facts import Holder
from ..time.memory import CallMemory
from ..time.prediction_plan import Part
from .module_calls import Args, Forward, Kwargs, argument, guarded, has_other_forward
from .running_calls import Shared


class DeepHooks:
    """What is put on one transformer below level 1. What it adds to its input is predicted."""

    what = "a deep transformer"
    part: Part = "deep"

    def __init__(self, module: Module, shared: Shared) -> None:
        self._module, self._shared, self._calls = module, shared, shared.calls
        self._kind: Any = Tensor  # of the module's outputs

    def attach(self) -> list[Forward]:
        """Put the forward on, unless somebody else has."""
        if has_other_forward(self._module):
            self._note_other_forward()
            return []
        return [Forward(self._instead, self._learn, is_single=self.part == "whole").on(self._module)]

    def _note_other_forward(self) -> None:
        name = type(self._module).__name__
        self._shared.record.note(Reason.RUNS_ALWAYS(self.what, name))

    def _is_covered(self) -> bool:
        """Whether somebody has put a forward over ours since, as DeepCache does: both would leave out runs."""
        if isinstance(vars(self._module).get("forward"), Forward) or not has_foreign_forward(self._module):
            return False
        self._note_other_forward()
        return True

    def _instead(self, args: Args, kwargs: Kwargs) -> Any:
        """The predicted output, as the module returns it; None if the module must run."""
        call = self._calls.current
        memory = call.memory if call else None
        if call is None or memory is None or self._is_covered() or not memory.parts[self.part].predicts:
            return None
        y = guarded(self._shared.on_error, self._predict, memory, args, kwargs)
        if y is None:
            return None
        call.reduced = True
        call.predicted.add(self.part)
        return self._packed(y)

    def _learn(self, args: Args, kwargs: Kwargs, output: Any) -> Any:
        """The module has run, if not another cache has answered. Returns what stands for its output, or None."""
        call = self._calls.current
        if not (call and call.memory and self.part in call.planned and call.has_run and call.memory.learns(self.part)):
            return None
        return guarded(self._shared.on_error, self._made_up, call.memory, args, kwargs, output)

    def _made_up(self, memory: CallMemory, args: Args, kwargs: Kwargs, output: Any) -> Any:
        missed = self._remember(memory, args, kwargs, output)
        return None if missed is None else self._packed(self._unpacked(output) + missed)

    def _predict(self, memory: CallMemory, args: Args, kwargs: Kwargs) -> Tensor | None:
        """The output (b, c, h, w); None if too little is known."""
        history, x = memory.parts[self.part].histories.get(self._module), self._input(args, kwargs)
        if history is None or not history.can_predict(x):
            return None
        return self._output(x, history.predict(memory.now, x))

    def _output(self, x: Tensor, predicted: Tensor) -> Tensor:
        return x + predicted

    def _remember(self, memory: CallMemory, args: Args, kwargs: Kwargs, output: Any) -> Tensor | None:
        """Learn from a run. Returns what predictions have missed; None where that is nothing."""
        x, y = self._input(args, kwargs), self._unpacked(output)
        return memory.learn(self.part, self._module, x, y - x, y)

    def _packed(self, y: Tensor) -> Any:
        """An output as the module returns it."""
        if issubclass(self._kind, Tensor):
            return y
        return (y,) if self._kind is tuple else self._kind(y)  # diffusers: an object with one field

    def _unpacked(self, output: Any) -> Tensor:
        self._kind = type(output)
        return output if isinstance(output, Tensor) else output[0]

    def _input(self, args: Args, kwargs: Kwargs) -> Tensor:
        return argument(args, kwargs, 0, self._shared.host.arguments.hidden)


def holder_of(unet: Module) -> Holder | None:
    """What else has hold of this UNet."""
    is_free = isinstance(vars(unet).get("forward"), Forward) or not has_other_forward(unet)
    return "counter" if counts_calls(unet) else None if is_free else "forward"


class WholeHooks(DeepHooks):
    """What is put on a UNet of which whole calls are predicted. Its output is."""

    what = "the model"
    part: Part = "whole"
    _channels, _dtype = 0, None  # of its output

    def _remember(self, memory: CallMemory, args: Args, kwargs: Kwargs, output: Any) -> Tensor | None:
        y = self._unpacked(output).clone()  # a sampler may go on with it in place
        self._channels, self._dtype = y.shape[1], y.dtype
        return memory.learn(self.part, self._module, self._input(args, kwargs).clone(), y, y)

    def _output(self, x: Tensor, predicted: Tensor) -> Tensor:
        return predicted

    def _input(self, args: Args, kwargs: Kwargs) -> Tensor:
        """The channels of the noisy latent, as the output has them: of an inpainting model, mask and image follow."""
        x = argument(args, kwargs, 0, self._shared.host.arguments.latent)
        return x[:, : self._channels].to(self._dtype) if self._channels else x
