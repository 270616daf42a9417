"""Every setting and built-in preset, declared once. Panel, infotext, API, axes, docs and editors read them here."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

from ..errors import SettingsError, none_of, unknown_name
from .setting import VERSION_KEY, Factor, Setting, Share, strings_under_fields

# todo_core.reduction has the next two as well: it needs torch, which app.py installs after it has checked its options
NEAREST = ("nearest", "nearest-exact")
Resample = Literal["nearest", "nearest-exact", "bilinear", "bicubic", "area", "max"]
Method = Literal["downsample", "similarity", "cluster"]
METHODS = get_args(Method)


def acts(settings: Settings) -> bool:
    """Whether anything is reduced."""
    return settings.method != "none"


def uses(*methods: str) -> Callable[[Settings], bool]:
    """Whether one of these methods is in use."""
    return lambda settings: bool(settings.methods & set(methods))


def reduces(*methods: str) -> Callable[[Settings], bool]:
    """Whether one of these methods is in use and has a factor or ratio that reduces."""
    return lambda settings: any(map(settings.reduces_by, methods))


def can_rotate(settings: Settings) -> bool:
    """Whether the resampling keeps one token of each cell, whose position may rotate."""
    return settings.reduces_by("downsample") and settings.resample in NEAREST


def has_window(settings: Settings) -> bool:
    """Whether some part of the pass is left alone."""
    return acts(settings) and settings.widest_window != (0, 1)


def ends_early(settings: Settings) -> bool:
    """Whether the reduction ends before the pass does."""
    return acts(settings) and settings.widest_window[1] < 1


def predicts(settings: Settings) -> bool:
    """Whether anything is predicted between steps."""
    return acts(settings) and settings.interval != 1


def decides(settings: Settings) -> bool:
    """Whether the tolerance decides when the model runs, or in which steps tokens are reduced."""
    return acts(settings) and "auto" in (settings.interval, settings.start, settings.end)


def whole_module(settings: Settings) -> bool:
    """Whether the whole input of modules is reduced."""
    return settings.target == "all" and reduces(*METHODS)(settings)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user wants. Immutable, validated at construction, independent of any model.

    Keywords only. A field's annotation is its declaration and the string under it the help: ``SETTINGS`` has both.
    Raises SettingsError on an unknown name, a wrong type, NaN, or a value out of range.

    >>> Settings(factor_1="two")
    Traceback (most recent call last):
    todo_core.errors.SettingsError: factor_1 = 'two' is not possible; allowed: 'auto' or a whole number from 1 to 8
    """

    method: Annotated[Literal[Method, "none"], Setting("Method")] = "downsample"
    """downsample: ToDo. similarity: ToMe."""

    target: Annotated[Literal["keys/values", "all"], Setting("Target", reduces(*METHODS))] = "keys/values"
    """keys/values: every query stays. all: fewer queries."""

    factor_1: Annotated[Factor, Setting("Factor, level 1", uses("downsample"), minimum=1, maximum=8)] = "auto"
    """Keeps one of so many rows and columns at level 1. auto: chosen by the image size."""

    factor_2: Annotated[Factor, Setting("Factor, level 2", uses("downsample"), minimum=1, maximum=8)] = "auto"
    """At half the resolution of level 1. 1: off."""

    ratio_1: Annotated[float, Setting("Ratio, level 1", uses("similarity", "cluster"), maximum=0.99, step=0.01)] = 0.5
    """Share of the tokens that is removed at level 1."""

    ratio_2: Annotated[float, Setting("Ratio, level 2", uses("similarity", "cluster"), maximum=0.99, step=0.01)] = 0.0
    """At half the resolution of level 1. 0: off."""

    resample: Annotated[Resample, Setting("Resampling", reduces("downsample"))] = "nearest-exact"
    """nearest: one token per cell. Others: mean or max."""

    phase: Annotated[Literal["rotate", "fixed"], Setting("Kept token", can_rotate)] = "rotate"
    """Of each cell. rotate: another one in each step."""

    start: Annotated[Share, Setting("Start", reduces(*METHODS), maximum=1, step=0.05)] = "auto"
    """Share of the steps before tokens are reduced. auto: heavy steps keep all."""

    end: Annotated[Share, Setting("End", reduces(*METHODS), maximum=1, step=0.05)] = "auto"
    """Share of the steps after which tokens stay. 0.7: all tokens in the last 30 %."""

    window: Annotated[Literal["steps", "noise"], Setting("Start/end unit", has_window)] = "steps"
    """steps: share of them. noise: 1 - timestep / 1000."""

    afterwards: Annotated[Literal["none", Method], Setting("Method after end", ends_early)] = "none"
    """Reduces the steps after End. none: full attention."""

    passes: Annotated[Literal["hires", "first", "all"], Setting("txt2img passes", acts)] = "hires"
    """The pass to reduce. all: both."""

    sx: Annotated[int, Setting("Cell width", reduces("similarity"), minimum=1, maximum=16)] = 2
    """In tokens. One destination each."""

    sy: Annotated[int, Setting("Cell height", reduces("similarity"), minimum=1, maximum=16)] = 2
    """In tokens."""

    random: Annotated[bool, Setting("Random destinations", reduces("similarity"))] = True
    """On: drawn from the image's seed and the step. Off: each cell's upper left token."""

    seed: Annotated[int | None, Setting("Destination seed", lambda s: s.reduces_by("similarity") and s.random)] = None
    """Empty or -1: each image's own."""

    attn: Annotated[bool, Setting("Reduce self-attention", whole_module)] = True
    """With target all. Self-attention is the costliest part."""

    crossattn: Annotated[bool, Setting("Reduce cross-attention", whole_module)] = False
    """With target all. Reduces the queries to the prompt."""

    mlp: Annotated[bool, Setting("Reduce feed-forward", whole_module)] = False
    """With target all. Reduces the tokens of these layers."""

    interval: Annotated[Factor, Setting("Interval", acts, minimum=1, maximum=8)] = "auto"
    """The predicted part runs in every n-th step. 1: nothing is predicted."""

    predict: Annotated[Literal["auto", "deep", "whole"], Setting("What is predicted", predicts)] = "auto"
    """deep: layers below level 1. auto: both."""

    tolerance: Annotated[float, Setting("Error tolerance", decides, maximum=1, step=0.01)] = 0.08
    """The error that auto allows. More: faster."""

    if not TYPE_CHECKING:  # type checkers and editors have the signature that dataclasses make of the fields

        def __init__(self, /, *unnamed: Any, **values: Any) -> None:
            if unnamed:
                raise SettingsError("settings", unnamed[0], "settings by name, as factor_1=2")
            for name in values:
                if name not in SETTINGS:
                    raise unknown_name(name, values[name], SETTINGS)
            for name, declared in SETTINGS.items():
                object.__setattr__(self, name, declared.check(values.get(name, declared.default)))
            self._check_together()

    def _check_together(self) -> None:
        start, end = self.widest_window
        if not start < end:
            raise SettingsError("start", self.start, f"a value below the end, {end:g}")
        cap = 1 - 1 / (self.sx * self.sy)
        for name in ("ratio_1", "ratio_2"):
            if "similarity" in self.methods and getattr(self, name) > cap:
                allowed = f"at most {cap:g}: one token of each {self.sx} x {self.sy} cell stays"
                raise SettingsError(name, getattr(self, name), allowed)

    @property
    def widest_window(self) -> tuple[float, float]:
        """Start and end of the reduction of tokens, with all steps for auto."""
        return 0.0 if self.start == "auto" else self.start, 1.0 if self.end == "auto" else self.end

    @property
    def methods(self) -> frozenset[str]:
        """The methods in use: ``method``, and ``afterwards`` where the reduction ends early."""
        return frozenset((self.method, self.afterwards if ends_early(self) else "none")) - {"none"}

    def reduces_by(self, method: str) -> bool:
        """Whether ``method`` is in use and has a factor or ratio that reduces."""
        is_off = self.factor_1 == self.factor_2 == 1 if method == "downsample" else self.ratio_1 == self.ratio_2 == 0
        return method in self.methods and not is_off

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
    def preset(cls, name: str) -> Settings:
        """A built-in preset, such as "Fast". Raises SettingsError for another name."""
        return find_preset(name, BUILT_IN)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Settings:
        """Build from values that may be text, as those of a panel, an axis or a JSON request.

        >>> Settings.parse({"factor_1": " 2", "random": "false"}) == Settings(factor_1=2, random=False)
        True
        """
        return cls(**{name: SETTINGS[name].parse(v) if name in SETTINGS else v for name, v in values.items()})

    def to_infotext(self, *, without: frozenset[str] = frozenset()) -> dict[str, str]:
        """Infotext keys and values: the method, and all settings that have an effect and not their default.

        >>> Settings(factor_1=2, end=0.8).to_infotext()
        {'ToDo method': 'downsample', 'ToDo factor 1': '2', 'ToDo end': '0.8'}
        """
        changed = [name for name in self.used if getattr(self, name) != SETTINGS[name].default]
        chosen = [name for name in dict.fromkeys(["method", *changed]) if name not in without]
        return {SETTINGS[name].infotext_key: SETTINGS[name].format(getattr(self, name)) for name in chosen}

    @classmethod
    def from_infotext(cls, infotext: Mapping[str, Any]) -> Settings | None:
        """Read the keys that ``to_infotext`` writes; None if the image was not reduced by this extension.

        Where no token was reduced, there is a version and no method. "auto (2)", with what auto has used, is auto.

        >>> Settings.from_infotext({"ToDo method": "downsample", "ToDo factor 1": "auto (2)"}) == Settings()
        True
        """
        if not infotext.keys() & {SETTINGS["method"].infotext_key, VERSION_KEY}:
            return None
        present = {s.name: infotext[s.infotext_key] for s in SETTINGS.values() if s.infotext_key in infotext}
        return cls.parse({name: str(text).partition(" (")[0] for name, text in present.items()})


