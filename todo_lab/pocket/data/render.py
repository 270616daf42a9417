"""Draw a scene at any size with Pillow: supersampled shapes, soft shading, textures and flat regions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from .palette import BACKGROUND_TONES, CLOUD, HAZE, OBJECT_COLOURS, STARLIGHT, WINDOW, mix
from .scenes import Item, Scene

OVERSAMPLING = 3  # samples per side of a pixel


def render(scene: Scene, width: int, height: int) -> np.ndarray:
    """The picture, uint8 (height, width, 3). The same scene and size give the same bytes."""
    canvas = Canvas(width * OVERSAMPLING, height * OVERSAMPLING)
    first, second = BACKGROUND_TONES[scene.background][scene.tones]
    paint, rng = BACKGROUND_PAINTERS[scene.background], np.random.default_rng([scene.seed, 1])
    picture = paint(canvas, rng, lambda share: mix(first, second, share))
    for item in scene.items:
        picture = _with_item(picture, item, canvas)
    return np.asarray(Image.fromarray(picture.clip(0, 255).round().astype(np.uint8)).reduce(OVERSAMPLING))


class Canvas:
    """A grid of samples. `x` and `y` run from 0 to 1; `unit` is the shorter side in samples."""

    def __init__(self, width: int, height: int):
        self.width, self.height, self.unit = width, height, min(width, height)
        self.x = (np.arange(width, dtype=np.float32) + 0.5)[None, :] / width
        self.y = (np.arange(height, dtype=np.float32) + 0.5)[:, None] / height

    def cells(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """`x` and `y` in cells, of which the shorter side has so many."""
        return self.x * self.width * count / self.unit, self.y * self.height * count / self.unit

    def mask(self, draw_on: Callable[[ImageDraw.ImageDraw], None], blur: float = 0.0) -> np.ndarray:
        """Coverage 0..1 (h, w) of what `draw_on` draws in white. `blur` is relative to the shorter side."""
        return _mask((self.width, self.height), draw_on, blur * self.unit)


def _mask(size: tuple[int, int], draw_on: Callable[[ImageDraw.ImageDraw], None], blur: float) -> np.ndarray:
    image = Image.new("L", size)
    draw_on(ImageDraw.Draw(image))
    if blur:
        image = image.filter(ImageFilter.GaussianBlur(blur))
    return np.asarray(image, dtype=np.float32) / 255.0


Blend = Callable[[np.ndarray], np.ndarray]
"""The first tone of the background where a share is 0, the second where it is 1."""


def _gradient(canvas: Canvas, rng: np.random.Generator, blend: Blend) -> np.ndarray:
    angle = rng.uniform(0, math.pi)
    along = (canvas.x - 0.5) * math.cos(angle) + (canvas.y - 0.5) * math.sin(angle)
    return blend(np.clip(along + 0.5, 0, 1))


def _sky(canvas: Canvas, rng: np.random.Generator, blend: Blend) -> np.ndarray:
    picture = blend(np.broadcast_to(canvas.y, (canvas.height, canvas.width)))

    def clouds(draw: ImageDraw.ImageDraw) -> None:
        for _ in range(int(rng.integers(3, 5))):
            x, y = rng.uniform(0, 1) * canvas.width, rng.uniform(0.05, 0.8) * canvas.height
            for _ in range(4):
                radius = rng.uniform(0.05, 0.09) * canvas.unit
                puff_x, puff_y = x + rng.uniform(-0.12, 0.12) * canvas.unit, y + rng.uniform(-0.03, 0.03) * canvas.unit
                draw.ellipse((puff_x - 1.5 * radius, puff_y - radius, puff_x + 1.5 * radius, puff_y + radius), fill=230)

    return mix(picture, CLOUD, canvas.mask(clouds, blur=0.012))


def _stripes(canvas: Canvas, rng: np.random.Generator, blend: Blend) -> np.ndarray:
    angle = float(rng.choice([0.0, math.pi / 2, math.pi / 4]))
    count = int(rng.integers(4, 8))
    along = canvas.x * math.cos(angle) * canvas.width + canvas.y * math.sin(angle) * canvas.height
    wave = np.sin(2 * math.pi * along * count / canvas.unit)
    return blend(np.clip(0.5 + 6 * wave, 0, 1))


def _checks(canvas: Canvas, rng: np.random.Generator, blend: Blend) -> np.ndarray:
    across, down = canvas.cells(int(rng.integers(4, 8)))
    return blend((np.floor(across) + np.floor(down)) % 2)


def _stars(canvas: Canvas, rng: np.random.Generator, blend: Blend) -> np.ndarray:
    picture = blend(np.broadcast_to(canvas.y, (canvas.height, canvas.width)))

    def lights(draw: ImageDraw.ImageDraw) -> None:
        for _ in range(int(rng.integers(24, 40))):
            x, y = rng.uniform(0, 1) * canvas.width, rng.uniform(0, 1) * canvas.height
            radius = rng.uniform(0.008, 0.016) * canvas.unit
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=int(rng.integers(170, 256)))

    return mix(picture, STARLIGHT, canvas.mask(lights))


def _hills(canvas: Canvas, rng: np.random.Generator, blend: Blend) -> np.ndarray:
    picture = mix(HAZE, (222, 236, 240), np.broadcast_to(1 - canvas.y, (canvas.height, canvas.width)))
    ridges = 3
    for ridge in range(ridges):
        phase, waves, height = rng.uniform(0, 2 * math.pi), rng.uniform(0.8, 1.8), rng.uniform(0.03, 0.07)
        top = 0.30 + 0.2 * ridge + height * np.sin(2 * math.pi * waves * canvas.x + phase)
        tone = blend(np.asarray(ridge / (ridges - 1)))
        below = np.clip((canvas.y - top) * canvas.height + 0.5, 0, 1)
        light = 1.08 - 0.3 * np.clip(canvas.y - top, 0, 0.4)  # brightest at the ridge
        picture = picture * (1 - below[..., None]) + tone * light[..., None] * below[..., None]
    return picture


def _bricks(canvas: Canvas, rng: np.random.Generator, blend: Blend) -> np.ndarray:
    across, down = canvas.cells(int(rng.integers(7, 10)))
    across = across / 2 + 0.5 * (np.floor(down) % 2)
    joint = np.minimum(_to_line(down), 2 * _to_line(across)) < 0.13
    share = rng.uniform(0, 0.35, size=(64, 64))[np.floor(down).astype(int) % 64, np.floor(across).astype(int) % 64]
    return blend(np.where(joint, 1.0, share))


def _leaves(canvas: Canvas, rng: np.random.Generator, blend: Blend) -> np.ndarray:
    image = Image.new("L", (canvas.width, canvas.height), 255)
    draw = ImageDraw.Draw(image)
    for _ in range(110):
        x, y, turn = rng.uniform(0, canvas.width), rng.uniform(0, canvas.height), rng.uniform(0, math.pi)
        size, tone = rng.uniform(0.06, 0.1) * canvas.unit, int(rng.integers(0, 200))
        draw.polygon([_turned(point, turn, x, y, size) for point in LEAF], fill=tone)
    return blend(np.asarray(image, np.float32) / 255)


def _city(canvas: Canvas, rng: np.random.Generator, blend: Blend) -> np.ndarray:
    across, down = canvas.cells(int(rng.integers(8, 11)))
    column, row = np.floor(across).astype(int) % 64, np.floor(down).astype(int) % 64
    inside = (np.abs(across % 1 - 0.5) < 0.27) & (np.abs(down % 1 - 0.5) < 0.33)
    lit = rng.random((64, 64))[row, column] < 0.45
    tower = rng.uniform(0, 0.5, size=32)[column // 2]
    picture = blend(np.where(inside & ~lit, 1.0, tower + 0 * down))
    return mix(picture, WINDOW, (inside & lit).astype(np.float32))


def _cloth(canvas: Canvas, rng: np.random.Generator, blend: Blend) -> np.ndarray:
    across, down = canvas.cells(int(rng.integers(7, 10)))
    over = (np.floor(across) + np.floor(down)) % 2 == 0  # the strip on top runs down here, else across
    middle = np.where(over, _to_line(across), _to_line(down)) * 2
    return blend(1 - np.clip(0.15 + 1.1 * middle, 0, 1))


def _to_line(values: np.ndarray) -> np.ndarray:
    """Distance to the nearest whole number."""
    return np.abs(values - np.round(values))


PAINTERS = (_gradient, _sky, _stripes, _checks, _stars, _hills, _bricks, _leaves, _city, _cloth)
BACKGROUND_PAINTERS = {painter.__name__[1:]: painter for painter in PAINTERS}


def _with_item(picture: np.ndarray, item: Item, canvas: Canvas) -> np.ndarray:
    """Paint one object and its shadow. Only the window around it changes."""
    x, y, radius = item.x * canvas.width, item.y * canvas.height, item.radius * canvas.unit
    window = Window(canvas, x, y, 1.5 * radius)
    under = picture[window.rows, window.columns]
    shadow = window.mask(item, x + 0.1 * radius, y + 0.14 * radius, radius, blur=0.012 * canvas.unit)
    cover = window.mask(item, x, y, radius)
    shaded = _shaded(item, (window.x - x) / radius, (window.y - y) / radius)
    picture[window.rows, window.columns] = mix(mix(under, under * 0.72, shadow), shaded, cover)
    return picture


class Window:
    """The part of a canvas within `reach` samples of a point. `x` and `y` are canvas coordinates of its samples."""

    def __init__(self, canvas: Canvas, x: float, y: float, reach: float):
        self.left, self.top = max(0, int(x - reach)), max(0, int(y - reach))
        self.columns = slice(self.left, min(canvas.width, int(x + reach) + 1))
        self.rows = slice(self.top, min(canvas.height, int(y + reach) + 1))
        self.x = np.arange(self.left, self.columns.stop, dtype=np.float32)[None, :] + 0.5
        self.y = np.arange(self.top, self.rows.stop, dtype=np.float32)[:, None] + 0.5

    def mask(self, item: Item, x: float, y: float, radius: float, blur: float = 0.0) -> np.ndarray:
        """Coverage 0..1 of the item at canvas position (x, y). `blur` is in samples."""
        size = self.x.shape[1], self.y.shape[0]
        return _mask(size, lambda draw: _draw_shape(draw, item, x - self.left, y - self.top, radius), blur)


def _shaded(item: Item, across: np.ndarray, down: np.ndarray) -> np.ndarray:
    """The object's colour, lit from the upper left. `across` and `down` are in radii from its centre."""
    colour = np.asarray(OBJECT_COLOURS[item.colour], np.float32)
    light = (1.0 - 0.13 * (across + down)).clip(0.75, 1.12)
    glow = 0.35 * np.exp(-((across + 0.4) ** 2 + (down + 0.4) ** 2) / 0.12)
    return mix(colour * light[..., None], (255, 255, 255), glow)


