"""ST-LPIPS (Ghildyal and Liu, ECCV 2022, arXiv 2207.13686): a learned distance that tolerates small shifts.

The package ``stlpips-pytorch`` brings the trained weights. Its own code needs torchvision and IPython, so only its
weights are read: an AlexNet whose strides are blurred, and a weight for each channel of five layers.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

WEIGHTS = "weights/vST0.0/alex_shift_tolerant.pth"
MISSING = "pip install --no-deps stlpips-pytorch==0.0.2"


class ShiftTolerantLPIPS:
    """The distance of two images by their layers. Raises ImportError without the package."""

    def __init__(self, device: str | torch.device = "cpu") -> None:
        found = importlib.util.find_spec("stlpips_pytorch")
        if found is None or not found.submodule_search_locations:
            raise ImportError(MISSING)
        path = Path(found.submodule_search_locations[0], WEIGHTS)
        self._state = torch.load(path, map_location=device, weights_only=True)

    @torch.inference_mode()
    def layers(self, image: Tensor) -> list[Tensor]:
        """What the five layers see in an image, (1, 3, h, w) in 0..1, with a norm of 1 at each place."""
        x = (image.float() * 2 - 1 - self._state["scaling_layer.shift"]) / self._state["scaling_layer.scale"]
        first = self._halved(self._convolved(x, "slice1.0", 2), "slice1.1").relu()
        second = self._convolved(self._halved(_max(first), "slice2.4"), "slice2.5", 2).relu()
        third = self._convolved(self._halved(_max(second), "slice3.8"), "slice3.9", 1).relu()
        fourth = self._convolved(third, "slice4.11", 1).relu()
        fifth = self._convolved(fourth, "slice5.13", 1).relu()
        return [functional.normalize(layer, dim=1, eps=1e-10) for layer in (first, second, third, fourth, fifth)]

    @torch.inference_mode()
    def distance(self, reference: Sequence[Tensor], image: Sequence[Tensor]) -> float:
        """0 for equal images."""
        apart = [(before - after).square() for before, after in zip(reference, image, strict=True)]
        weights = [self._state[f"lin{number}.model.1.weight"] for number in range(len(apart))]
        means = [functional.conv2d(*pair).mean() for pair in zip(apart, weights, strict=True)]
        return float(torch.stack(means).sum())

    def _convolved(self, x: Tensor, name: str, padding: int) -> Tensor:
        return functional.conv2d(x, self._state[f"net.{name}.weight"], self._state[f"net.{name}.bias"], padding=padding)

    def _halved(self, x: Tensor, name: str) -> Tensor:
        wider = functional.pad(x, (2,) * 4, "reflect")
        return functional.conv2d(wider, self._state[f"net.{name}.filt"], stride=2, groups=x.shape[1])


def _max(x: Tensor) -> Tensor:
    return functional.max_pool2d(x, 3, 1)
