"""The list of work: every prompt x seed x size x scale is a scene, and every scene is made by every variant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from todo_core.settings import SETTINGS

from ...sampling.request import Request
from .variants import Variant


@dataclass(frozen=True)
class Scene:
    """One picture to be made in several ways. ``number`` is its place in the list."""

    number: int
    request: Request


@dataclass(frozen=True)
class Job:
    """One row of the results."""

    scene: Scene
    variant: Variant

    @property
    def key(self) -> str:
        """The same for the same request and variant, in any run and on any machine.

        Settings at their defaults are left out, so that results are still known when a later version has more of them.
        """
        settings = {n: v for n, v in self.variant.settings.to_dict().items() if v != SETTINGS[n].default}
        told = [asdict(self.scene.request), settings, self.variant.peer, self.variant.options]
        return hashlib.sha256(json.dumps([*told, self.variant.name], sort_keys=True).encode()).hexdigest()[:16]

    @property
    def image(self) -> str:
        """The file of its picture, relative to the folder of the results."""
        safe = "".join(c if c.isalnum() or c in ".-" else "-" for c in self.variant.name)
        return f"images/{self.scene.number:04d}-{safe}-{self.key[:6]}.png"


def scenes(
    prompts: Iterable[str],
    *,
    seeds: Sequence[int],
    sizes: Sequence[tuple[int, int]],
    scales: Sequence[float],
    base: Request,
) -> list[Scene]:
    """All combinations, ``sizes`` being (width, height) in pixels; everything else is as in ``base``.

    Seeds and sizes run slower than prompts, so that a run that is broken off has seen every kind of prompt.
    """
    asked = [
        replace(base, prompt=prompt, seed=seed, width=width, height=height, hires_scale=scale)
        for width, height in sizes
        for scale in scales
        for seed in seeds
        for prompt in prompts
    ]
    return [Scene(number, request) for number, request in enumerate(asked)]


def jobs(scenes: Iterable[Scene], variants: Sequence[Variant]) -> list[Job]:
    """Scene by scene, the variants in their order."""
    return [Job(scene, variant) for scene in scenes for variant in variants]