def _draw_shape(draw: ImageDraw.ImageDraw, item: Item, x: float, y: float, radius: float) -> None:
    if item.shape in ("circle", "ring"):
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
        if item.shape == "ring":
            hole = 0.5 * radius
            draw.ellipse((x - hole, y - hole, x + hole, y + hole), fill=0)
    else:
        draw.polygon([_turned(point, item.angle, x, y, radius) for point in OUTLINES[item.shape]], fill=255)


def _turned(point: tuple[float, float], angle: float, x: float, y: float, radius: float) -> tuple[float, float]:
    across, down = point
    return (
        x + radius * (across * math.cos(angle) - down * math.sin(angle)),
        y + radius * (across * math.sin(angle) + down * math.cos(angle)),
    )


def _polygon(corners: int, radii: tuple[float, ...], first: float) -> list[tuple[float, float]]:
    turns = (first + 2 * math.pi * corner / corners for corner in range(corners))
    return [(r * math.cos(turn), r * math.sin(turn)) for turn, r in zip(turns, itertools.cycle(radii), strict=False)]


def _heart() -> list[tuple[float, float]]:
    turns = np.linspace(0, 2 * math.pi, 60, endpoint=False)
    across = 16 * np.sin(turns) ** 3
    up = 13 * np.cos(turns) - 5 * np.cos(2 * turns) - 2 * np.cos(3 * turns) - np.cos(4 * turns)
    return [(float(a) / 16.5, -float(u + 2.5) / 15.5) for a, u in zip(across, up, strict=True)]


LEAF = ((-1.0, 0.0), (-0.5, -0.36), (0.1, -0.4), (1.0, 0.0), (0.1, 0.4), (-0.5, 0.36))
OUTLINES = {
    "square": _polygon(4, (1.12,), math.pi / 4),
    "triangle": [(a * 1.1, b * 1.1 + 0.15) for a, b in _polygon(3, (1.0,), -math.pi / 2)],
    "star": _polygon(10, (1.12, 0.5), -math.pi / 2),
    "heart": _heart(),
}
