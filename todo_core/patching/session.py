"""Plan x model -> hooks that carry out what the plan says, step by step, and a record of what ran.

Hooks sit on module instances and come off by handle. No class is replaced, and no ``forward`` but those of
modules that are predicted, so the attention that the host has chosen still runs. Two hooks enclose each UNet call: the
first sets the state of the call that all others read, the second clears it. Without that state, a hook does nothing.
torch runs the second hook after an Exception, but not after a KeyboardInterrupt: so each call begins by dropping the
state of calls that no longer run. A ``forward`` with ``finally`` would see each end, but other extensions put theirs on
the UNet in mid-pass, and SD.Next's session is attached when the UNet is running already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from torch import Tensor
from torch.nn import Module

from ..course import Scale
from ..hosts import Host
from ..hosts.conditions import conditions_of, has_controlnet, weights_of_parts
from ..reason import Reason
from ..settings import Settings
from ..token_grid import TokenGrid
from .facts import Pass
from .guard import GuardedCall, refuse_checkpoints, why_not_predicted
from .hooks.attachment import Attachment
from .hooks.deep_hooks import holder_of
from .hooks.module_calls import Args, Kwargs, argument, remove_forwards
from .hooks.running_calls import Shared, UNetCall
from .plan import Plan
from .planning import make_plan
from .record import Record
from .steps import Row, Step, StepCounter, rows_inside, timesteps_of
from .time.memory import MOST_CALLS, CallMemory, Memory
from .what_ran import IdleNotes


class Session:
    """The hooks of one plan on one model. ``attach`` puts them on; ``remove`` takes them off and can be repeated.

    ``facts`` are what the caller knows of the pass. A session counts the steps by timestep, unless ``begin_step`` tells
    them. The plan follows the size and the steps of each call.
    ``on_error`` gets an error inside a hook, before anything is changed, and the call goes on without reduction.
    Without ``on_error`` the error is raised.
    """

    def __init__(
        self,
        host: Host,
        settings: Settings,
        facts: Pass | None = None,
        *,
        record: Record | None = None,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        side = round(host.trained_side)
        self.host, self.settings, self.record = host, settings, record or Record()
        self._facts = facts or Pass(TokenGrid(side, side), holder=holder_of(host.unet))
        self.plan = self._first_plan = make_plan(settings, host, self._facts)
        self._counter: StepCounter | None = StepCounter(host)
        self._passes = 0  # that the counter has seen begin
        self._idle_notes = IdleNotes(self.record)
        self._step = Step(rows=(Row(settings.seed or 0),))
        self._report_error = on_error
        self._memory = Memory()
        self.controls: Sequence[str] = ()  # which ControlNets and the like act in the step, where somebody tells it
        self.controlnets: Sequence[Session] = ()  # that run beside this UNet
        self.has_run = False  # since the last call of the UNet beside it
        shared = Shared(host, self.record, self._stop_reducing if on_error else None, self.plan.levels[0].modules)
        self._calls = shared.calls
        self._attachment = Attachment(self.plan, shared)

    def __repr__(self) -> str:
        state = "attached to" if self.is_attached else "not attached to"
        return f"<Session {state} {type(self.host.unet).__name__}; {self.plan}; {self.record}>".replace("\n", "; ")

    def attach(self) -> Session:
        """Put the hooks on the model, and on the blocks that the plan reduces; a call may add some."""
        self._attachment.put_on(self.plan, self.begin_call, self._note_run, self._end_call)
        return self

    @property
    def is_attached(self) -> bool:
        """Whether the hooks are on the model."""
        return bool(self._attachment)

    def remove(self) -> None:
        """Take every hook off, and free what is remembered of earlier steps."""
        self._attachment.remove()
        self._idle_notes.end()
        self._memory.reset()

    def detach(self) -> None:
        """Take every hook off. ``attach`` goes on where the pass was."""
        self._attachment.take_off()

    def begin_step(
        self, number: int, total: int | None, rows: Sequence[Row], guidance: Sequence[float] | None = None
    ) -> None:
        """The next UNet calls belong to step ``number``, from 0, of ``total``, which an adaptive sampler does not know.

        ``rows`` are those of these calls, in their order. ``guidance`` is the weight of each prompt in the guided
        output, where the calls tell of which prompt their rows are.
        """
        fixed = self.settings.seed
        self._counter = None
        self._memory.begin_step(number)
        own = rows if fixed is None else [replace(row, seed=fixed) for row in rows]
        self._step = Step(number, total, tuple(own), guidance)

    def tell(self, scale: Scale | None) -> None:
        """What the sampler's next call means, where it has told."""
        self._step.scale = scale

    def disagree(self) -> None:
        """Believe no more what the sampler has told of the pass: nothing is predicted from now on."""
        self._facts = replace(self._facts, course=None, disagrees=True)

    def acts_in_step(self) -> bool:
        """Whether anything happens in the step of ``begin_step``; True too where its calls' timesteps decide.

        Of ComfyUI's areas, calls of one step have several sizes.
        """
        is_unknown = self.settings.window == "noise" or not self._step.total
        if is_unknown or self.plan.predicts or self._first_plan.predicts:
            return True
        progress = self._progress(lambda: math.nan)
        return any(plan.at(progress) for plan in (self._first_plan, self.plan))

    @property
    def reduces_this_block(self) -> bool:
        """Whether the running block is one that the plan reduces, on a host with patches."""
        call = self._calls.current
        return bool(call and call.site and call.site.level in call.levels)

    def begin_call(self, unet: Module, args: Args, kwargs: Kwargs) -> None:
        """The UNet is about to run. A hook calls this, and a caller that has attached the session in this call."""
        call, outer = self._calls.begin(unet)
        self.has_run = True
        names = self.host.arguments
        latent, timestep = argument(args, kwargs, 0, names.latent), argument(args, kwargs, 1, names.timestep)
        refuse_checkpoints(self.host, args, kwargs)
        if unet is not self.host.unet:
            remove_forwards(unet)  # a replica's would run the module that it is a copy of
        time = cache(lambda: self._time(timestep))
        if not outer:
            waits = isinstance(timestep, Tensor) and timestep.device.type != "cpu"
            self._count_step(unet, time, waits=waits)
        rows = self._rows_of(int(latent.shape[0]), kwargs, outer)
        plan = self._plan_call(latent)
        if not outer:
            self.plan = plan
            self.record.note(plan.note if self.host.network == "UNet" else None)  # a ControlNet does what the UNet does
            call.has_controlnet = has_controlnet(kwargs, self.controls)
        self._attachment.add(plan)
        progress = self._progress(time)
        planned = () if outer else tuple(part for part, each in plan.parts.items() if each.predicts)
        memory = None
        is_first, has_threads = self._memory.is_first(self._step.number), self._calls.are_of_several_threads
        if planned and self._may_predict(GuardedCall(self.host, unet, args, kwargs, is_first, has_threads), latent):
            memory = self._remember(rows, latent, timestep, args, kwargs)
        elif not outer:
            self._memory.free()
        call.plan, call.step, call.rows, call.planned, call.memory = plan, self._step.number, rows, planned, memory
        call.levels, call.has_run = {level.level: level for level in plan.at(progress)}, not self._attachment.watches

    def _rows_of(self, count: int, kwargs: Kwargs, outer: UNetCall | None) -> tuple[Row, ...]:
        """The rows of a call. One inside a call belongs to the same step and images."""
        if outer:
            return rows_inside(outer.rows, count)
        weights = self.host.sampler.weights() if self._counter else weights_of_parts(self._step.guidance, kwargs)
        return self._step.rows_of_parts(count, weights) if weights else self._step.next_rows(count)

    def _count_step(self, unet: Module, time: Callable[[], float], *, waits: bool) -> None:
        """Count the step of a call, where nobody tells it. To read its ``time``, the program may wait for a GPU."""
        if self._counter:
            self._step = Step(*self._counter.step_of(time, waits=waits), self._step.rows)
            self._step.scale = self._counter.scale
            if self._counter.passes != self._passes:
                self._memory.reset()
                if self._passes:
                    self._idle_notes.end()
                    self.record.reset()
                self._passes = self._counter.passes
                if holder_of(self.host.unet) == "counter":  # since the patch
                    self._facts = replace(self._facts, holder="counter")
            if self._counter.takes_turns:
                self.record.note(Reason.TAKES_TURNS)
        elif unet is not self.host.unet and len({row.seed for row in self._step.rows}) > 1:  # torch.nn.DataParallel
            self.record.note(Reason.SEEDS_SWAP)

    def _plan_call(self, latent: Tensor) -> Plan:
        """The plan for a call with this latent: that of the last call, if the same facts hold."""
        known = self._facts
        if self._counter:
            counter = self._counter
            known = replace(known, course=known.course or counter.course, is_asked=known.is_asked or counter.is_asked)
        if known.weights and len(known.weights) != self._step.total:
            known = replace(known, course=None)
        size, steps = TokenGrid.of(latent.shape), self._step.total
        is_video = known.is_video or latent.dim() != 4
        facts = replace(known, size=size, steps=steps, is_video=is_video)
        return self.plan if facts == self.plan.facts else make_plan(self.settings, self.host, facts)

    def _remember(self, rows: Sequence[Row], latent: Tensor, timestep: Any, args: Args, kwargs: Kwargs) -> CallMemory:
        """The memory of a call's place in the step, which decides what of it is predicted."""
        plan, step, memory = self.plan, self._step, self._memory
        own = memory.next(step.number)
        conditions, others = conditions_of(argument(args, kwargs, 2, self.host.arguments.context), kwargs)
        others += [[row.seed for row in rows], memory.adapters.state(self.host.unet)]
        others += [self.host.sampler.controls(), self.controls]
        gaps = memory.gaps(plan.parts, plan.facts.weights)
        anew = own.begin_call(step, rows, latent, timestep, conditions, others, plan.parts, gaps)
        self.record.note_memory(memory.least_tolerances, anew)
        if memory.has_too_many:
            self.record.note(Reason.MOST_CALLS(MOST_CALLS))
        if memory.has_nan:
            self.record.note(Reason.IS_NAN)
        return own

    def _may_predict(self, asked: GuardedCall, latent: Tensor) -> bool:
        """Whether anything may be remembered and predicted in this call; with a note where not."""
        why = why_not_predicted(asked)
        if not why and self.plan.deep.predicts:
            why = self._memory.why_no_room(self.host, latent)
        self.record.note(why and Reason.UNPREDICTED(why))
        return why is None

    def _time(self, timestep: Any) -> float:
        """The timestep of a call: that of its first row."""
        times = timesteps_of(timestep)
        if len(set(times)) > 1:
            self.record.note(Reason.SEVERAL_TIMES)
        return times[0]

    def _progress(self, time: Callable[[], float]) -> float:
        """How much of the pass is done, from 0: by its steps, or by the noise if their number is unknown."""
        if self.settings.window == "steps" and self._step.total:
            return self._step.number / self._step.total
        done = self.host.sampler.progress(time())
        if not 0 <= done <= 1 and (self.plan.start, self.plan.end) != (0, 1):
            self.record.note(Reason.UNTRAINED_TIMES)
        return done

    def _stop_reducing(self, error: Exception) -> None:
        """Let the rest of the call run without reduction."""
        call = self._calls.current
        if call:
            call.stop()
        if self._report_error:
            self._report_error(error)

    def _note_run(self, *_: Any) -> None:
        """The first transformer, which is never predicted, runs: EasyCache of ComfyUI acts inside the UNet's call."""
        if call := self._calls.current:
            call.has_run = True
            if call.memory and self.controlnets:
                call.memory.begin_layers([net.has_run for net in self.controlnets])

    def _end_call(self, unet: Module, args: Args, output: Any) -> None:
        call = self._calls.end()
        for net in self.controlnets:
            net.has_run = False
        if output is None:  # torch gives none after an Exception
            self._memory.reset()
        elif call:
            if call.has_run or "whole" in call.predicted:  # else another cache has answered
                self._count(call, output)
            if self._counter and not self._calls.current:
                self._idle_notes.add(self.plan, call.step, planned=bool(call.levels or call.planned))

    def _count(self, call: UNetCall, output: Any) -> None:
        """A call has ended in which the model's own code has run, or was predicted by us."""
        self.record.called_in.add(call.step)
        if "whole" in call.predicted and call.has_controlnet:
            self.record.note(Reason.CONTROLNETS_TOO)
        ran = self.record.ran_call(call.step, call.planned, call.predicted)
        if call.memory and ran:
            call.memory.end_call(output, ran)
        if call.levels and not call.reduced and not self.record.noted:
            self.record.note(Reason.CALL_NOT_REDUCED(call.why_not or Reason.BYPASSED))
