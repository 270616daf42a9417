"""What is remembered between the steps of a pass: each UNet call of a step has a memory of its own.

A step may have several calls, one after the other: halves of a batch, the second one of a second-order sampler, those
of PAG or SAG, reference-only's two. Their place in the step tells which is which.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves

from ...hosts import Host, weight_shape
from ...token_grid import TokenGrid
from ..space.level_plan import Reason
from ..steps import Step, timesteps_of
from .deep_plan import DeepPlan
from .pacing import Pace, gap_of
from .prediction import History

MOST_CALLS = 8  # of a step, that are remembered
ROOM = 1 / 8  # the part of the free memory of a GPU that the histories may take; the UNet's call needs the rest


@dataclass(eq=False)
class CallMemory:
    """The calls at one place of the steps: in which steps the deep transformers ran, and what each of them did."""

    signature: Any = None  # what must be as in the last call
    conditions: tuple[Tensor, ...] = ()  # copies of those of the last call, such as the prompt, (b, tokens, c)
    latent: Tensor = field(default_factory=lambda: torch.zeros(()))
    time: Tensor = field(default_factory=lambda: torch.zeros(()))
    changed: Tensor | None = None  # whether a condition or the image changed between the last two computed steps
    changed_since: Tensor | None = None  # and after the last one
    predicts: bool = False  # in the call that runs
    measures: bool = False  # what an error of a prediction would be, in the call that runs
    weights: list[float] | None = None  # of the parts of the rows in the guided output
    computed: list[int] = field(default_factory=list)  # steps
    pace: Pace = field(default_factory=Pace)
    histories: dict[Module, History] = field(default_factory=lambda: defaultdict(History))
    step: int = -1  # of the last call

    def begin_call(
        self,
        step: Step,
        deep: DeepPlan,
        latent: Tensor,
        time: Any,
        conditions: Sequence[Tensor],
        others: Any,
        gap: Callable[[], int] | None,
    ) -> None:
        """Decide whether the deep transformers of a call run.

        ``latent`` is (b, c, h, w), ``time`` the timestep of its first row. ``others`` must be as in the last call;
        another condition, or a latent that points elsewhere than the last one, begins anew. ``gap`` tells how many
        steps later the next one is computed, where the measured error decides.
        """
        # the type: tensors of torch.export have no values
        signature = others, type(latent), latent.shape, latent.dtype, latent.device, [each.shape for each in conditions]
        if signature == self.signature:
            self.changed_since = _either(self.changed_since, self._differs(latent, conditions))
        else:
            self.forget()
        self.predicts = not deep.computes(step.number, step.total, self.computed, gap)
        if self.predicts and (changed := _either(self.changed, self.changed_since)) is not None and bool(changed):
            self.forget()  # to read it, the program has waited for a GPU: once a call
            self.predicts = False
        self.measures = deep.tolerance is not None and not self.predicts
        if self.predicts or self.measures:
            History.fit(self.histories.values())
        self.step = step.number
        self.signature, self.conditions, self.latent = signature, tuple(each.clone() for each in conditions), latent
        self.time = _time_on(latent.device, time)

    def end_step(self) -> None:
        """The step of the last call has ended: what it has measured counts from now on."""
        if self.measures and len(self.computed) > 1 and self.computed[-1] == self.step:
            self.pace.computed(self.time, self.computed[-1] - self.computed[-2])

    def end_call(self, output: Any) -> None:
        """A computed call has ended. With NaN or infinity in its output, nothing of it is continued."""
        self.computed.append(self.step)
        self.changed, self.changed_since = self.changed_since, None
        last = tree_leaves(getattr(output, "sample", output))[-1]  # of a ControlNet: it saw all layers
        if isinstance(last, Tensor):
            self.changed_since = _either(self.changed_since, ~last.isfinite().all())

    def learn(self, module: Module, x: Tensor, made: Tensor, output: Tensor) -> None:
        """A module has run: its input, what it has made of it, and its output, all (b, c, h, w)."""
        history = self.histories[module]
        if self.measures and history.can_predict(x):
            self.pace.measure(history.predict(self.time, x) - made, output, self.weights)
        history.add(self.time, x, made)

    def _differs(self, latent: Tensor, conditions: Sequence[Tensor]) -> Tensor:
        """Whether a condition or the image differs from the last call's, as a truth value that stays on the device."""
        # by the angle, more than 60 degrees: a latent may grow in a pass, and another image's is about at right angles
        now, before = latent.float(), self.latent.float()
        differs = 2 * (now * before).sum() < now.norm() * before.norm()
        for condition, before in zip(conditions, self.conditions, strict=True):
            differs = differs | (condition != before).any()
        return differs

    def forget(self) -> None:
        """Free the memory: no step will be predicted any more."""
        self.computed, self.histories, self.pace = [], defaultdict(History), Pace()
        self.changed = self.changed_since = None
        self.measures = False


