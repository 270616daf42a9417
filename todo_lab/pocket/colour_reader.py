"""Recognise the object colours and the background of a picture by the nearest palette tone in Lab space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from functools import lru_cache
from typing import Any

import numpy as np

from .data.palette import BACKGROUND_TONES, CLOUD, HAZE, OBJECT_COLOURS, STARLIGHT, WINDOW, lab, mix
from .data.scenes import Scene

LIGHTS = (0.78, 0.9, 1.0, 1.1)  # shading varies an object's colour by these factors
TRACE = 0.2  # of the rarest wanted colour; a smaller area of another colour comes from blended edges
SHARP = {"stripes", "checks"}  # the other kinds have gradual transitions between their tones
IGNORED = (CLOUD, HAZE, STARLIGHT, WINDOW, (246, 234, 208), (222, 236, 240))  # several backgrounds have these


def colours_right(image: np.ndarray, scene: Scene) -> bool:
    """Whether the picture has all object colours of the scene, and no other colour but in traces."""
    counts, wanted = _count(image, OBJECT_COLOURS), {group.colour for group in scene.groups}
    others = [count for name, count in counts.items() if name not in wanted]
    return min(counts[name] for name in wanted) * TRACE > max(others, default=0)


def background_right(image: np.ndarray, scene: Scene) -> bool:
    """Whether most pixels that are nearest to a background are nearest to the scene's."""
    counts = _count(image, BACKGROUND_TONES)
    return bool(counts) and counts.most_common(1)[0][0] == scene.background


def mask(image: np.ndarray, colour: str) -> np.ndarray:
    """The pixels (h, w) of a uint8 image that have an object colour."""
    return _nearest(image) == colour


def _nearest(image: np.ndarray) -> np.ndarray:
    """The label of the nearest tone at each pixel (h, w)."""
    labels, tree = _tones()
    return labels[tree.query(lab(image))[1]]


def _count(image: np.ndarray, names: Container[str]) -> Counter[str]:
    """The pixels of a uint8 image (h, w, 3) by nearest tone, of these names alone."""
    found = Counter(_nearest(image).ravel().tolist())
    return Counter({name: count for name, count in found.items() if name in names})


@lru_cache
def _tones() -> tuple[np.ndarray, Any]:
    """The label of each tone, and a k-d tree of their Lab values: object colours in several lights, backgrounds."""
    from scipy.spatial import KDTree

    rows: list[tuple[str, np.ndarray]] = []
    for name, colour in OBJECT_COLOURS.items():
        rows += [(name, np.minimum(np.asarray(colour) * light, 255.0)) for light in LIGHTS]
    for kind, variants in BACKGROUND_TONES.items():
        shares = (0.0, 1.0) if kind in SHARP else np.linspace(0, 1, 5)
        rows += [(kind, mix(first, second, share)) for first, second in variants for share in shares]
    rows += [("", np.asarray(tone, np.float32)) for tone in IGNORED]
    return np.array([label for label, _ in rows]), KDTree(lab(np.stack([tone for _, tone in rows])))
