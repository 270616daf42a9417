"""The ``forward`` of one deep transformer: it runs the transformer, or predicts what it would have added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Module

from .hooks import Shared
from .module_calls import Forward, read
from .streams import Stream


class DeepHooks:
    """What is put on one transformer below level 1."""

    def __init__(self, transformer: Module, shared: Shared) -> None:
        self._transformer, self._shared = transformer, shared
        self._kind: Any = Tensor  # of the transformer's outputs

    def attach(self) -> list[Forward]:
        """Put the forward on, unless somebody else has."""
        if "forward" in vars(self._transformer):
            name = type(self._transformer).__name__
            self._shared.record.note(f"a deep transformer runs in every step: another {name}.forward is on it")
            return []
        return [Forward(self._run).on(self._transformer)]

    def _run(self, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        call = self._shared.calls.current
        stream = call.stream if call else None
        if call is None or stream is None:
            return own(*args, **kwargs)
        x = read(args, kwargs, 0, self._shared.host.arguments.hidden)
        predicted = self._guarded(self._predict, stream, x) if stream.predicts else None
        if predicted is not None:
            call.reduced = True
            self._shared.record.predicted_in.add(call.step)
            return self._packed(predicted)
        output = own(*args, **kwargs)
        if call.stream is stream:  # an error may have stopped the call
            self._guarded(self._remember, stream, x, output)
        return output

    def _predict(self, stream: Stream, x: Tensor) -> Tensor | None:
        """The output for the input ``x`` (b, c, h, w); None if too little is known."""
        history = stream.histories[self._transformer]
        return history.predict(stream.time, x) if history.can_predict(x) else None

    def _remember(self, stream: Stream, x: Tensor, output: Any) -> None:
        self._kind = type(output)
        stream.histories[self._transformer].add(stream.time, x, output if isinstance(output, Tensor) else output[0])

    def _packed(self, y: Tensor) -> Any:
        """The output as the transformer returns it: diffusers has it in a tuple, or in an object with one field."""
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
