"""Read off a picture which object colours and which background it shows, by the palette's tones in Lab space."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np

from .data.palette import BACKGROUND_TONES, CLOUD, HAZE, OBJECT_COLOURS, RGB, STARLIGHT, lab, mix
from .data.scenes import Scene

LIGHTS = (0.78, 0.9, 1.0, 1.1)  # how an object's colour varies over its surface
TRACE = 0.2  # edges blend colours; more than this share of the rarest wanted colour is an object
BLENDED = {"gradient", "sky", "stars", "hills"}  # their tones pass into each other
SHARED: tuple[RGB, ...] = (CLOUD, HAZE, STARLIGHT, (246, 234, 208), (222, 236, 240))  # these tell nothing


def colours(image: np.ndarray) -> Counter[str]:
    """How many pixels of a uint8 image (h, w, 3) are nearest to each object colour."""
    return _counted(image, set(OBJECT_COLOURS))


def background(image: np.ndarray) -> str:
    """The kind of background whose tones most pixels are nearest to."""
    counts = _counted(image, set(BACKGROUND_TONES))
    return counts.most_common(1)[0][0] if counts else ""


def colours_right(image: np.ndarray, scene: Scene) -> bool:
    """Whether the picture's object colours are those of the scene: none missing, and of any other only a trace."""
    counts, wanted = colours(image), {group.colour for group in scene.groups}
    others = [count for name, count in counts.items() if name not in wanted]
    return min(counts[name] for name in wanted) * TRACE > max(others, default=0)


def background_right(image: np.ndarray, scene: Scene) -> bool:
    """Whether the picture shows the scene's kind of background."""
    return background(image) == scene.background


def _counted(image: np.ndarray, names: set[str]) -> Counter[str]:
    labels, tones = _tones()
    pixels = lab(image).reshape(-1, 1, 3).astype(np.float32)
    nearest = np.square(pixels - tones).sum(-1).argmin(-1)
    return Counter(labels[row] for row in nearest if labels[row] in names)


@lru_cache
def _tones() -> tuple[list[str], np.ndarray]:
    """A label and a Lab value for each tone: object colours in several lights, backgrounds and what they share."""
    rows: list[tuple[str, np.ndarray]] = []
    for name, colour in OBJECT_COLOURS.items():
        rows += [(name, np.minimum(np.asarray(colour) * light, 255.0)) for light in LIGHTS]
    for kind, variants in BACKGROUND_TONES.items():
        shares = np.linspace(0, 1, 5) if kind in BLENDED else (0.0, 1.0)
        rows += [(kind, mix(first, second, share)) for first, second in variants for share in shares]
    rows += [("", np.asarray(tone, np.float32)) for tone in SHARED]
    return [label for label, _ in rows], lab(np.stack([tone for _, tone in rows]))
