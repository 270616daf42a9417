"""What is remembered between the steps of a pass: each UNet call of a step has a memory of its own.

A step may have several calls, one after the other: halves of a batch, the second one of a second-order sampler, those
of PAG or SAG, reference-only's two. Their place in the step tells which is which.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves

from ...hosts.conditions import Adapters
from ...hosts.host import Host
from ...reason import Reason, Why
from ..steps import Row, Step, timesteps_of
from . import room
from .pacing import Budget, Guided, Pace
from .prediction import Hold, Line, Moment
from .prediction_plan import PARTS, Part, PredictionPlan, Way

MOST_CALLS = 8  # of a step, that are remembered
Changes = dict[Reason, Tensor]  # truth values that stay on the device: what has changed, if it has


@dataclass(eq=False)
class PartMemory:
    """What is remembered of a part of the UNet at one place of the steps: of whole calls, or of deep transformers."""

    predicts: bool = False  # in the call that runs
    measures: bool = False  # what an error of a prediction would be, in the call that runs
    makes_up: float = 0.0  # of that error, what the output has besides for what was missed
    computed: list[int] = field(default_factory=list)  # steps
    predicted: list[int] = field(default_factory=list)  # steps since the last computed one
    pace: Pace = field(default_factory=Pace)
    way: Way = Line
    histories: dict[Module, Line | Hold] = field(default_factory=dict)
    changed: Changes = field(default_factory=dict)  # between the last two computed steps
    changed_since: Changes = field(default_factory=dict)  # and after the last one

    def begin_call(self, step: Step, plan: PredictionPlan, gap: int | None, *, runs: bool) -> Reason | None:
        """Decide whether the part runs, if what it is a part of ``runs``; returns why it begins anew, if it does."""
        self.way = plan.way
        self.predicts = runs and not plan.computes(step.number, step.total, self.computed, gap)
        why = self._why_changed() if self.predicts else None
        if why:
            self.forget()
            self.predicts = False
        is_computed = runs and plan.predicts and not self.predicts
        self.measures = is_computed and plan.tolerance is not None and not plan.is_over(step.number, step.total)
        self.makes_up = plan.made_up(step.number, self.predicted, self.computed) if is_computed else 0.0
        if self.predicts:
            self.predicted.append(step.number)
        if self.predicts or self.measures or self.makes_up:
            Line.fit(self.histories.values())
        return why

    def _why_changed(self) -> Reason | None:
        """What has changed, if anything has. To read it, the program waits for a GPU: once a call."""
        changes = [*self.changed.items(), *self.changed_since.items()]
        if not changes or not torch.stack([is_true for _, is_true in changes]).any():
            return None
        return next(why for why, is_true in changes if is_true)

    def end_call(self, step: int, is_spoilt: Tensor | None) -> None:
        """The part has run. With NaN or infinity in the output, nothing of it is continued."""
        self.computed.append(step)
        self.predicted = []
        self.changed, self.changed_since = self.changed_since, {} if is_spoilt is None else {Reason.SPOILT: is_spoilt}

    def end_step(self, step: int, time: Tensor) -> None:
        """The step of the last call has ended: what it has measured counts from now on."""
        if self.measures and len(self.computed) > 1 and self.computed[-1] == step:
            self.pace.end_step(time, self.computed[-1] - self.computed[-2], self.way.growth)

    def forget(self) -> None:
        """Begin anew."""
        self.computed, self.predicted, self.histories, self.pace = [], [], {}, Pace()
        self.changed, self.changed_since = {}, {}


@dataclass(eq=False)
class CallMemory:
    """The calls at one place of the steps."""

    # modules that have measured some rows of an image in this step, whose others come in later calls
    unpaired: dict[Module, tuple[Pace, Guided]]
    parts: dict[Part, PartMemory] = field(default_factory=lambda: {part: PartMemory() for part in PARTS})
    signature: dict[Reason, Any] = field(default_factory=dict)  # what must be as in the last call
    conditions: tuple[Tensor, ...] = ()  # copies of those of the last call, such as the prompt, (b, tokens, c)
    latent: Tensor = field(default_factory=lambda: torch.zeros(()))
    now: Moment = field(default_factory=lambda: Moment(torch.zeros(())))
    rows: Sequence[Row] = ()
    step: int = -1  # of the last call
    is_last: bool = False  # whether that is the pass's last step, which nothing continues
    nets: Sequence[bool] = field(default_factory=list)  # which ControlNets have run in the last call

    def begin_call(
        self,
        step: Step,
        rows: Sequence[Row],
        latent: Tensor,
        time: Any,
        conditions: Sequence[Tensor],
        others: Any,
        plans: Mapping[Part, PredictionPlan],
        gaps: Mapping[Part, int | None],
    ) -> Reason | None:
        """Decide what of a call runs; returns why something begins anew, if it does.

        ``latent`` is (b, c, h, w), ``time`` the timestep of its first row. ``others`` must be as in the last call;
        another condition, or a latent that points elsewhere than the last one, begins anew. ``gaps`` are those
        of `Memory.gaps`.
        """
        others, shapes = (others, type(latent), latent.dtype, latent.device), [each.shape for each in conditions]
        # the type: tensors of torch.export have no values
        signature: dict[Reason, Any] = {Reason.ROWS: latent.shape[0], Reason.SIZE: latent.shape[1:]}
        signature |= {Reason.CONDITIONING: shapes, Reason.OTHERS: others}
        latent = latent.to(torch.float32, copy=True)  # EasyCache of ComfyUI goes on with it in place
        is_new = signature != self.signature
        whys: list[Reason | None] = [why for why, value in self.signature.items() if value != signature[why]]
        differs = {} if is_new else self._differs(latent, conditions)
        self.rows, self.step, self.is_last = rows, step.number, step.number + 1 == step.total
        self.now = Moment(_time_on(latent.device, time), step.scale)
        runs = True
        for name, plan in plans.items():
            part = self.parts[name]
            if is_new:
                part.forget()
            elif plan.predicts:
                part.changed_since = _either(part.changed_since, differs)
            whys.append(part.begin_call(step, plan, gaps[name], runs=runs))
            runs = not part.predicts
        self.signature, self.conditions, self.latent = signature, tuple(each.clone() for each in conditions), latent
        return next(filter(None, whys), None)

    def begin_layers(self, nets: Sequence[bool]) -> None:
        """The layers of a call begin to run. Which ControlNets have run is known no earlier in AUTOMATIC1111."""
        if self.nets != nets:
            self._forget()
        self.nets = nets

    def _forget(self) -> None:
        for part in self.parts.values():
            part.forget()

    def end_step(self) -> None:
        """The step of the last call has ended."""
        for part in self.parts.values():
            part.end_step(self.step, self.now.time)

    def end_call(self, output: Any, ran: Sequence[Part]) -> None:
        """A call has ended in which these parts ran."""
        if self.is_last:
            self._forget()
            return
        last = tree_leaves(getattr(output, "sample", output))[-1]  # of a ControlNet: it saw all layers
        is_spoilt = ~last.isfinite().all().to(self.latent.device) if isinstance(last, Tensor) else None
        for name in ran:
            self.parts[name].end_call(self.step, is_spoilt)

    def learns(self, name: Part) -> bool:
        """Whether anything is learnt of a part that runs, or made up: in the last step, what was missed alone."""
        return not self.is_last or self.parts[name].makes_up != 0

    def learn(self, name: Part, module: Module, x: Tensor, target: Tensor, output: Tensor) -> Tensor | None:
        """A module of a part has run: its input, what is predicted of it, and its output, all (b, c, h, w).

        Returns what its output must have besides, if predictions have missed something.
        """
        part, missed = self.parts[name], None
        history = part.histories.setdefault(module, part.way())
        if (part.measures or part.makes_up) and history.can_predict(x):
            error = history.predict(self.now, x) - target
            # an error of predicted layers is small beside that of a held image, but not beside that of a line
            is_sure = part.way is Hold or not self.parts["deep"].predicts
            if part.makes_up and is_sure:
                missed = part.makes_up * error
                for is_other in part.changed_since.values():
                    missed = missed.masked_fill(is_other, 0)
            if part.measures:
                self._measure(part.pace, module, error, output)
        if not self.is_last:
            history.add(self.now, x, target)
        return missed

    def _measure(self, pace: Pace, module: Module, error: Tensor, output: Tensor) -> None:
        if all(row.weight == 0 for row in self.rows):  # the negative prompt at CFG 1: nothing of it is in the image
            return
        earlier, guided = self.unpaired.pop(module, (pace, Guided()))
        if not guided.takes(output):
            earlier.measure(guided.errors())
            guided = Guided()
        # of a video, a transformer sees each frame as a row
        guided.add(error, output, self.rows if len(self.rows) == len(output) else (Row(),) * len(output))
        if guided.is_complete:
            pace.measure(guided.errors())
        else:
            self.unpaired[module] = pace, guided

    def _differs(self, latent: Tensor, conditions: Sequence[Tensor]) -> Changes:
        """Whether a condition or the image differs from the last call's."""
        # by the angle, more than 60 degrees: a latent may grow in a pass, and another image's is about at right angles
        differs = {Reason.IMAGE: 2 * (latent * self.latent).sum() < latent.norm() * self.latent.norm()}
        for condition, before in zip(conditions, self.conditions, strict=True):
            differs = _either(differs, {Reason.CONDITIONING: (condition != before).any().to(latent.device)})
        return differs


