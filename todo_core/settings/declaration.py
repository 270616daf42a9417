"""Every setting, declared once. Panel, infotext, API, axes and docs all read this declaration."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import SettingsError, unknown_name
from ..reduction.downsampling import NEAREST, RESAMPLES
from .setting import Kind, Setting

METHODS = ("downsample", "similarity", "cluster")
INFOTEXT_PREFIX = "ToDo"


def acts(settings: Settings) -> bool:
    """Whether anything is reduced."""
    return settings.method != "none"


def uses(*methods: str) -> Callable[[Settings], bool]:
    """Whether one of these methods is in use."""
    return lambda settings: bool(settings.methods & set(methods))


def can_rotate(settings: Settings) -> bool:
    """Whether the resampling keeps one token of each cell, whose position may rotate."""
    return "downsample" in settings.methods and settings.resample in NEAREST


def whole_module(settings: Settings) -> bool:
    """Whether the whole input of modules is reduced."""
    return settings.target == "all" and acts(settings)


def _setting(default: Any, kind: Kind, label: str, help: str, **limits: Any) -> Any:
    return field(default=default, metadata={"setting": Setting(default, kind, label, help, **limits)})


@dataclass(frozen=True, init=False)
class Settings:
    """What the user wants. Immutable, validated at construction, independent of any model.

    Keywords only; each field is described by ``SETTINGS[name]``.
    Raises SettingsError on an unknown name, a wrong type, NaN, or a value out of range.
    """

    method: str = _setting(
        "downsample",
        "choice",
        "Method",
        "downsample: ToDo. similarity: ToMe. cluster: averages groups of tokens. none: off.",
        choices=(*METHODS, "none"),
    )
    target: str = _setting(
        "keys/values",
        "choice",
        "Target",
        "keys/values: every query stays. all: the module's whole input is reduced.",
        choices=("keys/values", "all"),
        used=acts,
    )
    factor_1: int | str = _setting(
        "auto",
        "factor",
        "Factor, level 1",
        "Divides each side of the highest-resolution token grid. auto: chosen by the image size.",
        minimum=1,
        maximum=8,
        used=uses("downsample"),
    )
    factor_2: int | str = _setting(
        "auto",
        "factor",
        "Factor, level 2",
        "The same for level 2, at half that resolution. 1: no reduction.",
        minimum=1,
        maximum=8,
        used=uses("downsample"),
    )
    ratio_1: float = _setting(
        0.5,
        "number",
        "Ratio, level 1",
        "Share of the tokens that similarity or cluster removes at the highest resolution.",
        minimum=0,
        maximum=0.99,
        step=0.01,
        used=uses("similarity", "cluster"),
    )
    ratio_2: float = _setting(
        0.0,
        "number",
        "Ratio, level 2",
        "The same for level 2, at half that resolution. 0: no reduction.",
        minimum=0,
        maximum=0.99,
        step=0.01,
        used=uses("similarity", "cluster"),
    )
    resample: str = _setting(
        "nearest-exact",
        "choice",
        "Resampling",
        "nearest, nearest-exact: one token per cell. max: largest value. Others: weighted mean.",
        choices=RESAMPLES,
        used=uses("downsample"),
    )
    phase: str = _setting(
        "rotate",
        "choice",
        "Kept position",
        "rotate: another token of each cell at each step and block. fixed: always the same.",
        choices=("rotate", "fixed"),
        used=can_rotate,
    )
    start: float = _setting(
        0.0,
        "number",
        "Start",
        "Where in the pass the reduction begins. 0: the first step.",
        minimum=0,
        maximum=1,
        step=0.05,
        used=acts,
    )
    end: float = _setting(
        1.0,
        "number",
        "End",
        "Where in the pass the reduction ends. 0.7: full attention in the last 30 %.",
        minimum=0,
        maximum=1,
        step=0.05,
        used=acts,
    )
    window: str = _setting(
        "steps",
        "choice",
        "Start/end unit",
        "steps: share of the pass's steps. noise: 1 - timestep / 1000.",
        choices=("steps", "noise"),
        used=acts,
    )
    afterwards: str = _setting(
        "none",
        "choice",
        "Afterwards",
        "The method that reduces after the end.",
        choices=("none", *METHODS),
        used=acts,
    )
    passes: str = _setting(
        "hires",
        "choice",
        "txt2img passes",
        "The pass to reduce: the hires pass, the first pass, or both.",
        choices=("hires", "first", "all"),
        used=acts,
    )
    sx: int = _setting(
        2,
        "integer",
        "Cell width",
        "similarity keeps one destination token in each cell. Width of a cell, in tokens.",
        minimum=1,
        maximum=16,
        used=uses("similarity"),
    )
    sy: int = _setting(
        2,
        "integer",
        "Cell height",
        "Height of a cell, in tokens.",
        minimum=1,
        maximum=16,
        used=uses("similarity"),
    )
    random: bool = _setting(
        True,
        "flag",
        "Random destinations",
        "On: drawn from the image's seed and the step. Off: each cell's upper left token.",
        used=uses("similarity"),
    )
    seed: int | None = _setting(
        None,
        "seed",
        "Destination seed",
        "One seed for all images. Empty: each image's own seed.",
        minimum=0,
        used=lambda s: "similarity" in s.methods and s.random,
    )
    attn: bool = _setting(
        True,
        "flag",
        "Reduce self-attention",
        "Only for target all. Self-attention is the costliest part.",
        used=whole_module,
    )
    crossattn: bool = _setting(
        False,
        "flag",
        "Reduce cross-attention",
        "Only for target all. Reduces the queries to the prompt.",
        used=whole_module,
    )
    mlp: bool = _setting(
        False,
        "flag",
        "Reduce feed-forward",
        "Only for target all. Reduces the tokens of these layers.",
        used=whole_module,
    )

    reach: int = _setting(
        0,
        "integer",
        "Reach",
        "Search distance in cells. 0: the whole image. 1 or 2: many times faster at large sizes.",
        minimum=0,
        maximum=16,
        used=uses("similarity"),
    )

    def __init__(self, /, **values: Any) -> None:
        unknown = [name for name in values if name not in SETTINGS]
        if unknown:
            raise unknown_name(unknown[0], values[unknown[0]], SETTINGS)
        for name, declared in SETTINGS.items():
            object.__setattr__(self, name, declared.check(values.get(name, declared.default)))
        self._check_together()

    def _check_together(self) -> None:
        if not self.start < self.end:
            raise SettingsError("start", self.start, f"a value below the end, {self.end:g}")
        cap = 1 - 1 / (self.sx * self.sy)
        for name in ("ratio_1", "ratio_2"):
            if "similarity" in self.methods and getattr(self, name) > cap:
                allowed = f"at most {cap:g}: one token of each {self.sx} x {self.sy} cell stays"
                raise SettingsError(name, getattr(self, name), allowed)

    @property
    def methods(self) -> frozenset[str]:
        """The methods in use: ``method`` and ``afterwards``, without none."""
        return frozenset((self.method, self.afterwards) if self.method != "none" else ()) - {"none"}

    @property
    def rotates(self) -> bool:
        """Whether downsample keeps one token of each cell, at a position that changes."""
        return self.phase == "rotate" and self.resample in NEAREST

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the settings that have an effect, given the others."""
        return tuple(name for name, declared in SETTINGS.items() if declared.used(self))

    def includes(self, name: str) -> bool:
        """Whether ``passes`` names the pass ``first`` or ``hires``."""
        return self.passes in (name, "all")

    def to_dict(self) -> dict[str, Any]:
        """All values by name; JSON types only."""
        return dataclasses.asdict(self)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Settings:
        """Build from values that may be text, as those of a panel, an axis or a JSON request."""
        return cls._read(values, Setting.parse)

    @classmethod
    def parse_older(cls, values: Mapping[str, Any]) -> Settings:
        """As ``parse``, for stored values: fractional factors of older versions are rounded."""
        return cls._read(values, Setting.parse_older)

    @classmethod
    def _read(cls, values: Mapping[str, Any], read: Callable[[Setting, Any], Any]) -> Settings:
        return cls(**{name: read(SETTINGS[name], v) if name in SETTINGS else v for name, v in values.items()})

    def to_infotext(self, *, without: frozenset[str] = frozenset()) -> dict[str, str]:
        """Infotext keys and values: the method, and all settings that have an effect and are not at their default."""
        names = [name for name in self.used if name not in without and getattr(self, name) != SETTINGS[name].default]
        chosen = dict.fromkeys(["method", *names])
        return {SETTINGS[name].infotext_key: SETTINGS[name].format(getattr(self, name)) for name in chosen}

    @classmethod
    def from_infotext(cls, infotext: Mapping[str, Any]) -> Settings | None:
        """Read the keys that ``to_infotext`` writes; None if the image was not reduced by this extension."""
        if INFOTEXT_PREFIX not in infotext:
            return None
        present = {s.name: infotext[s.infotext_key] for s in SETTINGS.values() if s.infotext_key in infotext}
        return cls.parse_older(present)


def _infotext_key(name: str) -> str:
    return INFOTEXT_PREFIX if name == "method" else f"{INFOTEXT_PREFIX} {name.replace('_', ' ')}"


def _declared() -> dict[str, Setting]:
    fields = dataclasses.fields(Settings)
    named = ((f.name, f.metadata["setting"]) for f in fields)
    return {name: dataclasses.replace(s, name=name, infotext_key=_infotext_key(name)) for name, s in named}


SETTINGS: dict[str, Setting] = _declared()
"""Every setting by name, in the order of the panel and of the API's positional list."""

Settings.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=s.default) for n, s in SETTINGS.items()]
)
