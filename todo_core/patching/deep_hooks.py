"""The ``forward`` of a module that does not run in each step: it runs the module, or predicts what that would make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Module

from .hooks import Shared
from .module_calls import Forward, has_other_forward, read
from .streams import Stream


class DeepHooks:
    """What is put on one transformer below level 1. What it adds to its input is predicted."""

    what, all_of_them = "a deep transformer", "transformers below level 1"

    def __init__(self, module: Module, shared: Shared) -> None:
        self._module, self._shared = module, shared
        self._kind: Any = Tensor  # of the module's outputs

    def attach(self) -> list[Forward]:
        """Put the forward on, unless somebody else has."""
        if has_other_forward(self._module):
            name = type(self._module).__name__
            self._shared.record.note(f"{self.what} runs in every step: another {name}.forward is on it")
            return []
        return [Forward(self._run).on(self._module)]

    def _run(self, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        call, record = self._shared.calls.current, self._shared.record
        stream = call.stream if call else None
        if call is None or stream is None:
            return own(*args, **kwargs)
        x = self._input(args, kwargs)
        predicted = self._guarded(self._predict, stream, x) if stream.predicts else None
        if predicted is not None:
            call.reduced = True
            record.predicted_in.add(call.step)
            record.predicted = self.all_of_them
            return self._packed(predicted)
        output = own(*args, **kwargs)
        if call.stream is stream:  # an error may have stopped the call
            self._guarded(self._remember, stream, x, output)
        return output

    def _input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        return read(args, kwargs, 0, self._shared.host.arguments.hidden)

    def _predict(self, stream: Stream, x: Tensor) -> Tensor | None:
        """The output for the input ``x`` (b, c, h, w); None if too little is known."""
        history = stream.histories[self._module]
        return x + history.predict(stream.time, x) if history.can_predict(x) else None

    def _remember(self, stream: Stream, x: Tensor, output: Any) -> None:
        stream.histories[self._module].add(stream.time, x, self._unpacked(output) - x)

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


class WholeHooks(DeepHooks):
    """What is put on a UNet of which whole calls are predicted. Its output is."""

    what, all_of_them = "the model", "whole model"
    _output: Tensor | None = None  # an empty one, with channels and dtype

    def _input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        return read(args, kwargs, 0, self._shared.host.arguments.latent)

    def _predict(self, stream: Stream, x: Tensor) -> Tensor | None:
        history = stream.histories[self._module]
        x = self._noisy(x)
        return history.predict(stream.time, x) if history.can_predict(x) else None

    def _remember(self, stream: Stream, x: Tensor, output: Any) -> None:
        y = self._unpacked(output)
        self._output = y[:0]
        stream.histories[self._module].add(stream.time, self._noisy(x), y)

    def _noisy(self, x: Tensor) -> Tensor:
        """The channels of the noisy latent, as the output has them: of an inpainting model, mask and image follow."""
        return x if self._output is None else x[:, : self._output.shape[1]].to(self._output.dtype)