def _declared() -> dict[str, Setting]:
    """The settings in the annotations, each with what else its field tells."""
    declared, helps = {}, strings_under_fields(Settings)
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        own = {"name": name, "type": hint.__origin__, "default": getattr(Settings, name), "help": helps.get(name, "")}
        declared[name] = dataclasses.replace(hint.__metadata__[0], **own)
    return declared


SETTINGS: dict[str, Setting] = _declared()
"""Every setting by name, in the order of the panel and of the API's positional list."""

Settings.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [Parameter(name, Parameter.KEYWORD_ONLY, default=s.default, annotation=s.type) for name, s in SETTINGS.items()]
)

DEFAULT, CUSTOM = "Balanced", "custom"  # names of the default settings, and of settings that no preset has
AIMS = {DEFAULT: 40, "Closest": 45, "Fast": 35}  # a preset -> the PSNR that it aims at, in dB, in the mean
SEEN = {45: "very hard to see", 40: "hard to see", 35: "visible side by side", 0: "easy to see"}  # from so many dB on


def seen(psnr: float) -> str:
    """How visible a difference of this PSNR, in dB, is."""
    return next(words for least, words in SEEN.items() if psnr >= least)


def _aims(preset: str) -> str:
    return f"differences are {seen(AIMS[preset])}"


