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
from ..hosts.conditions import adapters_of, conditions_of, has_controlnet, row_weights
from ..settings import Settings
from ..token_grid import TokenGrid
from .hooks.deep_hooks import DeepHooks, WholeHooks, holder_of
from .hooks.keys_hooks import KeysHooks, PatchedKeysHooks, SiteHooks, keys_patch
from .hooks.module_calls import Args, Hook, Kwargs, read, remove_forwards
from .hooks.module_hooks import ModuleHooks
from .hooks.running_calls import RunningCalls, UNetCall
from .plan import Pass, Plan, make_plan
from .record import IdleNotes, Record
from .space.level_plan import LEVELS
from .steps import Step, StepCounter, seeds_inside, timesteps_of
from .time.memory import Memory

CHECKPOINTED = (
    "its blocks are checkpointed, and the backward pass would compute them without the reduction. "
    "Switch gradient checkpointing off, or use torch.no_grad()"
)
_MANY = 1000  # steps: as many as any pass has


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
        self._told = facts or Pass(TokenGrid(side, side), holder=holder_of(host.unet))
        self.plan = self._first_plan = make_plan(settings, host, self._told)
        self._counter: StepCounter | None = StepCounter(host)
        self._passes = 0  # that the counter has seen begin
        self._idle_notes = IdleNotes(self.record)
        self._step = Step(seeds=(settings.seed or 0,))
        self._report_error = on_error
        self._memory = Memory()
        self._names = host.arguments.latent, host.arguments.timestep
        self._calls = RunningCalls(host, settings, self.record, self._stop_reducing if on_error else None)
        reduces_keys = settings.target == "keys/values"
        self._patch_keys = host.patch_keys if reduces_keys else None
        kind = PatchedKeysHooks if self._patch_keys else KeysHooks if reduces_keys else ModuleHooks
        self._sites: list[SiteHooks] = [kind(site, self._calls) for site in host.sites if site.level in LEVELS]
        self._predictors = self._hooks_that_predict()
        self._watches = False  # whether the model's own code runs
        self._compiled, self._looks = False, 2  # how often to look yet
        self._levels: set[int] = set()  # whose blocks have hooks
        self._handles: list[Handle] = []

    def __repr__(self) -> str:
        state = "attached to" if self.is_attached else "not attached to"
        return f"<Session {state} {type(self.host.unet).__name__}; {self.plan}; {self.record}>".replace("\n", "; ")

    def _hooks_that_predict(self) -> list[DeepHooks]:
        """Those that the pass needs, or may need where it is not known before its first call."""
        told, is_known = self._told, self._told.steps is not None
        facts = replace(told, steps=told.steps or _MANY)
        noise = {told.adds_noise} if is_known else {told.adds_noise, False}  # the scheduler may tell that there is none
        plans = [make_plan(self.settings, self.host, replace(facts, adds_noise=each)).deep for each in noise]
        whole = [deep.is_whole for deep in plans if deep.predicts]
        hooks: list[DeepHooks] = [WholeHooks(self.host.unet, self._calls)] if any(whole) else []
        if False in whole or (True in whole and not is_known and self.settings.predict == "whole"):
            hooks += [DeepHooks(transformer, self._calls) for transformer in self.host.deep_transformers]
        return hooks

    def attach(self) -> Session:
        """Put the hooks on the model, and on the blocks that the plan reduces; a call may add some."""
        self.detach()
        unet, on_error = self.host.unet, self._calls.on_error
        self._handles += [Hook(self.begin_call, on_error).before(unet), Hook(self._end_call).after(unet, always=True)]
        if self._patch_keys:
            hooks_of = {hooks.site: hooks for hooks in self._sites}
            self._handles.append(self._patch_keys(keys_patch(hooks_of, self._calls)))
        compiled = self._is_compiled()  # such code cannot get hooks while it runs
        self._add_levels(LEVELS if compiled else [level.level for level in self.plan.reduced])
        for predictor in self._predictors:
            self._handles += predictor.attach()
        self._watches = bool(self.host.sites) and not compiled
        if self._watches:
            self._handles.append(Hook(self._note_run).before(self.host.sites[0].transformer))
        if compiled:
            torch.compiler.reset()
        return self

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
            self._handles.append(Hook(self._read_grid, self._calls.on_error).before(transformer))
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
        self._calls.clear()

    def note_conflicts(self) -> None:
        """Note the layers that the plan reduces and that must not be reduced at the moment."""
        grids = {level.level: level.grid for level in self.plan.reduced}
        for hooks in self._sites:
            if hooks.site.level in grids:
                hooks.note_conflict(grids[hooks.site.level])

    def begin_step(self, number: int, total: int, seeds: Sequence[int], guidance: float | None = None) -> None:
        """The next UNet calls belong to step ``number``, from 0, of ``total``.

        ``seeds`` has the seed of each row's image, in the order of the rows in these calls. ``guidance`` is the scale
        of classifier-free guidance, if it is known.
        """
        fixed = self.settings.seed
        self._counter = None
        self._memory.begin_step(number)
        self._step = Step(number, total, tuple(seeds) if fixed is None else (fixed,) * len(seeds), guidance)
        if not self._is_planned(Plan.predicts_at):
            self._memory.free()

    def acts_in_step(self) -> bool:
        """Whether the step of ``begin_step`` is reduced; True too where that depends on the timestep of its calls."""
        return self._is_planned(Plan.at) or self._is_planned(Plan.predicts_at)

    def _is_planned(self, question: Callable[[Plan, float], Any]) -> bool:
        """What a plan says of the step of ``begin_step``; of ComfyUI's areas, calls of one step have several sizes."""
        progress, plans = self._progress(lambda: math.nan), (self._first_plan, self.plan)
        return self.settings.window == "noise" or any(question(plan, progress) for plan in plans)

    @property
    def reduces_this_block(self) -> bool:
        """Whether the running block is one that the plan reduces, on a host with patches."""
        call = self._calls.current
        return bool(call and call.site and call.site.level in call.levels)

    def begin_call(self, unet: Module, args: Args, kwargs: Kwargs) -> None:
        """The UNet is about to run. A hook calls this, and a caller that has attached the session in this call."""
        call, outer = self._calls.begin(unet)
        latent, timestep = (read(args, kwargs, i, name) for i, name in enumerate(self._names))
        # the backward pass would compute checkpointed blocks again, and no session would reduce them then
        if torch.is_grad_enabled() and self.host.is_checkpointed() and self._asks_for_gradients(args, kwargs):
            raise UnsupportedModelError(self.host.unet, CHECKPOINTED)
        time = cache(lambda: self._time(timestep))
        if not outer:
            waits = isinstance(timestep, Tensor) and timestep.device.type != "cpu"
            self._follow_step(unet, time, waits=waits)
        rows = int(latent.shape[0])  # a call inside a call belongs to the same step and images
        call.seeds = seeds_inside(outer.seeds, rows) if outer else self._step.next_seeds(rows)
        plan = self._plan_call(latent)
        if not outer:
            self.plan = plan
            self.record.note(plan.deep.note)
            if plan.deep.is_whole and plan.deep.predicts and has_controlnet(kwargs):
                self.record.note("a ControlNet runs in predicted steps too")
        self._add_levels(level.level for level in plan.reduced)
        progress = self._progress(time)
        call.step, call.levels = self._step.number, {level.level: level for level in plan.at(progress)}
        call.may_predict, call.has_run = plan.predicts_at(progress) and not outer, not self._watches
        if call.may_predict and self._may_predict(unet, latent, args, kwargs):
            self._remember(call, latent, timestep, args, kwargs)
        elif not outer:
            self._memory.free()

    def _follow_step(self, unet: Module, time: Callable[[], float], *, waits: bool) -> None:
        """Count the step of a call, where nobody tells it. To read its ``time``, the program may wait for a GPU."""
        if self._counter:
            self._step = Step(*self._counter.step_of(time, waits=waits), self._step.seeds, self.host.sampler.guidance())
            if self._counter.passes != self._passes:
                self._memory.reset()
                if self._passes:
                    self._idle_notes.end()
                    self.record.reset()
                self._passes = self._counter.passes
            if self._counter.takes_turns:
                self.record.note("several generations take turns on this model: their steps are counted as one's")
        elif unet is not self.host.unet and len(set(self._step.seeds)) > 1:  # torch.nn.DataParallel
            self.record.note("replicas of this model run side by side: images may swap their seeds")

    def _plan_call(self, latent: Tensor) -> Plan:
        """The plan for a call with this latent: that of the last call, if the same facts hold."""
        adds_noise = self._told.adds_noise
        if adds_noise is None and self._counter is not None:
            adds_noise = self.host.sampler.adds_noise()
        size, steps, is_video = TokenGrid.of(latent.shape), self._step.total, latent.dim() != 4
        facts = replace(self._told, size=size, steps=steps, adds_noise=adds_noise, is_video=is_video)
        return self.plan if facts == self.plan.facts else make_plan(self.settings, self.host, facts)

    def _remember(self, call: UNetCall, latent: Tensor, timestep: Any, args: Args, kwargs: Kwargs) -> None:
        """Give the call the memory of its place in the step, which decides whether it is predicted."""
        deep, guidance = self.plan.deep, self._step.guidance
        call.memory, call.is_whole = self._memory.next(call.step), deep.is_whole
        call.memory.weights = row_weights(guidance, kwargs, call.seeds, negative_first=self.host.negative_first)
        context = read(args, kwargs, 2, self.host.arguments.context)
        conditions, others = conditions_of(context, kwargs, deep.is_whole)
        first: Any = self.host.sites[0].block
        others.append(adapters_of(first.attn1.to_q))
        gap = self._memory.gap(deep, self._step.total)
        call.memory.begin_call(self._step, deep, latent, timestep, conditions, (call.seeds, others), gap)
        self.record.least_error = self._memory.least_error
        if self._memory.has_nan:
            self.record.note("the model's output is not a number (NaN)")

    def _may_predict(self, unet: Module, latent: Tensor, args: Args, kwargs: Kwargs) -> bool:
        """Whether anything may be remembered and predicted in this call; with a note where not.

        The last step is computed, and nobody continues it.
        """
        if self._step.number + 1 == self._step.total:
            return False
        if unet is not self.host.unet:
            remove_forwards(unet)  # a replica's would run the module that it is a copy of
            self.record.note("replicas of this model run side by side: nothing is predicted")
            return False
        if self._calls.are_of_several_threads:
            self.record.note("several threads run this model at a time: nothing is predicted")
            return False
        if self._asks_for_gradients(args, kwargs):
            self.record.note("a call asks for gradients: nothing is predicted")
            return False
        if not self.plan.deep.is_whole and (why := self._memory.why_no_room(self.host, latent)):
            self.record.note(f"{why}: nothing is predicted")
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
        return 1 - time() / 1000

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
            call.grid = TokenGrid.of(read(args, kwargs, 0, self.host.arguments.hidden).shape)

    def _note_run(self, *_: Any) -> None:
        """The first transformer, which is never predicted, runs: EasyCache of ComfyUI acts inside the UNet's call."""
        if call := self._calls.current:
            call.has_run = True

    def _end_call(self, unet: Module, args: Args, output: Any) -> None:
        call = self._calls.end()
        if output is None:  # torch gives none after an Exception
            self._memory.reset()
        elif call:
            if call.has_run or call.is_predicted:  # else another cache has answered
                self._count(call, output)
            if self._counter and not self._calls.current:
                planned = bool(call.levels) or call.may_predict
                self._idle_notes.add(self.plan, call.step, self._step.total, planned=planned, reduced=call.reduced)

    def _count(self, call: UNetCall, output: Any) -> None:
        """A call has ended in which the model's own code has run, or was predicted by us."""
        self.record.called_in.add(call.step)
        if call.may_predict:
            self.record.ran_call(call.step, is_predicted=call.is_predicted)
        if call.memory and not call.is_predicted:
            call.memory.end_call(output)
        if call.levels and not call.reduced and not self.record.notes:
            why = call.why_not or "its self-attention was not called. Something replaces, caches or compiles it"
            self.record.note(f"a call that was to be reduced has reduced nothing: {why}")
