"""Find the objects of a picture by their colours, and tell their shapes with a small classifier.

The classifier learns on drawn scenes that went through the autoencoder, never on pictures of the diffusion model. Its
class ``none`` is for what has no known shape. Larger pictures are shrunk to the base size first.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from . import colour_reader
from .data.scenes import SHAPES, Group, Scene
from .model import config

CLASSES = (*SHAPES, "none")
CROP = 32  # pixels per side of what the classifier sees
MARGIN = 0.7  # half the side of a crop, relative to the longer side of the object's box
LEAST = 0.006  # of the picture: a smaller patch of a colour is no object; the smallest star has 0.02


class Classifier(nn.Sequential):
    """Class scores (b, 7) of crops (b, 4, 32, 32): a picture in -1..1, and the mask of the object's colour."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for before, after in ((4, 24), (24, 48), (48, 64)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(*layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * (CROP // 8) ** 2, len(CLASSES)))


class ShapeJudge:
    """Tells which objects a picture has."""

    def __init__(self) -> None:
        path = resources.files("todo_lab.pocket").joinpath("weights/shape-judge.safetensors")
        self.classifier = Classifier().eval()
        self.classifier.load_state_dict(load_file(str(path)))

    def shapes(self, image: np.ndarray, colour: str) -> list[str]:
        """The shapes of all objects of a colour in a uint8 image (h, w, 3), largest object first."""
        crops = [crop for crop, _ in objects(image, colour)]
        if not crops:
            return []
        with torch.inference_mode():
            return [CLASSES[row] for row in self.classifier(torch.stack(crops)).argmax(1).tolist()]


def shapes_right(found: dict[str, list[str]], scene: Scene) -> bool:
    """Whether the largest objects of each wanted colour have the wanted shape. `found` has shapes by colour."""
    return all(found[group.colour][: group.count] == [group.shape] * group.count for group in scene.groups)


def count_right(found: dict[str, list[str]], scene: Scene) -> bool:
    """Whether there are as many objects of each wanted colour as the caption says."""
    return all(len(found[group.colour]) == group.count for group in scene.groups)


def look(judge: ShapeJudge, image: np.ndarray, groups: tuple[Group, ...]) -> dict[str, list[str]]:
    """The shapes in the picture for each colour of the groups."""
    return {group.colour: judge.shapes(image, group.colour) for group in groups}


def objects(image: np.ndarray, colour: str) -> Iterator[tuple[Tensor, tuple[float, float]]]:
    """The crop of each object of the colour and its centre (x, y) in 0..1, largest object first."""
    from scipy import ndimage

    side = config.BASE_SIZE
    small = np.array(Image.fromarray(image).resize((side, side), Image.Resampling.BOX))
    mask = ndimage.binary_opening(ndimage.binary_closing(colour_reader.mask(small, colour), iterations=2))
    patches, count = ndimage.label(mask)
    areas = np.bincount(patches.ravel(), minlength=count + 1)[1:]
    layers = torch.from_numpy(np.concatenate([small.transpose(2, 0, 1) / 127.5 - 1, mask[None]])).float()
    for row in np.argsort(-areas):
        if areas[row] >= LEAST * side**2:
            down, across = ndimage.find_objects(patches)[row]
            x, y = (across.start + across.stop) / 2, (down.start + down.stop) / 2
            reach = MARGIN * max(across.stop - across.start, down.stop - down.start)
            yield crop(layers, x, y, reach), (x / side, y / side)


def crop(layers: Tensor, x: float, y: float, reach: float) -> Tensor:
    """A square (c, 32, 32) of `reach` pixels around (x, y), from layers (c, h, w); their border goes on outside."""
    height, width = layers.shape[-2:]
    steps = (torch.arange(CROP) + 0.5) / CROP * 2 - 1
    across, down = (x + reach * steps) / width * 2 - 1, (y + reach * steps) / height * 2 - 1
    grid = torch.stack(torch.meshgrid(down, across, indexing="ij")[::-1], -1)
    return functional.grid_sample(layers[None], grid[None].float(), padding_mode="border", align_corners=False)[0]
