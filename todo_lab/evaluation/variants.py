"""Variants that are compared with the baseline: settings of ours, or another implementation with its options."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from todo_core.errors import SettingsError, none_of
from todo_core.settings import BUILT_IN, SETTINGS, Settings

from ..sampling.request import Request

NO_REDUCTION = Settings(method="none")
METHODS = {"downsample": ("ToDo", "factor"), "similarity": ("ToMe", "ratio"), "cluster": ("cluster", "ratio")}
PEER_NAMES = {"hypertile": "HyperTile"}
PEER_WORDS = {"uniform_random": "", "uniform_timestep": "by timestep", "linear_blend": "blended"}
UNREDUCED = ("auto", 1, 0)  # amounts at level 2 that a name leaves out
UNNAMED = ("method", "predict", "factor_1", "factor_2", "ratio_1", "ratio_2")  # said in other words, or by the amounts
BARE = ("resample", "phase", "target")  # their values say what they are
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


BASELINE = Variant("baseline")


def from_settings(settings: Settings, name: str = "") -> Variant:
    """A variant of ours. Its name lists the settings that differ from the defaults."""
    return Variant(name or _name(settings), settings)


def from_presets(names: Iterable[str]) -> list[Variant]:
    """Built-in presets by name, or "all" of them. Raises SettingsError."""
    wanted = [one for name in names for one in (BUILT_IN if name == "all" else (name,))]
    for name in wanted:
        if name not in BUILT_IN:
            raise none_of("presets", name, ("all", *BUILT_IN))
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
    """All combinations of the values in the lists of each entry."""
    entries = entries or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError("grid", str(path), "lists of mappings")
    lists = [{name: v if isinstance(v, list) else [v] for name, v in entry.items()} for entry in entries]
    return [dict(zip(each, point, strict=True)) for each in lists for point in itertools.product(*each.values())]


def _name(settings: Settings) -> str:
    """Such as "ToDo 2, fixed"."""
    if settings.method == "none":
        return ""
    method, scale = METHODS[settings.method]
    first, second = (getattr(settings, f"{scale}_{level}") for level in (1, 2))
    shown = SETTINGS[f"{scale}_1"].format
    words = [method, shown(first)]
    if second not in UNREDUCED:
        words.append(f"and {shown(second)}")
    predicts_alone = scale == "factor" and first == second == 1
    parts = [] if predicts_alone else [" ".join(words)]
    if "predict" in settings.used and settings.predict == "whole":
        parts.append("whole steps")
    usual = {"target": "all"} if settings.method == "similarity" else {}
    changed = {name: getattr(settings, name) for name in settings.used if name not in UNNAMED}
    parts += [_part(n, value) for n, value in changed.items() if value != usual.get(n, SETTINGS[n].default)]
    return ", ".join(parts) or method


def _part(name: str, value: Any) -> str:
    """Such as "area", "end 0.7" and "no random"."""
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    text = SETTINGS[name].format(value)
    return text if name in BARE else f"{words} {text}"
