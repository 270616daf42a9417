"""The description of one picture. All values are checked before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from todo_core.errors import SettingsError

from . import AUTOMATIC, SAMPLERS, SCHEDULES, TRAILING

OF_DDIM = (AUTOMATIC, "DDIM", TRAILING)  # it has timesteps of its own


def split_sampler(name: str) -> tuple[str, str]:
    """A sampler and its schedule, which old infotexts name together; "" where the name has none.

    >>> split_sampler("DPM++ 2M Karras"), split_sampler("Euler a")
    (('DPM++ 2M', 'Karras'), ('Euler a', ''))
    """
    for schedule in SCHEDULES:
        if name.endswith(f" {schedule}"):
            return name.removesuffix(f" {schedule}"), schedule
    return name, ""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One picture and its hires pass. Sizes are in pixels; `hires_steps` counts the steps that run.

    A sampler may be named with its schedule, as in old infotexts: "DPM++ 2M Karras". Raises SettingsError, which names
    the field, the value and what is allowed.
    """

    prompt: str
    negative: str = ""
    seed: int = 0
    width: int = 128
    height: int = 128
    steps: int = 20
    guidance: float = 2.5
    sampler: str = "DDIM"
    schedule: str = AUTOMATIC
    hires_scale: float = 2.0
    hires_steps: int = 12
    denoising: float = 0.5

    def __post_init__(self) -> None:
        sampler, schedule = split_sampler(str(self.sampler))
        object.__setattr__(self, "sampler", sampler)
        object.__setattr__(self, "schedule", schedule or self.schedule)
        for name, (allowed, is_valid) in _RULES.items():
            value = getattr(self, name)
            if not is_valid(value):
                raise SettingsError(name, value, allowed)
        if self.sampler == "DDIM" and self.schedule not in OF_DDIM:
            raise SettingsError("schedule", self.schedule, f"with the sampler DDIM {' or '.join(OF_DDIM)}")

    @property
    def resolved(self) -> Request:
        """The same, with the schedule that Automatic means; a schedule of the sampler's own has no other name."""
        return replace(self, schedule=SAMPLERS[self.sampler]) if self.schedule == AUTOMATIC else self

    @property
    def hires_size(self) -> tuple[int, int]:
        """(width, height) of the hires pass in pixels, rounded to multiples of 8."""
        width, height = (8 * round(side * self.hires_scale / 8) for side in (self.width, self.height))
        return width, height

    def check_sizes(self, multiple: int) -> None:
        """Raise SettingsError unless the sides of both passes are multiples of so many pixels."""
        for name, side in (("width", self.width), ("height", self.height)):
            if side % multiple:
                raise SettingsError(name, side, f"a multiple of {multiple} with this model")
        width, height = self.hires_size
        if width % multiple or height % multiple:
            allowed = f"with this model, a scale to multiples of {multiple} pixels; this would make {width} x {height}"
            raise SettingsError("hires_scale", self.hires_scale, allowed)


def _integer(least: int, most: int, step: int = 1) -> tuple[str, Callable[[object], bool]]:
    multiple = f", a multiple of {step}" if step > 1 else ""
    return (
        f"a whole number from {least} to {most}{multiple}",
        lambda value: type(value) is int and least <= value <= most and value % step == 0,
    )


def _number(least: float, most: float) -> tuple[str, Callable[[object], bool]]:
    return (
        f"a number from {least:g} to {most:g}",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most,
    )


_TEXT: tuple[str, Callable[[object], bool]] = "a text", lambda value: isinstance(value, str)
_RULES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "prompt": _TEXT,
    "negative": _TEXT,
    "seed": _integer(0, 2**32 - 1),
    "width": _integer(64, 4096, 8),
    "height": _integer(64, 4096, 8),
    "steps": _integer(1, 1000),
    "guidance": _number(1, 30),
    "sampler": (" or ".join(SAMPLERS), lambda value: value in SAMPLERS),
    "schedule": (" or ".join(SCHEDULES), lambda value: value in SCHEDULES),
    "hires_scale": _number(1, 8),
    "hires_steps": _integer(1, 1000),
    "denoising": _number(0.05, 1),
}
