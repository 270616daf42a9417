"""Training pictures and latents, stored in the folder of the run. A batch depends on seed and step only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from .render import render
from .scenes import Scene, random_scene

HARD = {"star": 3.0, "square": 1.5}  # shapes that came out wrong most often
UNSEEN = 1_000_000_000  # the first scene seed for evaluation


def training_scenes(count: int) -> list[Scene]:
    """The first `count` scenes that are not held out."""
    scenes = map(random_scene, itertools.count())
    return list(itertools.islice((scene for scene in scenes if not scene.held_out), count))


def unseen_scenes(count: int, *, least: int = 1, most: int = 4) -> list[Scene]:
    """Scenes for evaluation with `least` to `most` objects: other seeds, only combinations held out of training."""
    scenes = map(random_scene, itertools.count(UNSEEN))
    chosen = (scene for scene in scenes if scene.held_out and least <= len(scene.items) <= most)
    return list(itertools.islice(chosen, count))


def pictures(folder: Path, scenes: list[Scene], side: int) -> np.ndarray:
    """All scenes at side x side pixels, uint8 (n, side, side, 3). They are drawn once and stored in `folder`."""
    path = folder / f"pictures-{side}-{len(scenes)}.npy"
    if not path.exists():
        with ProcessPoolExecutor() as pool:
            images = pool.map(render, scenes, itertools.repeat(side), itertools.repeat(side), chunksize=32)
            stack = np.stack(list(tqdm(images, total=len(scenes), desc=f"drawing at {side}", unit="scene")))
        unfinished = path.with_suffix(".part.npy")
        np.save(unfinished, stack)
        unfinished.rename(path)
    return np.load(path, mmap_mode="r")


def as_images(stack: np.ndarray) -> Tensor:
    """uint8 (n, h, w, 3) to float32 (n, 3, h, w) in -1..1."""
    rows = torch.from_numpy(np.ascontiguousarray(stack)).permute(0, 3, 1, 2)
    return rows.float().contiguous() / 127.5 - 1  # channels-last strides would halve the training speed on a CPU


def crops(stack: np.ndarray, side: int, batch: int, rng: np.random.Generator) -> Tensor:
    """Random side x side crops, half of them mirrored, (batch, 3, side, side)."""
    rows = []
    for index in rng.integers(len(stack), size=batch):
        top, left = rng.integers(stack.shape[1] - side + 1), rng.integers(stack.shape[2] - side + 1)
        window = stack[index, top : top + side, left : left + side]
        rows.append(window[:, ::-1] if rng.random() < 0.5 else window)
    return as_images(np.stack(rows))


@dataclass(frozen=True)
class Latents:
    """Encoded scenes of one size: latents (n, 4, side, side), token ids (n, c, 77) of c captions per scene.

    `objects` (n, 1, side, side) is 1 at objects and 0 elsewhere. `shares` (n) says how often each scene is drawn.
    """

    latents: Tensor
    ids: Tensor
    objects: Tensor
    shares: np.ndarray

    def to(self, device: torch.device) -> Latents:
        """The same on another device."""
        return Latents(self.latents.to(device), self.ids.to(device), self.objects.to(device), self.shares)

    def batch(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Random rows: latents, the ids of one caption each, and the object masks."""
        device = self.latents.device
        rows = torch.from_numpy(rng.choice(len(self.latents), size=size, p=self.shares)).to(device)
        captions = torch.from_numpy(rng.integers(self.ids.shape[1], size=size)).to(device)
        return self.latents[rows].float(), self.ids[rows, captions], self.objects[rows].float()


def objects(scenes: list[Scene], side: int) -> Tensor:
    """Masks of the cells of a side x side grid that an object touches, bool (n, 1, side, side)."""
    centres = (np.arange(side) + 0.5) / side
    masks = np.zeros((len(scenes), 1, side, side), dtype=bool)
    for mask, scene in zip(masks, scenes, strict=True):
        for item in scene.items:
            distance = np.hypot(centres[None, :] - item.x, centres[:, None] - item.y)
            mask[0] |= distance < item.radius + 0.5 / side
    return torch.from_numpy(masks)


def shares(scenes: list[Scene]) -> np.ndarray:
    """How often each scene is drawn, of 1: in proportion to its objects, and `HARD` times as often for hard shapes."""
    hardest = np.array([max(HARD.get(group.shape, 1.0) for group in scene.groups) for scene in scenes])
    weights = hardest * [len(scene.items) for scene in scenes]
    return weights / weights.sum()


def in_batches(stack: np.ndarray, size: int, what: str) -> Iterator[Tensor]:
    """The pictures of the stack as image tensors, `size` at a time, with a progress bar."""
    for start in tqdm(range(0, len(stack), size), desc=what):
        yield as_images(stack[start : start + size])
