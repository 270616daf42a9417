"""Train the shape judge on objects of drawn scenes, as drawn and as the autoencoder shows them.

One example in five is bent until its shape is lost, and gets the class ``none``.
"""

from __future__ import annotations

import logging
import math

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from ..data.dataset import in_batches, pictures, training_scenes
from ..data.scenes import Scene
from ..model import config, weights_file
from ..model.networks import FirstStage
from ..shape_judge import CLASSES, SHAPES, Classifier, objects
from .training_loop import Loop, Options

log = logging.getLogger(__name__)

BENT = 0.2  # share of examples without a shape
NEAR = 0.08  # of the side: an object that was found belongs to the drawn one whose centre is so near


def train_judge(options: Options) -> None:
    """Train on the scenes of the run, and write the classifier into its folder."""
    torch.manual_seed(options.seed)
    scenes = training_scenes(options.scenes)
    stack = pictures(options.out, scenes, config.BASE_SIZE)
    first_stage = weights_file.load(options.start).first_stage_model
    crops, labels = examples(stack, scenes)
    decoded = examples(decode(first_stage, stack), scenes)
    crops, labels = torch.cat([crops, decoded[0]]), torch.cat([labels, decoded[1]])
    classifier = Classifier().train()

    def loss_of(step: int, rng: np.random.Generator) -> Tensor:
        rows = torch.from_numpy(rng.integers(len(crops), size=options.batch))
        wanted = labels[rows].clone()
        bent = torch.from_numpy(rng.random(len(rows)) < BENT)
        wanted[bent] = CLASSES.index("none")
        return functional.cross_entropy(classifier(varied(crops[rows], bent, rng)), wanted)

    Loop("judge", classifier, options, rate=2e-3).run(loss_of)
    path = options.out / "shape-judge.safetensors"
    save_file(classifier.state_dict(), path)
    log.info("written: %s", path)


def decode(first_stage: FirstStage, stack: np.ndarray) -> np.ndarray:
    """What the autoencoder makes of the pictures, uint8 (n, h, w, 3)."""
    rows, device = [], next(first_stage.parameters()).device
    with torch.inference_mode():
        for images in in_batches(stack, 8, "decoding"):
            decoded = first_stage.decode(first_stage.encode(images.to(device)).mode()).clamp(-1, 1)
            rows.append(((decoded.permute(0, 2, 3, 1) + 1) * 127.5).round().to(torch.uint8).cpu().numpy())
    return np.concatenate(rows)


def examples(stack: np.ndarray, scenes: list[Scene]) -> tuple[Tensor, Tensor]:
    """Crops (n, 4, 32, 32) of all objects that can be found, and the classes of their shapes."""
    crops, labels = [], []
    for image, scene in zip(stack, scenes, strict=True):
        for colour in {group.colour for group in scene.groups}:
            for crop, centre in objects(image, colour):
                same = [item for item in scene.items if item.colour == colour]
                item = min(same, key=lambda item: math.dist(centre, (item.x, item.y)))
                if math.dist(centre, (item.x, item.y)) < NEAR:
                    crops.append(crop)
                    labels.append(SHAPES.index(item.shape))
    return torch.stack(crops), torch.tensor(labels)


def varied(crops: Tensor, bent: Tensor, rng: np.random.Generator) -> Tensor:
    """The crops a little moved, scaled, mirrored and relit; where `bent` is true, bent out of shape."""
    count = len(crops)
    grid = functional.affine_grid(torch.eye(2, 3).expand(count, -1, -1), list(crops.shape), align_corners=False)
    mirrored = torch.from_numpy(rng.choice([-1.0, 1.0], count)).view(-1, 1, 1).float()
    scale = torch.from_numpy(rng.uniform(0.85, 1.15, (count, 1, 1, 1))).float()
    grid = grid * scale + torch.from_numpy(rng.uniform(-0.1, 0.1, (count, 1, 1, 2))).float()
    grid = torch.stack([grid[..., 0] * mirrored, grid[..., 1]], -1)
    strength = torch.from_numpy(np.where(bent.numpy(), rng.uniform(0.28, 0.5, count), 0.015)).view(-1, 1, 1, 1).float()
    waves = torch.from_numpy(rng.standard_normal((count, 2, 4, 4))).float()
    waves = functional.interpolate(waves, crops.shape[-2:], mode="bicubic", align_corners=True)
    grid = grid + strength * waves.permute(0, 2, 3, 1)
    moved = functional.grid_sample(crops, grid, padding_mode="border", align_corners=False)
    light = torch.from_numpy(rng.uniform(0.9, 1.1, (count, 1, 1, 1))).float()
    return torch.cat([moved[:, :3] * light, moved[:, 3:]], 1)
