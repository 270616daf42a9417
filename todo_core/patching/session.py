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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..errors import UnsupportedModelError
from ..hosts import Handle, Host
from ..hosts.compiled_code import is_compiled
from ..hosts.conditions import conditions_of, has_controlnet, replaces_attention, weights_of_parts
from ..samplers import Scale
from ..settings import Settings
from ..token_grid import TokenGrid
from .hooks.deep_hooks import DeepHooks, WholeHooks, holder_of
from .hooks.keys_hooks import KeysHooks, PatchedKeysHooks, SiteHooks, keys_patch
from .hooks.module_calls import Args, Hook, Kwargs, argument, remove_forwards
from .hooks.module_hooks import ModuleHooks
from .hooks.running_calls import Shared, UNetCall
from .plan import Pass, Plan, make_plan
from .record import UNPREDICTED, Record
from .space.level_plan import LEVELS, Reason
from .steps import Row, Step, StepCounter, rows_inside, timesteps_of
from .time.memory import MOST_CALLS, CallMemory, Memory
from .what_ran import NOT_CALLED, IdleNotes

CHECKPOINTED = (
    "its blocks are checkpointed, and the backward pass would compute them without the reduction. "
    "Switch gradient checkpointing off, or use torch.no_grad()"
)


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
        self.controls: Sequence[bool] = ()  # which ControlNets and the like act in the step, where somebody tells it
        self.controlnets: Sequence[Session] = ()  # that run beside this UNet
        self.has_run = False  # since the last call of the UNet beside it
        self._names = host.arguments.latent, host.arguments.timestep
        self._on_error, modules = self._stop_reducing if on_error else None, self.plan.levels[0].modules
        self._shared = Shared(host, self.record, self._on_error, modules)
        self._calls = self._shared.calls
        self._patch_keys = None if modules else host.patch_keys
        kind = ModuleHooks if modules else PatchedKeysHooks if self._patch_keys else KeysHooks
        self._sites: list[SiteHooks] = [kind(site, self._shared) for site in host.sites if site.level in LEVELS]
        self._deep = host.deep_transformers
        self._predictors = self._hooks_that_predict()
        self._blocked: list[DeepHooks] = []  # by another forward on their modules
        self._watches = False  # whether the model's own code runs
        self._compiled, self._looks = False, 2  # how often to look yet
        self._levels: set[int] = set()  # whose blocks have hooks
        self._handles: list[Handle] = []

    def __repr__(self) -> str:
        state = "attached to" if self.is_attached else "not attached to"
        return f"<Session {state} {type(self.host.unet).__name__}; {self.plan}; {self.record}>".replace("\n", "; ")

    def _hooks_that_predict(self) -> list[DeepHooks]:
        """Those that the pass needs, or may need where it is not known before its first call."""
        plan, hooks = self.plan, list[DeepHooks]()
        if plan.whole.predicts or plan.whole.may_change:
            hooks.append(WholeHooks(self.host.unet, self._shared))
        if plan.deep.predicts or plan.deep.may_change:
            hooks += [DeepHooks(transformer, self._shared) for transformer in self._deep]
        return hooks

    def attach(self) -> Session:
        """Put the hooks on the model, and on the blocks that the plan reduces; a call may add some."""
        self.detach()
        unet = self.host.unet
        self._handles += [
            Hook(self.begin_call, self._on_error).before(unet),
            Hook(self._end_call).after(unet, always=True),
        ]
        if self._patch_keys:
            hooks_of = {hooks.site: hooks for hooks in self._sites}
            self._handles.append(self._patch_keys(keys_patch(hooks_of, self._shared)))
        compiled = self._is_compiled()  # such code cannot get hooks while it runs
        self._add_levels(LEVELS if compiled else [level.level for level in self.plan.reduced])
        self._put_forwards_on(self._predictors)
        self._watches = bool(self.host.sites) and not compiled
        if self._watches:
            self._handles.append(Hook(self._note_run).before(self.host.sites[0].transformer))
        if compiled:
            torch.compiler.reset()
        return self

    def _put_forwards_on(self, predictors: Iterable[DeepHooks]) -> None:
        """Where another forward is in the way, that is noted, and the next call looks again."""
        put = [(predictor, predictor.attach()) for predictor in predictors]
        self._handles += [handle for _, handles in put for handle in handles]
        self._blocked = [predictor for predictor, handles in put if not handles]

    def _is_compiled(self) -> bool:
        """Whether the model has compiled code. Looked up when hooks first go on, and off: a call may compile it."""
        if self._looks:
            self._looks, self._compiled = self._looks - 1, is_compiled(self.host.unet)
        return self._compiled

    def _add_levels(self, levels: Iterable[int]) -> None:
        """Hook the blocks of these levels, once. In SDXL most blocks stand at the one that is seldom reduced."""
        missing = {*levels} - self._levels
        sites = [hooks for hooks in self._sites if hooks.site.level in missing]
        for transformer in {hooks.site.transformer: None for hooks in sites}:
            self._handles.append(Hook(self._read_grid, self._on_error).before(transformer))
        for hooks in sites:
            self._handles += hooks.attach()
        self._levels |= missing

    @property
    def is_attached(self) -> bool:
        """Whether the hooks are on the model."""
        return bool(self._handles)

    def remove(self) -> None:
        """Take every hook off, and free what is remembered of earlier steps."""
        self._looks = 2
        self.detach()
        self._looks = 2
        self._idle_notes.end()
        self._memory.reset()

    def detach(self) -> None:
        """Take every hook off. ``attach`` goes on where the pass was."""
        if self._handles and self._is_compiled():
            torch.compiler.reset()
        while self._handles:
            self._handles.pop().remove()
        self._levels.clear()
        self._blocked.clear()
        self._calls.clear()

    def note_conflicts(self) -> None:
        """Note the layers that the plan reduces and that must not be reduced at the moment."""
        plans = {level.level: level for level in self.plan.reduced}
        for hooks in self._sites:
            if hooks.site.level in plans:
                hooks.note_conflict(plans[hooks.site.level])

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

    def doubt(self, why: Reason) -> None:
        """Believe no more what the sampler has told of the pass, which is why nothing is predicted from now on."""
        self._facts = replace(self._facts, course=None, doubt=why)

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
        latent, timestep = (argument(args, kwargs, i, name) for i, name in enumerate(self._names))
        # the backward pass would compute checkpointed blocks again, and no session would reduce them then
        if torch.is_grad_enabled() and self.host.is_checkpointed() and self._asks_for_gradients(args, kwargs):
            raise UnsupportedModelError(self.host.unet, CHECKPOINTED)
        time = cache(lambda: self._time(timestep))
        if not outer:
            waits = isinstance(timestep, Tensor) and timestep.device.type != "cpu"
            self._count_step(unet, time, waits=waits)
        rows = self._rows_of(int(latent.shape[0]), kwargs, outer)
        plan = self._plan_call(latent)
        if not outer:
            self.plan = plan
            self.record.note(plan.note if self.host.network == "UNet" else None)  # a ControlNet does what the UNet does
            call.has_controlnet = has_controlnet(kwargs)
        self._add_levels(level.level for level in plan.reduced)
        if self._blocked and not self._compiled:
            self._put_forwards_on(self._blocked)
        progress = self._progress(time)
        planned = () if outer else tuple(part for part, each in plan.parts.items() if each.predicts)
        memory = None
        if planned and self._may_predict(unet, latent, args, kwargs):
            memory = self._remember(rows, latent, timestep, args, kwargs)
        elif not outer:
            self._memory.free()
        call.plan, call.step, call.rows, call.planned, call.memory = plan, self._step.number, rows, planned, memory
        call.levels, call.has_run = {level.level: level for level in plan.at(progress)}, not self._watches

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
                self.record.note("several generations take turns on this model: their steps are counted as one's")
        elif unet is not self.host.unet and len({row.seed for row in self._step.rows}) > 1:  # torch.nn.DataParallel
            self.record.note("replicas of this model run side by side: images may swap their seeds")

    def _plan_call(self, latent: Tensor) -> Plan:
        """The plan for a call with this latent: that of the last call, if the same facts hold."""
        known = self._facts
        if self._counter:
            counter = self._counter
            known = replace(known, course=known.course or counter.course, doubt=known.doubt or counter.doubt)
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
        gaps = {part: memory.gap(part, each, step.total, plan.facts.weights) for part, each in plan.parts.items()}
        anew = own.begin_call(step, rows, latent, timestep, conditions, others, plan.parts, gaps)
        self.record.note_memory(memory.least_tolerances, anew)
        if memory.has_too_many:
            self.record.note(f"of a step's calls, the first {MOST_CALLS} are predicted")
        if memory.has_nan:
            self.record.note("the model's output is not a number (NaN)")
        return own

    def _may_predict(self, unet: Module, latent: Tensor, args: Args, kwargs: Kwargs) -> bool:
        """Whether anything may be remembered and predicted in this call; with a note where not.

        The last step is computed, and nobody continues it.
        """
        if self._step.number + 1 == self._step.total:
            return False
        if unet is not self.host.unet:
            remove_forwards(unet)  # a replica's would run the module that it is a copy of
            self.record.note(f"replicas of this model run side by side: {UNPREDICTED}")
            return False
        if self._calls.are_of_several_threads:
            self.record.note(f"several threads run this model at a time: {UNPREDICTED}")
            return False
        if self._asks_for_gradients(args, kwargs):
            self.record.note(f"a call asks for gradients: {UNPREDICTED}")
            return False
        heard = [hook for module in self._deep for hook in module._forward_hooks.values()]
        if not all(isinstance(hook, Hook) for hook in heard):  # as self-attention guidance does in diffusers
            self.record.note(f"something else listens to a layer below level 1: {UNPREDICTED}")
            return False
        # so does self-attention guidance in ComfyUI, to read it after the call; another guidance in later calls alone
        if self._memory.is_first(self._step.number) and replaces_attention(kwargs):
            self.record.note(f"something else replaces a self-attention, and may read it: {UNPREDICTED}")
            return False
        if self.plan.deep.predicts and (why := self._memory.why_no_room(self.host, latent)):
            self.record.note(f"{why}: {UNPREDICTED}")
            return False
        return True

    def _asks_for_gradients(self, args: Args, kwargs: Kwargs) -> bool:
        if not torch.is_grad_enabled():  # before anything else: samplers run without, at every step
            return False
        tensors = (*args, *kwargs.values(), *self.host.unet.parameters())
        return any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in tensors)

    def _time(self, timestep: Any) -> float:
        """The timestep of a call: that of its first row."""
        times = timesteps_of(timestep)
        if len(set(times)) > 1:
            self.record.note("the rows of a call have different timesteps: the step of the first row counts for all")
        return times[0]

    def _progress(self, time: Callable[[], float]) -> float:
        """How much of the pass is done, from 0: by its steps, or by the noise if their number is unknown."""
        if self.settings.window == "steps" and self._step.total:
            return self._step.number / self._step.total
        done = self.host.sampler.progress(time())
        if not 0 <= done <= 1 and (self.plan.start, self.plan.end) != (0, 1):
            self.record.note("its timesteps are not 1,000 trained ones: Start and End cannot follow the noise")
        return done

    def _stop_reducing(self, error: Exception) -> None:
        """Let the rest of the call run without reduction."""
        call = self._calls.current
        if call:
            call.stop()
        if self._report_error:
            self._report_error(error)

    def _read_grid(self, transformer: Module, args: Args, kwargs: Kwargs) -> None:
        call = self._calls.current
        if call and call.levels:
            call.grid = TokenGrid.of(argument(args, kwargs, 0, self.host.arguments.hidden).shape)

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
            self.record.note("ControlNets run in predicted steps too")
        ran = self.record.ran_call(call.step, call.planned, call.predicted)
        if call.memory and ran:
            call.memory.end_call(output, ran)
        if call.levels and not call.reduced and not self.record.notes:
            why = call.why_not or f"{NOT_CALLED}. Something replaces, caches or compiles it"
            self.record.note(f"a call that was to be reduced has reduced nothing: {why}")