class Memory:
    """The memories of one pass, by the place of their calls in a step."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: the pass is over."""
        self.free()
        self.adapters = Adapters()
        self._has_looked = False
        self._lacks_room: Why | None = None

    def free(self) -> None:
        """Forget the calls: nothing will be predicted any more in this pass."""
        self._unpaired: dict[Module, tuple[Pace, Guided]] = {}
        self._calls: defaultdict[int, CallMemory] = defaultdict(lambda: CallMemory(self._unpaired))
        self._step, self._index = -1, 0
        self._last: list[CallMemory] = []  # of the calls of the last step
        self._costs: dict[Part, float] | None = None  # unknown
        self._computed: dict[Part, list[int]] = {}  # the last two computed steps before this one
        self.has_too_many = False  # calls in a step
        self.has_nan = False  # an error that was measured is no number
        self._budgets: dict[Part, Budget] = {part: Budget() for part in PARTS}

    def why_no_room(self, host: Host, latent: Tensor) -> Why | None:
        """Why the histories do not fit on the GPU beside the model. Looked up once a pass."""
        if not self._has_looked:
            self._has_looked, self._lacks_room = True, room.why_none(host, latent)
        return self._lacks_room

    def is_first(self, step: int) -> bool:
        """Whether the next call is the first of its step."""
        return step != self._step

    def begin_step(self, step: int) -> None:
        """The next call is the first of this step. One that is no later than the last begins a new pass."""
        if step <= self._step:
            self.reset()
        self._index = 0

    def next(self, step: int) -> CallMemory:
        """The memory of the next call, which belongs to this step. An earlier step than the last begins a new pass."""
        if step < self._step:
            self.reset()
        if step != self._step:
            self._end_step()
            self._step, self._index = step, 0
        index, self._index = self._index, self._index + 1
        self.has_too_many = self.has_too_many or index >= MOST_CALLS
        return self._calls[index] if index < MOST_CALLS else CallMemory({})

    def _end_step(self) -> None:
        """What the last step has measured counts from now on, also of rows whose others did not come.

        Where none of the negative prompt has come, others were left out, as by Negative Guidance minimum sigma.
        """
        self._last, self._costs = [memory for memory in self._calls.values() if memory.step == self._step], None
        is_all = all((row.weight or 0) > 0 for memory in self._last for row in memory.rows)
        for pace, guided in self._unpaired.values():
            pace.measure(guided.errors(is_all=is_all))
        self._unpaired.clear()
        for memory in self._last:
            memory.end_step()
        for part in PARTS:
            computed = [memory.parts[part].computed[-2:] for memory in self._last]
            self._computed[part] = max(computed, key=lambda each: (each[-1:], len(each)), default=[])
        for part, budget in self._budgets.items():
            if any(memory.parts[part].predicts for memory in self._last):
                budget.predict(self._step)

    def gaps(self, plans: Mapping[Part, PredictionPlan], weights: Sequence[float] | None) -> dict[Part, int | None]:
        """The gap of each part that the errors of all calls of the last step allow; None where errors do not decide.

        Halves of a batch skip the same steps.
        """
        return {part: self._gap(part, plan, weights) for part, plan in plans.items()}

    def _gap(self, part: Part, plan: PredictionPlan, weights: Sequence[float] | None) -> int | None:
        if plan.tolerance is None or not weights:
            return None
        cost, computed = self._cost(part), self._computed.get(part, [])
        return self._budgets[part].gap(cost, plan.tolerance, weights, computed, plan.way.growth)

    @property
    def least_tolerances(self) -> dict[Part, float]:
        """The least tolerances with which a step of each part would have been predicted."""
        return {part: budget.least_tolerance for part, budget in self._budgets.items()}

    def _cost(self, part: Part) -> float:
        """The cost of the worst call of the last step; infinite while none is known. The program waits once a step."""
        if self._costs is None:
            found = [(name, each.pace.cost) for call in self._last for name, each in call.parts.items()]
            known = [(name, cost) for name, cost in found if cost is not None]
            values = torch.stack([cost for _, cost in known]).tolist() if known else []
            self.has_nan, self._costs = any(map(math.isnan, values)), {}
            for (name, _), value in zip(known, values, strict=True):
                self._costs[name] = max(self._costs.get(name, 0.0), math.inf if math.isnan(value) else value)
        return self._costs.get(part, math.inf)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a patched model begins anew."""
        return Memory, ()


def _either(one: Changes, other: Changes) -> Changes:
    return one | {why: one[why] | is_true if why in one else is_true for why, is_true in other.items()}


def _time_on(device: torch.device, timestep: Any) -> Tensor:
    """A call's first timestep as a 0-dimensional tensor, without a wait for the device."""
    if isinstance(timestep, Tensor) and timestep.device == device:
        return timestep.flatten()[0].float()
    return torch.full((), timesteps_of(timestep)[0], device=device)