PRESETS: Mapping[str, tuple[Settings, str, str]] = {
    DEFAULT: (Settings(), _aims(DEFAULT), "predicts steps and layers, reduces tokens"),
    "Closest": (Settings(tolerance=0.05), _aims("Closest"), "as Balanced, with a smaller error"),
    "Fast": (Settings(tolerance=0.16), _aims("Fast"), "as Balanced, with a larger error"),
    "ToDo only": (Settings(interval=1), "reduces tokens, predicts nothing", "acts in the steps that weigh little"),
    "ToDo paper": (
        Settings(factor_1=2, factor_2=1, resample="nearest", phase="fixed", interval=1, start=0, end=1),
        "the paper's settings",
        "keeps the same token of each cell, only at level 1",
    ),
    "ToMe paper": (
        Settings(method="similarity", target="all", ratio_1=0.5, interval=1, start=0, end=1),
        "the paper's settings",
        "merges half of the tokens",
    ),
}
"""The built-in presets, what each does, and how. The papers' have their authors' settings (arXiv 2303.17604, 2402.13573
and its code, ethansmith2000/ImprovedTokenMerge: factor 2 at 1024 px; they take 3 at 1536 px and 4 at 2048 px)."""

BUILT_IN: Mapping[str, Settings] = {name: settings for name, (settings, _, _) in PRESETS.items()}
PRESET_HELP: Mapping[str, str] = {name: f"{does}: {how}" for name, (_, does, how) in PRESETS.items()}


def find_preset(name: Any, presets: Mapping[str, Settings]) -> Settings:
    """The preset of this name. Raises SettingsError, with the nearest name."""
    if name not in [*presets]:  # a list: the name may be of any type
        raise none_of("preset", name, presets)
    return presets[name]


def preset_name(settings: Settings, presets: Mapping[str, Settings] = BUILT_IN, chosen: str = "") -> str:
    """The name of a preset with these settings, ``chosen`` before others, or "custom"."""
    same = [name for name, preset in presets.items() if preset == settings]
    return chosen if chosen in same else next(iter(same), CUSTOM)
