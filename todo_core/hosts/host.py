"""What every host adapter finds out about a model, in the same words for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import Module


@dataclass(frozen=True, eq=False)
class Site:
    """One transformer block with self-attention.

    ``level`` counts halvings of the latent from the model's own shallowest attention, which is level 1.
    ``place`` is the block's rank among those of its level, in the order in which they run.
    """

    level: int
    place: int
    transformer: Module  # sees the (b, c, h, w) tensor
    block: Module  # has attn1, attn2 and ff


@dataclass(frozen=True)
class Arguments:
    """The names of what the hooks read, where a host passes it by keyword; by place it is the same for all."""

    latent: str  # of the UNet, with the timestep behind it
    timestep: str
    hidden: str  # of a block and its modules; an attention has the context and the mask behind it
    context: str
    mask: str


@dataclass(frozen=True, eq=False)
class Host:
    """A model, seen through its adapter."""

    kind: str
    unet: Module
    sites: tuple[Site, ...]
    depth: int  # halvings of the latent before level 1
    trained_side: float  # in latent pixels
    arguments: Arguments
    busy: Callable[[Module], str]  # why an attention is somebody else's at the moment, or ""
    tour: Callable[[], Iterator[tuple[int, Module]]]  # (depth of its output, module) of all that runs, in order
    schedule: Callable[[], Tensor | None] = lambda: None  # the timesteps of the sampler's run, where they are known

    def trained_side_at(self, level: int) -> float:
        """Side of the token grid of this level at the size that the model was trained at."""
        return self.trained_side / 2 ** (self.depth + level - 1)

    def blocks(self, level: int) -> int:
        """How many blocks attend at this level."""
        return sum(site.level == level for site in self.sites)


def isinstance_str(x: object, name: str) -> bool:
    """Whether any class in the ancestry of ``x`` is called ``name``; spares importing the host (after tomesd)."""
    return any(cls.__name__ == name for cls in type(x).__mro__)


def numbered(tour: Iterable[tuple[int, Module]]) -> tuple[tuple[Site, ...], int]:
    """The sites of a model, and the depth of level 1, from its tour."""
    found = [(depth, transformer, block) for depth, transformer in tour for block in blocks_of(transformer)]
    shallowest = min((depth for depth, *_ in found), default=0)
    counts: dict[int, int] = {}
    sites = []
    for depth, transformer, block in found:
        place = counts[depth] = counts.get(depth, -1) + 1
        sites.append(Site(depth - shallowest + 1, place, transformer, block))
    return tuple(sites), shallowest


def blocks_of(transformer: Module) -> list[Any]:
    """The blocks whose attn1 is self-attention, if this is a spatial transformer; else none."""
    if not (isinstance_str(transformer, "SpatialTransformer") or isinstance_str(transformer, "Transformer2DModel")):
        return []
    blocks = getattr(transformer, "transformer_blocks", ())
    return [b for b in blocks if hasattr(b, "attn1") and not _never_self(b)]


def _never_self(block: Any) -> bool:
    return bool(getattr(block, "disable_self_attn", False) or getattr(block, "only_cross_attention", False))
