"""The colours of the scenes: eight for objects, and for each background tones that no other background has.

The tones are well separated in Lab space. So the nearest tone tells the colour of an object and the kind of a
background (see colour_reader.py).
"""

from __future__ import annotations

import numpy as np

RGB = tuple[int, int, int]

OBJECT_COLOURS: dict[str, RGB] = {
    "red": (214, 38, 44),
    "orange": (244, 132, 28),
    "yellow": (250, 214, 36),
    "green": (28, 158, 68),
    "teal": (0, 166, 168),
    "blue": (36, 72, 214),
    "purple": (138, 48, 178),
    "pink": (244, 108, 178),
}

# kind of background: its variants as (first tone, second tone)
BACKGROUND_TONES: dict[str, tuple[tuple[RGB, RGB], ...]] = {
    "gradient": (((250, 206, 186), (204, 186, 232)), ((204, 186, 232), (250, 206, 186))),
    "sky": (((92, 160, 224), (196, 224, 244)), ((112, 178, 232), (206, 230, 246))),
    "stripes": (((212, 182, 134), (246, 234, 208)), ((176, 128, 100), (230, 204, 178))),
    "checks": (((150, 150, 156), (226, 226, 228)), ((96, 96, 102), (188, 188, 194))),
    "stars": (((16, 18, 50), (44, 38, 90)), ((22, 14, 44), (34, 44, 86))),
    "hills": (((132, 152, 84), (72, 98, 56)), ((148, 148, 80), (88, 104, 52))),
    "bricks": (((154, 88, 74), (96, 58, 54)), ((136, 74, 66), (84, 48, 46))),
    "leaves": (((78, 112, 98), (24, 52, 46)), ((96, 126, 110), (34, 62, 54))),
    "city": (((58, 66, 76), (40, 46, 54)), ((70, 74, 80), (48, 50, 56))),
    "cloth": (((188, 146, 158), (136, 96, 112)), ((170, 132, 150), (120, 84, 104))),
}
BACKGROUNDS = tuple(BACKGROUND_TONES)

CLOUD: RGB = (250, 251, 253)
STARLIGHT: RGB = (255, 246, 214)
HAZE: RGB = (250, 240, 214)  # the sky above the hills
WINDOW: RGB = (240, 232, 190)  # a lit window


def mix(first: np.ndarray | RGB, second: np.ndarray | RGB, share: np.ndarray | float) -> np.ndarray:
    """Blend two colours: `first` where `share` is 0, `second` where it is 1. `share` is a number or (h, w)."""
    weight = np.asarray(share, dtype=np.float32)[..., None]
    return np.asarray(first, np.float32) * (1 - weight) + np.asarray(second, np.float32) * weight


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of sRGB values 0..255; the last dimension is 3."""
    from skimage.color import rgb2lab

    return rgb2lab(np.asarray(rgb, dtype=np.float32) / 255.0)
