"""The list of jobs: every prompt x seed x size x scale is a scene, and a job is one variant of a scene."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...sampling.request import Request
from ..variants import Variant


@dataclass(frozen=True)
class Scene:
    """One picture that every variant makes. ``number`` is its index in the list."""

    number: int
    request: Request


@dataclass(frozen=True)
class Job:
    """One variant of one scene: one row of the results."""

    scene: Scene
    variant: Variant

    @property
    def key(self) -> str:
        """A hash of request and variant, equal in any run and on any machine.

        It holds the value of each setting that has an effect, also the defaults: they change between versions.
        """
        settings = {name: getattr(self.variant.settings, name) for name in self.variant.settings.used}
        parts = [asdict(self.scene.request), settings, self.variant.peer, self.variant.options, self.variant.name]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def image(self) -> str:
        """The image file, relative to the folder of the results."""
        safe = "".join(c if c.isalnum() or c in ".-" else "-" for c in self.variant.name)
        return f"images/{self.scene.number:04d}-{safe}-{self.key[:6]}.png"


def make_scenes(
    prompts: Iterable[str],
    *,
    seeds: Sequence[int],
    sizes: Sequence[tuple[int, int]],
    scales: Sequence[float],
    base: Request,
    changes: Sequence[Mapping[str, Any]] = ({},),
) -> list[Scene]:
    """All combinations. ``sizes`` are (width, height) in pixels; ``base`` has all other values.

    Each of ``changes`` has other values of a request. Prompts vary fastest, so that an interrupted run has seen every
    kind of prompt.
    """
    requests = [
        replace(base, **{"prompt": prompt, "seed": seed, "width": width, "height": height, **change})
        for change in ({"hires_scale": scale, **change} for change in changes for scale in scales)
        for width, height in sizes
        for seed in seeds
        for prompt in prompts
    ]
    # a row says which schedule ran, and two names of one are one scene
    unique = dict.fromkeys(request.resolved for request in requests)
    return [Scene(number, request) for number, request in enumerate(unique)]
