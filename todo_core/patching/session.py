"""Plan x model -> hooks: on, armed for one UNet call, off. The forwards only carry out what the plan says.

Hooks sit on module instances and come off by handle; no class and no ``forward`` is replaced, so whatever attention
the host has chosen still runs. Two hooks frame each UNet call: the first arms, the second, which torch runs after an
exception too, disarms. An unarmed hook does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from ..hosts import Host
from ..settings import Settings
from .hooks import Armed, SiteHooks
from .module_calls import Args, Kwargs, guarded, read
from .plan import LEVELS, make_plan
from .record import Record
from .steps import Clock, Step, as_number
from .token_grid import TokenGrid


class Session:
    """The hooks of one plan on one model. ``attach`` puts them on; ``remove`` takes them off and can be repeated.

    Left to itself, a session takes a new timestep for a new step; a host that knows better calls ``begin_step``.
    ``on_error`` gets what goes wrong inside a hook before anything is changed; the call then goes on unreduced.
    Without it the error is raised.
    """

    def __init__(
        self,
        host: Host,
        settings: Settings,
        *,
        size: TokenGrid | None = None,
        record: Record | None = None,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        side = round(host.trained_side)
        self.host, self.settings, self.record = host, settings, record or Record()
        self.plan = make_plan(settings, host, size or TokenGrid(side, side))
        self._armed = Armed()
        self._clock: Clock | None = Clock(host)
        self._step = Step(seeds=(settings.seed or 0,))
        self._on_error = self._failed if on_error else None
        self._report = on_error
        self._handles: list[RemovableHandle] = []
        self._sites = [
            SiteHooks(site, host, settings, self._armed, self.record, self._on_error)
            for site in host.sites
            if site.level in LEVELS
        ]

    def attach(self) -> Session:
        """Put the hooks on the model."""
        self.remove()
        unet = self.host.unet
        self._handles += [
            unet.register_forward_pre_hook(guarded(self._arm, self._on_error), with_kwargs=True),
            unet.register_forward_hook(self._disarm, always_call=True),
        ]
        see_grid = guarded(self._see_grid, self._on_error)
        for transformer in {hooks.site.transformer: None for hooks in self._sites}:
            self._handles.append(transformer.register_forward_pre_hook(see_grid, with_kwargs=True))
        for hooks in self._sites:
            self._handles += hooks.attach()
        return self

    def remove(self) -> None:
        """Take every hook off."""
        while self._handles:
            self._handles.pop().remove()
        self._disarm()

    def begin_step(self, number: int, total: int, seeds: Sequence[int]) -> None:
        """Told by the host: the coming UNet calls are those of step ``number`` of ``total``.

        ``seeds`` has the image's seed for each row, in the order in which the calls will take them.
        """
        fixed = self.settings.seed
        self._clock = None
        self._step = Step(number, total, tuple(seeds) if fixed is None else (fixed,) * len(seeds))

    def acts_in_step(self) -> bool:
        """Whether the step that was told can have any effect; True where only its timestep will tell."""
        return self.settings.window == "noise" or bool(self.plan.at(self._progress(None)))

    def _arm(self, unet: Module, args: Args, kwargs: Kwargs) -> None:
        names = self.host.arguments
        latent, timestep = read(args, kwargs, 0, names.latent), read(args, kwargs, 1, names.timestep)
        size = TokenGrid.of(latent.shape)
        if size != self.plan.size:
            self.plan = make_plan(self.settings, self.host, size)
        if self._clock:
            self._step = Step(*self._clock.read(as_number(timestep)), seeds=self._step.seeds)
        self._armed.step, self._armed.seeds = self._step.number, self._step.take(latent.shape[0])
        self._armed.levels = {level.level: level for level in self.plan.at(self._progress(timestep))}

    def _progress(self, timestep: Any) -> float:
        """How far the pass has come, 0 to 1. Without a known number of steps the noise schedule must tell."""
        if self.settings.window == "steps" and self._step.total:
            return min(self._step.number / self._step.total, 1.0)
        return 1 - as_number(timestep) / 1000

    def _see_grid(self, transformer: Module, args: Args, kwargs: Kwargs) -> None:
        if self._armed.levels:
            self._armed.grid = TokenGrid.of(read(args, kwargs, 0, self.host.arguments.hidden).shape)

    def _failed(self, error: Exception) -> None:
        """The rest of the call goes on unreduced."""
        self._armed.clear()
        if self._report:
            self._report(error)

    def _disarm(self, *_: Any) -> None:
        self._armed.clear()
        for hooks in self._sites:
            hooks.clear()
