"""Captions of scenes: a small grammar with synonyms, such as "two small violet hearts over rolling hills"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from .scenes import Group, Scene

Choice = TypeVar("Choice")

COLOUR_WORDS = {
    "red": ("red", "crimson"),
    "orange": ("orange",),
    "yellow": ("yellow", "golden"),
    "green": ("green", "emerald"),
    "teal": ("teal", "turquoise"),
    "blue": ("blue",),
    "purple": ("purple", "violet"),
    "pink": ("pink", "rose"),
}
SHAPE_WORDS = {
    "circle": (("circle", "circles"), ("ball", "balls")),
    "square": (("square", "squares"), ("box", "boxes")),
    "triangle": (("triangle", "triangles"), ("pyramid", "pyramids")),
    "star": (("star", "stars"),),
    "ring": (("ring", "rings"), ("donut", "donuts")),
    "heart": (("heart", "hearts"),),
}
SIZE_WORDS = {"small": ("small", "little"), "big": ("big", "large")}
COUNT_WORDS = {1: ("a", "one"), 2: ("two",), 3: ("three",)}
PLACE_WORDS = {
    "left": ("on the left",),
    "right": ("on the right",),
    "top": ("at the top",),
    "bottom": ("at the bottom",),
    "middle": ("in the middle", "in the center"),
}
BACKGROUND_WORDS = {
    "gradient": ("a soft gradient", "a smooth gradient", "pastel colors"),
    "sky": ("a cloudy sky", "the sky with clouds", "a sunny sky"),
    "stripes": ("stripes", "a striped wall", "a striped pattern"),
    "checks": ("a checkered floor", "a chess board", "a checkered pattern"),
    "stars": ("a starry night", "the night", "a night full of stars"),
    "hills": ("rolling hills", "hills", "a landscape of hills"),
    "bricks": ("a brick wall", "bricks", "a wall of bricks"),
    "leaves": ("leaves", "a hedge", "a hedge of leaves"),
    "city": ("a city", "city windows", "buildings of a city"),
    "cloth": ("woven cloth", "a woven pattern", "cloth"),
}
BEFORE_BACKGROUND = ("on", "over", "against", "in front of")


def caption(scene: Scene, seed: int = 0) -> str:
    """A caption of the scene; `seed` chooses among synonyms."""
    rng = np.random.default_rng([scene.seed, seed, 2])

    def one(choices: Sequence[Choice]) -> Choice:
        return choices[int(rng.integers(len(choices)))]

    def noun_phrase(group: Group) -> str:
        shape = one(SHAPE_WORDS[group.shape])[group.count > 1]
        size = [one(SIZE_WORDS[group.size])] if group.size else []
        place = [one(PLACE_WORDS[group.place])] if group.place else []
        count, colour = one(COUNT_WORDS[group.count]), one(COLOUR_WORDS[group.colour])
        described = [*size, colour, shape, *place]
        return " ".join(["an" if count == "a" and described[0][0] in "aeiou" else count, *described])

    objects = " and ".join(noun_phrase(group) for group in scene.groups)
    return f"{objects} {one(BEFORE_BACKGROUND)} {one(BACKGROUND_WORDS[scene.background])}"
