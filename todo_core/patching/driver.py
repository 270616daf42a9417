"""One pass on one model: its sessions, their steps, errors, and the line that tells what ran.

Every program that makes pictures uses it: the WebUIs for a pass, ComfyUI for a sampling. They tell facts alone: the
model and its ControlNets, the number of each step, the seeds of its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..course import Course
from ..errors import UnsupportedModelError
from ..hosts import Host, find_controlnet
from ..reason import Because, Reason, Why
from ..settings import Settings
from .facts import Pass
from .hooks.deep_hooks import holder_of
from .hooks.module_calls import guarded
from .plan import Plan
from .record import Record
from .session import Session
from .steps import Row
from .what_ran import Ran, as_infotext, in_words, less_work, nothing_to_reduce, why_less, work_saved

log = logging.getLogger("todo_core")


class Driver:
    """The sessions of a pass: of its UNet and of the ControlNets that run inside it.

    ``name`` is the pass in words, as "the hires pass". An error of ours costs nobody the image: the rest of the pass
    runs without reduction, and ``status`` tells it.
    """

    def __init__(self, name: str, settings: Settings) -> None:
        self.name, self.record = name, Record()
        self.error: Exception | None = None
        self.interrupted = False
        self.settings = settings
        self.controls: Sequence[str] = ()  # which ControlNets and the like act in the step that is about to begin
        self._sessions: list[Session] = []  # of the UNet, then of its ControlNets
        self._has_changed_model = False
        self._begun: set[int] = set()  # steps
        self._begun_inside: set[int] = set()  # the window
        self._step = -1
        self._called = 0  # how often the sampler has called the model
        self.course: Course | None = None  # what it has told of the pass, as long as it calls so
        self._disagrees = False  # it has called otherwise

    @property
    def host(self) -> Host | None:
        """The model of the last step; None before the first one."""
        return self._sessions[0].host if self._sessions else None

    @property
    def plan(self) -> Plan | None:
        """The plan of the UNet's last call."""
        return self._sessions[0].plan if self._sessions else None

    @property
    def begun(self) -> int:
        """How many steps have begun."""
        return len(self._begun)

    def attempt(self, tell: Callable[..., None], *call: Any) -> None:
        """``tell`` the driver that the model is about to be called. An error of ours ends the reduction."""
        if not self.error:
            guarded(self.fail, tell, *call)

    def use_model(self, host: Host, controlnets: Iterable[Any], facts: Pass) -> None:
        """The first step is about to begin, or one on another model than the last."""
        self.remove()
        self._step, self._has_changed_model = -1, bool(self._sessions)
        facts = replace(facts, holder=facts.holder or holder_of(host.unet))
        if self._disagrees:  # on the model before
            facts = replace(facts, course=None, disagrees=True)
        self.course = facts.course
        found = (find_controlnet(module) for module in controlnets)
        hosts = [host, *(replace(net, trained_side=host.trained_side) for net in found if net)]
        self._sessions = [Session(each, self.settings, facts, record=self.record, on_error=self.fail) for each in hosts]
        self._sessions[0].controlnets = self._sessions[1:]

    def number_of(self, time: float, counted: int) -> int:
        """The step of the next call: by the sampler's answer if the call agrees, else as ``counted`` by the program."""
        course, call = self.course, self._called
        return course.steps[call] if course and course.agrees(call, time) else counted

    def begin_step(
        self,
        number: int,
        total: int | None,
        rows: Sequence[Row],
        guidance: Sequence[float] | None = None,
        time: float | None = None,
    ) -> bool:
        """The UNet is about to run for step ``number``, from 0, of ``total``; returns whether the hooks are on it.

        Samplers of second order may begin a step twice. ``rows`` and ``guidance``: see `Session.begin_step`. ``time``
        is what the sampler has called the model with, as in `Course.times`.
        """
        if self.course and time is not None and not self.course.agrees(self._called, time):
            self.course, self._disagrees = None, True
            for session in self._sessions:
                session.disagree()
        scale = self.course.scales[self._called] if self.course and time is not None else None
        self._called += 1
        if number != self._step:
            self._step = number
            self._begun.add(number)
            for session in self._sessions:
                session.begin_step(number, total, rows, guidance)
            self._sessions[0].controls = self.controls
        self._sessions[0].tell(scale)
        acts = self._sessions[0].acts_in_step()
        if acts:
            self._begun_inside.add(number)
        for session in self._sessions:
            if acts != session.is_attached:
                session.attach() if acts else session.detach()
        return acts

    def begin_call(self, unet: Any, args: Any, kwargs: Any) -> None:
        """The UNet is running already, so its own hook has come too late for this call."""
        self._sessions[0].begin_call(unet, args, kwargs)

    @property
    def reduces_this_block(self) -> bool:
        """Whether the running block is one that the plan reduces, on a host with patches."""
        return self._sessions[0].reduces_this_block

    def end_step(self) -> None:
        """The UNet has run: take the hooks off until the next step."""
        for session in self._sessions:
            session.detach()

    def remove(self) -> None:
        """Take everything off, and free what is remembered. Can be repeated."""
        for session in self._sessions:
            session.remove()

    def fail(self, error: Exception) -> None:
        """Leave the rest of the pass alone, and keep the reason."""
        self.error = error
        self.remove()
        is_expected = isinstance(error, UnsupportedModelError)
        line = str(failed(self.name, error))
        log.log(logging.WARNING if is_expected else logging.ERROR, line, exc_info=None if is_expected else error)

    def status(self, steps: int, unit: str = "steps") -> Because:
        """What happened in a pass of so many steps or model calls, in one line."""
        if self.error:
            return failed(self.name, self.error)
        if self.plan and not self.plan.reduces and not self.record.acted:
            return Ran.FOUND(nothing_to_reduce(self.plan))
        return (Ran.REDUCED if self.record.acted else Ran.NOTHING)(self.name, self.in_words(steps, unit))

    def in_words(self, steps: int, unit: str = "steps") -> tuple[Why, ...]:
        """What was saved in so many steps or calls, what was reduced for it, and why not more; or why nothing was."""
        steps = max(steps, self.begun)
        skipped = self._skipped + (0 if self.interrupted else steps - self.begun)
        cause = Reason.CACHED(skipped, steps, unit) if skipped else None
        ran = in_words(self.record, steps, unit, skipped) if self.record.acted else []
        return (*self._less_work(steps - skipped), *ran, *self.why_less(steps, cause))

    def _less_work(self, steps: int) -> list[Because]:
        """What was saved in steps with one model."""
        if not self.record.acted or not self.plan or not self.host or self._has_changed_model:
            return []
        saved = guarded(_note_no_count, work_saved, self.record, self.plan, self.host, steps)
        return [] if saved is None else [less_work(saved)]

    def why_less(self, steps: int, cause: Why | None = None) -> list[Why]:
        """Why nothing was reduced in a pass of so many steps, or what else was not; ``cause`` is one that we know."""
        plan = None if self.interrupted and self.record.acted else self.plan
        reasons = why_less(replace(self.record, cause=cause), plan, steps, len(self._begun_inside))
        if self.interrupted:
            return [*reasons, Reason.INTERRUPTED] if self.record.acted else [Reason.IT_WAS_INTERRUPTED]
        return reasons

    def as_infotext(self) -> dict[str, str]:
        """The settings that had an effect so far, as an infotext has them; nothing where nothing was reduced."""
        return as_infotext(self.record, self.plan, self.record.counts(self.begun, self._skipped))

    @property
    def _skipped(self) -> int:
        """The steps inside the window in which another cache, such as EasyCache, has answered for the model."""
        not_called = self._begun_inside - self.record.called_in
        return len(not_called - {self._step} if self.interrupted else not_called)


def _note_no_count(error: Exception) -> None:
    """Layers that nobody has counted yet must not cost the line, nor in ComfyUI the image."""
    log.warning("ToDo cannot count the work that it has saved", exc_info=error)


def failed(name: str, error: Exception) -> Because:
    """The line of a pass with an error of ours, or with a model that cannot be reduced."""
    if isinstance(error, UnsupportedModelError):
        return Ran.CANNOT(error.model_name, error.reason)
    return Ran.STOPPED(name, str(error))