class Memory:
    """The memories of one pass, by the place of their calls in a step."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: the pass is over."""
        self.free()
        self._has_looked = False
        self._lacks_room: Reason | None = None

    def free(self) -> None:
        """Forget the calls: nothing will be predicted any more in this pass."""
        self._calls: defaultdict[int, CallMemory] = defaultdict(CallMemory)
        self._step, self._place = -1, 0
        self._last: list[CallMemory] = []  # of the calls of the last step
        self._gap: int | None = None  # unknown
        self.has_nan = False  # an error that was measured is no number
        self.least_error = math.inf  # the least tolerance with which a step would have been predicted

    def why_no_room(self, host: Host, latent: Tensor) -> Reason | None:
        """Why the histories do not fit on the GPU beside the model. Looked up once a pass."""
        if not self._has_looked:
            self._has_looked = True
            needed, free = bytes_needed(host, latent), free_bytes(latent.device)
            words = f"the interval needs {needed / 2**20:,.0f} MiB, and the GPU has {free / 2**20:,.0f} MiB free"
            self._lacks_room = None if needed <= ROOM * free else words
        return self._lacks_room

    def begin_step(self, step: int) -> None:
        """The next call is the first of this step. One that is no later than the last begins a new pass."""
        if step <= self._step:
            self.reset()
        self._place = 0

    def next(self, step: int) -> CallMemory:
        """The memory of the next call, which belongs to this step. An earlier step than the last begins a new pass."""
        if step < self._step:
            self.reset()
        if step != self._step:
            self._last = [memory for memory in self._calls.values() if memory.step == self._step]
            for memory in self._last:
                memory.end_step()
            self._step, self._place, self._gap = step, 0, None
        place, self._place = self._place, self._place + 1
        return self._calls[place] if place < MOST_CALLS else CallMemory()

    def gap(self, deep: DeepPlan, steps: int | None) -> Callable[[], int] | None:
        """The gap that the errors of all calls of the last step allow: halves of a batch skip the same steps."""
        tolerance = deep.tolerance
        if tolerance is None or not steps:
            return None

        def of_the_worst() -> int:
            if self._gap is None:
                costs = [memory.pace.cost() for memory in self._last] or [math.inf]
                self.has_nan = any(map(math.isnan, costs))
                self.least_error = min(self.least_error, max(costs) * steps / 2)  # as in `gap_of` for a gap of 2
                self._gap = min(gap_of(cost, tolerance, steps) for cost in costs)
            return self._gap

        return of_the_worst

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a patched model begins anew."""
        return Memory, ()


def bytes_needed(host: Host, latent: Tensor) -> int:
    """Memory of the histories of a call with this latent (b, c, h, w): four tensors and a matrix a transformer."""
    rows, size, numbers = int(latent.shape[0]), TokenGrid.of(latent.shape), 0
    for site in {site.transformer: site for site in host.sites if site.level > 1}.values():
        block: Any = site.block
        width, tokens = (weight_shape(block.attn1.to_q) or (0, 0))[1], size.halved(host.depth + site.level - 1).tokens
        numbers += rows * (4 * width * tokens + width * width)
    return numbers * latent.element_size()


def free_bytes(device: torch.device) -> float:
    """What torch can still allocate on a CUDA device; elsewhere it is not known, and counts as endless."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return math.inf
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def _either(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one | other


def _time_on(device: torch.device, timestep: Any) -> Tensor:
    """A call's first timestep as a 0-dimensional tensor, without a wait for the device."""
    if isinstance(timestep, Tensor) and timestep.device == device:
        return timestep.flatten()[0].float()
    return torch.full((), timesteps_of(timestep)[0], device=device)
