"""ST-LPIPS (Ghildyal and Liu, ECCV 2022, arXiv 2207.13686): a learned distance that tolerates small shifts.

The package ``stlpips-pytorch`` brings the trained weights. Its own code needs torchvision and IPython, so only its
weights are read: an AlexNet whose strides are blurred, and a weight for each channel of five layers.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

WEIGHTS = "weights/vST0.0/alex_shift_tolerant.pth"
MISSING = "pip install --no-deps stlpips-pytorch==0.0.2"
Distance = Callable[[Tensor, Tensor], float]


def load(device: str | torch.device = "cpu") -> Distance:
    """The distance of two images, (1, 3, h, w) in 0..1. Raises ImportError without the package."""
    found = importlib.util.find_spec("stlpips_pytorch")
    if found is None or not found.submodule_search_locations:
        raise ImportError(MISSING)
    path = Path(found.submodule_search_locations[0], WEIGHTS)
    state = torch.load(path, map_location=device, weights_only=True)
    return lambda reference, image: float(_distance(state, reference, image))


@torch.inference_mode()
def _distance(state: dict[str, Tensor], reference: Tensor, image: Tensor) -> Tensor:
    both = torch.cat([reference, image]).float() * 2 - 1
    layers = _layers(state, (both - state["scaling_layer.shift"]) / state["scaling_layer.scale"])
    unit = (functional.normalize(layer, dim=1, eps=1e-10) for layer in layers)
    apart = ((first - second).square() for first, second in (layer.split(1) for layer in unit))
    weights = (state[f"lin{number}.model.1.weight"] for number in range(5))
    return sum((functional.conv2d(*pair).mean() for pair in zip(apart, weights, strict=True)), torch.zeros(()))


def _layers(state: dict[str, Tensor], x: Tensor) -> list[Tensor]:
    """The five layers of the network."""

    def convolved(x: Tensor, name: str, padding: int) -> Tensor:
        return functional.conv2d(x, state[f"net.{name}.weight"], state[f"net.{name}.bias"], padding=padding)

    def halved(x: Tensor, name: str) -> Tensor:
        wider = functional.pad(x, (2,) * 4, "reflect")
        return functional.conv2d(wider, state[f"net.{name}.filt"], stride=2, groups=x.shape[1])

    first = halved(convolved(x, "slice1.0", 2), "slice1.1").relu()
    second = convolved(halved(functional.max_pool2d(first, 3, 1), "slice2.4"), "slice2.5", 2).relu()
    third = convolved(halved(functional.max_pool2d(second, 3, 1), "slice3.8"), "slice3.9", 1).relu()
    fourth = convolved(third, "slice4.11", 1).relu()
    return [first, second, third, fourth, convolved(fourth, "slice5.13", 1).relu()]
