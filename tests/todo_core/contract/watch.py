"""The calls of a network, seen from outside, and what a job lets happen in them: see ``host.py``.

The probes of real programs load this file. It needs no other.
"""

import contextlib
import gc
import sys
import weakref
from unittest.mock import patch


class Watch:
    """Notes each call of a network; ``events`` tells by the number of a call what is to happen in it.

    ``ends`` are functions: "stop" ends the program as it cancels; "cancel" asks for it before a call.
    """

    def __init__(self, events=None, **ends):
        self.events = {int(number): event for number, event in (events or {}).items()}
        self.calls, self._ends, self._tokens, self._sign, self._last = [], ends, weakref.WeakValueDictionary(), 1, None

    @contextlib.contextmanager
    def on(self, kind):
        """Watch the calls of all networks of a class."""
        original = kind.__call__

        def call(network, *args, **kwargs):
            self.begin(network, *args, **kwargs)
            return self.run(network, original, *args, **kwargs)

        with patch.object(kind, "__call__", call):
            yield self.calls

    def begin(self, network, *args, **kwargs):
        """A call with these arguments is about to be made; what is noted of it."""
        x, time = kwargs.get("x", args and args[0]), kwargs.get("timesteps", args[1] if len(args) > 1 else None)
        call = {"time": float(time.flatten()[0]), "rows": len(x), "hooks": hooks_on(network)}
        self.calls.append(call | {"tokens": 0, "keys": 0, "deep": False, "lengths": []})
        return self.calls[-1]

    def run(self, network, original, *args, **kwargs):
        """Make the call that has begun; ``original`` is the one of torch or of the program."""
        event, call = self.events.get(len(self.calls) - 1), self.calls[-1]
        self._sign *= -1 if event == "prompt" else 1
        text = next((name for name in ("context", "encoder_hidden_states") if name in kwargs), None)
        if text:
            kwargs[text] = kwargs[text] * self._sign
        elif self._sign < 0:
            args = (*args[:2], -args[2], *args[3:])
        self._happens(event, " before")
        if event != "cached":
            with contextlib.ExitStack() as stack:
                for watched in (*self._hooks(network, call, event), self._replaced(network, event)):
                    stack.enter_context(watched)
                self._last = original(network, *args, **kwargs)
        if self.events.get(len(self.calls)) == "cancel":
            self._ends["cancel"]()
        return self._last

    def remembered(self):
        """How many tensors of the calls are still in memory."""
        gc.collect()
        return len(self._tokens)

    def _happens(self, event, where=""):
        if event == f"stop{where}":
            self._ends["stop"]()
        if event == f"fail{where}":
            raise Failed("the probe was asked to fail here")

    def _hooks(self, network, call, event):
        """They note the tokens of each self-attention, those of level 1, and whether a transformer below it runs."""
        blocks = {name: module for name, module in network.named_modules() if hasattr(module, "attn1")}
        for block in blocks.values():
            yield from self._spied(block, call)
        if not blocks:
            return
        deep = next(block for name, block in blocks.items() if "mid" in name)
        others = [block for block in blocks.values() if block is not deep]
        first = min(others, key=lambda block: len(block.norm1.weight))  # level 1 is the narrowest
        yield first.register_forward_pre_hook(lambda _, args: call.update(tokens=args[0].shape[1]))
        yield first.attn1.to_k.register_forward_pre_hook(lambda _, args: call.update(keys=args[0].shape[1]))
        yield first.attn2.to_k.register_forward_pre_hook(lambda *_: self._happens(event))
        yield deep.register_forward_pre_hook(lambda *_: call.update(deep=True))

    def _spied(self, block, call):
        """Hooks that append [queries, keys] to the lengths."""
        queries = []

        def see_queries(_, args):
            queries.append(args[0].shape[1])
            self._tokens[id(args[0])] = args[0]

        yield block.attn1.to_q.register_forward_pre_hook(see_queries)
        note = lambda _, args: call["lengths"].append([queries.pop(), args[0].shape[1]])  # noqa: E731
        yield block.attn1.to_k.register_forward_pre_hook(note)

    def _replaced(self, network, event):
        """Another cache's answer in the place of the UNet's own code, inside the call; a fault in the extension's."""
        if event == "cached inside":
            name = "_forward" if hasattr(network, "_forward") else "forward"
            return patch.object(type(network), name, lambda *args, **kwargs: self._last)
        if event == "ours":
            reduction = next(module for name, module in sys.modules.items() if name.endswith("todo_core.reduction"))
            return patch.object(reduction, "stride", lambda *args, **kwargs: 1 / 0)
        return contextlib.nullcontext()


def hooks_on(model):
    """How many hooks and forwards of the extension are on a model."""
    tables = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks")
    found = [hook for part in model.modules() for table in tables for hook in getattr(part, table).values()]
    found += [vars(part)["forward"] for part in model.modules() if "forward" in vars(part)]
    names = (str(getattr(hook, "__module__", "")).split(".") for hook in found)
    return sum("todo_core" in name and "tests" not in name for name in names)


def foreign(network, what):
    """Put another extension's forward on a network, which does nothing, or its "counter" of a layer's calls.

    HiDiffusion has such counters. Returns what takes it off.
    """
    if what != "counter":
        network.forward = lambda *args, **kwargs: type(network).forward(network, *args, **kwargs)
        return lambda: vars(network).pop("forward", None)
    layer = next(module for module in network.modules() if not any(module.children()))
    layer.__class__ = type("Counter", (own := type(layer),), {"calls": 0, "__qualname__": "f.<locals>.Counter"})
    return lambda: setattr(layer, "__class__", own)


class Failed(Exception):
    """An error of the model, or of another extension."""
