"""Variants that are compared with the baseline: settings of ours, or another implementation with its options."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from todo_core.errors import SettingsError
from todo_core.settings import BUILT_IN, SETTINGS, Settings

from ..sampling.request import Request

NO_REDUCTION = Settings(method="none")
METHOD_NAMES = {"downsample": "ToDo", "similarity": "ToMe", "cluster": "cluster"}
AMOUNTS = ("factor_1", "factor_2", "ratio_1", "ratio_2")
PEER_AMOUNTS = ("ratio", "factor")
PEER_NAMES = {"hypertile": "HyperTile"}
PEER_WORDS = {"uniform_random": "", "uniform_timestep": "by timestep", "linear_blend": "blended"}
REQUEST_FIELDS = tuple(name for name in Request.__dataclass_fields__ if name not in ("prompt", "seed"))
GRID_KEYS = ("requests", "presets", "settings", "peers")


@dataclass(frozen=True)
class Variant:
    """One way to make the image. ``peer`` names an adapter of `peers.py`; ``options`` are its options as JSON."""

    name: str
    settings: Settings = NO_REDUCTION
    peer: str = ""
    options: str = "{}"

    @property
    def is_baseline(self) -> bool:
        """Whether this is the image without reduction."""
        return not self.peer and self.settings.method == "none"

    @property
    def family(self) -> str:
        """The name without the amount. One line of a plot joins a family."""
        if self.peer:
            options = json.loads(self.options)
            return from_peer(self.peer, {name: options[name] for name in options if name not in PEER_AMOUNTS}).name
        return _name(self.settings, amounts=False) or self.name

    @property
    def amount(self) -> float | None:
        """The factor or the ratio at level 1; None for ``auto`` and for variants without either."""
        if self.peer:
            options = json.loads(self.options)
            found = next((options[name] for name in PEER_AMOUNTS if name in options), None)
            return None if found is None else float(found)
        if self.settings.method in ("similarity", "cluster"):
            return self.settings.ratio_1
        factor = self.settings.factor_1
        return float(factor) if self.settings.method == "downsample" and factor != "auto" else None

    @property
    def scale(self) -> str:
        """The kind of the amount: "factor", "ratio" or empty."""
        if self.peer:
            options = json.loads(self.options)
            return next((name for name in PEER_AMOUNTS if name in options), "")
        return {"downsample": "factor", "similarity": "ratio", "cluster": "ratio"}.get(self.settings.method, "")


BASELINE = Variant("baseline")


def from_settings(settings: Settings, name: str = "") -> Variant:
    """A variant of ours. Its name lists the settings that differ from the defaults."""
    return Variant(name or _name(settings, amounts=True), settings)


def from_presets(names: Iterable[str]) -> list[Variant]:
    """Built-in presets by name, or "all" of them. Raises SettingsError."""
    wanted = [one for name in names for one in (BUILT_IN if name == "all" else (name,))]
    for name in wanted:
        if name not in BUILT_IN:
            raise SettingsError("presets", name, "all, " + ", ".join(map(repr, BUILT_IN)))
    return [Variant(name, BUILT_IN[name]) for name in wanted]


def from_peer(peer: str, options: Mapping[str, Any]) -> Variant:
    """Another implementation, named after its options: numbers, then words."""
    numbers = [f"{value:g}" for value in options.values() if not isinstance(value, str)]
    words = [PEER_WORDS.get(value, value) for value in options.values() if isinstance(value, str)]
    name = ", ".join(filter(None, [" ".join([PEER_NAMES.get(peer, peer), *numbers]), *words]))
    return Variant(name, peer=peer, options=json.dumps(dict(options), sort_keys=True))


def from_grid(path: Path) -> list[Variant]:
    """The variants of a YAML file with any of the lists ``presets``, ``settings`` and ``peers``.

    An entry of ``settings`` has fields of Settings and optionally ``name``. A list of values makes one variant per
    value; several lists make all combinations. Raises SettingsError.
    """
    content = _content(path)
    found = from_presets(content.get("presets") or [])
    for point in _points(path, content.get("settings")):
        name = str(point.pop("name", ""))
        found.append(from_settings(Settings.parse(point), name))
    for point in _points(path, content.get("peers")):
        if "peer" not in point:
            raise SettingsError("grid", str(path), "peers with the key peer")
        found.append(from_peer(str(point.pop("peer")), point))
    return found


def requests_of_grid(path: Path) -> list[dict[str, Any]]:
    """What the entries of ``requests`` change in the request, one after the other; {} changes nothing.

    Raises SettingsError for unknown names.
    """
    found = _points(path, _content(path).get("requests")) or [{}]
    for name in (name for point in found for name in point):
        if name not in REQUEST_FIELDS:
            raise SettingsError("requests", name, ", ".join(REQUEST_FIELDS))
    return found


def unique_variants(variants: Iterable[Variant]) -> list[Variant]:
    """The baseline first, then each variant once. Raises SettingsError if different variants share a name."""
    chosen: dict[str, Variant] = {BASELINE.name: BASELINE}
    for variant in variants:
        if chosen.setdefault(variant.name, variant) != variant:
            raise SettingsError("name", variant.name, "a unique name")
    return list(chosen.values())


def _content(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text("utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError("grid", str(path), f"a YAML file ({error})") from error
    if not isinstance(content, dict) or set(content) - set(GRID_KEYS):
        raise SettingsError("grid", str(path), f"a mapping with the keys {', '.join(GRID_KEYS)}")
    return content


def _points(path: Path, entries: Any) -> list[dict[str, Any]]:
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError("grid", str(path), "lists of mappings")
    return [point for entry in entries for point in _product(entry)]


def _product(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    values = [value if isinstance(value, list) else [value] for value in entry.values()]
    return [dict(zip(entry, point, strict=True)) for point in itertools.product(*values)]


def _name(settings: Settings, *, amounts: bool) -> str:
    """Such as "ToDo 2, fixed", or without amounts "ToDo, fixed"."""
    method = settings.method
    if method == "none":
        return ""
    parts = [" ".join([METHOD_NAMES[method], *(_amounts(settings) if amounts else _second_level(settings))])]
    if (settings.factor_1, settings.factor_2) == (1, 1) and method == "downsample":
        parts = []  # the interval alone
    if "predict" in settings.used and settings.predict == "whole":
        parts.append("whole steps")
    usual = {"target": "all"} if method == "similarity" else {}
    for name in settings.used:
        value = getattr(settings, name)
        if name in ("method", "predict", *AMOUNTS) or value == usual.get(name, SETTINGS[name].default):
            continue
        parts.append(_part(name, value))
    return ", ".join(parts) or METHOD_NAMES[method]


def _part(name: str, value: Any) -> str:
    """Such as "area", "end 0.7" and "no random"."""
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    text = SETTINGS[name].format(value)
    return text if name in ("resample", "phase", "target") else f"{words} {text}"


def _amounts(settings: Settings) -> list[str]:
    """The amount at level 1, and that at level 2 if level 2 is reduced by a number of its own."""
    if settings.method == "downsample":
        first, second = settings.factor_1, settings.factor_2
        return [str(first), *([f"and {second}"] if second not in ("auto", 1) else [])]
    texts = [f"{settings.ratio_1:g}"]
    return texts + ([f"and {settings.ratio_2:g}"] if settings.ratio_2 else [])


def _second_level(settings: Settings) -> list[str]:
    second = _amounts(settings)[1:]
    return [second[0].replace("and", "level 2 at")] if second else []
