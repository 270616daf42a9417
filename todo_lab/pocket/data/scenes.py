"""Random scenes: a background and a few objects, all derived from one seed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .palette import BACKGROUND_TONES, BACKGROUNDS, OBJECT_COLOURS

SHAPES = ("circle", "square", "triangle", "star", "ring", "heart")
COLOURS = tuple(OBJECT_COLOURS)
SIZES = {"small": (0.14, 0.17), None: (0.19, 0.23), "big": (0.27, 0.33)}  # radius relative to the shorter side
SHRINKING = {1: 1.0, 2: 0.9, 3: 0.8}  # factor of the radii by number of objects, so that they do not overlap
TILT = 0.15  # radians; the autoencoder's cells cannot hold finer differences
SPOTS = 60  # tries to place an object away from the others
PLACES = {"left": (0.25, 0.5), "right": (0.75, 0.5), "top": (0.5, 0.26), "bottom": (0.5, 0.74), "middle": (0.5, 0.5)}
COUNTS = {1: (1.0,), 2: (0.8, 0.2), 3: (0.65, 0.2, 0.15)}  # how often a group has one, two, three objects
HELD_OUT = 10  # one in 10 combinations is kept out of training


@dataclass(frozen=True)
class Group:
    """Objects that a caption names together: `count` of one colour, shape and size, optionally at a place."""

    count: int
    colour: str
    shape: str
    size: str | None = None
    place: str | None = None


@dataclass(frozen=True)
class Item:
    """One object. The centre is relative to width and height, the radius to the shorter side."""

    colour: str
    shape: str
    x: float
    y: float
    radius: float
    angle: float


@dataclass(frozen=True)
class Scene:
    """A full description of a picture, independent of its size in pixels."""

    background: str
    tones: int
    groups: tuple[Group, ...]
    items: tuple[Item, ...]
    seed: int

    @property
    def held_out(self) -> bool:
        """Whether this combination of background, colours and shapes is kept out of training."""
        key = BACKGROUNDS.index(self.background)
        for group in self.groups:
            key = key * 8 + COLOURS.index(group.colour)
            key = key * 6 + SHAPES.index(group.shape)
        return (key * 2654435761 % 2**32) // 2**16 % HELD_OUT == 0


def random_scene(seed: int) -> Scene:
    """The scene of a seed: one or two groups, at most three objects."""
    rng = np.random.default_rng(seed)
    background = str(rng.choice(BACKGROUNDS))
    tones = int(rng.integers(len(BACKGROUND_TONES[background])))
    groups = _random_groups(rng)
    return Scene(background, tones, groups, _placed(groups, rng), seed)


def _random_groups(rng: np.random.Generator) -> tuple[Group, ...]:
    many = 2 if rng.random() < 0.35 else 1
    colours = rng.choice(COLOURS, many, replace=False)
    places = rng.permutation(["left", "right"] if rng.random() < 0.6 else ["top", "bottom"])
    groups: list[Group] = []
    for index in range(many):
        most = 3 if many == 1 else 2 - sum(group.count > 1 for group in groups)
        count = int(rng.choice(range(1, most + 1), p=COUNTS[most]))
        alone = many == 1 and count == 1
        sizes = ["small", "big"] if alone else ["small"]
        size = str(rng.choice(sizes)) if rng.random() < (0.5 if alone else 0.3) else None
        place = None
        if count == 1 and rng.random() < 0.6:
            place = str(rng.choice(list(PLACES))) if many == 1 else str(places[index])
        groups.append(Group(count, str(colours[index]), str(rng.choice(SHAPES)), size, place))
    return tuple(groups)


def _placed(groups: tuple[Group, ...], rng: np.random.Generator) -> tuple[Item, ...]:
    """Put every object at its place, or at the best of many random spots."""
    items: list[Item] = []
    total = sum(group.count for group in groups)
    for group in sorted(groups, key=lambda group: group.place is None):
        for _ in range(group.count):
            low, high = SIZES[group.size]
            radius = float(rng.uniform(low, high)) * SHRINKING[total]
            angle = float(rng.uniform(-TILT, TILT))
            tries = [_spot(group.place, radius, rng) for _ in range(1 if group.place else SPOTS)]
            x, y = max(tries, key=lambda spot: _gap(spot, radius, items))
            items.append(Item(group.colour, group.shape, x, y, radius, angle))
    return tuple(items)


def _spot(place: str | None, radius: float, rng: np.random.Generator) -> tuple[float, float]:
    if place is None:
        return float(rng.uniform(radius + 0.02, 0.98 - radius)), float(rng.uniform(radius + 0.02, 0.98 - radius))
    x, y = PLACES[place]
    edge = radius + 0.02
    return (
        float(np.clip(x + rng.uniform(-0.05, 0.05), edge, 1 - edge)),
        float(np.clip(y + rng.uniform(-0.05, 0.05), edge, 1 - edge)),
    )


def _gap(spot: tuple[float, float], radius: float, items: list[Item]) -> float:
    """The smallest gap to the other objects, at most 0.03: all spots with a larger gap are equally good."""
    gaps = [math.dist(spot, (item.x, item.y)) - radius - item.radius for item in items]
    return min([0.03, *gaps])
