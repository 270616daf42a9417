"""What the adapters find out about a model, in one form for all model libraries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from torch import Tensor
from torch.nn import Module

from ..course import Course, noise_gone
from ..reason import Reason
from ..token_grid import TokenGrid

IMAGE_PIXELS = 8  # image pixels per latent pixel, each side

KeysPatch: TypeAlias = Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]
"""(input, keys, values, options) -> (input, keys, values) of a self-attention, before their projections."""


class Handle(Protocol):
    """What takes a hook or a patch off."""

    def remove(self) -> None:
        """Take it off; can be repeated."""


@dataclass(frozen=True, eq=False)
class Site:
    """One transformer block with self-attention.

    Level 1 has the highest resolution that this model attends at; level 2 has half of it, and so on.
    ``rank`` counts the blocks of a level from 0, in running order.
    """

    level: int
    rank: int
    transformer: Module  # sees the (b, c, h, w) tensor
    block: Module  # has attn1, attn2 and ff


@dataclass(frozen=True)
class Level:
    """What a plan needs to know of one level, as plain values. ``depth`` is how often the latent is halved there."""

    number: int
    depth: int
    blocks: int
    trained_side: float  # of its token grid at the size that the model was trained at
    trained_pixels: float  # side of the image at that size


@dataclass(frozen=True)
class Arguments:
    """The keyword names of the arguments that the hooks read. Their positions are the same in all libraries."""

    latent: str  # the first of the UNet; the timestep is the second
    timestep: str
    hidden: str  # the first of a block and its modules; of an attention, the context and the mask are next
    context: str
    mask: str


class Sampler:
    """What is known of the sampler that runs a model. Most models do not know it."""

    def timesteps(self) -> Tensor | None:
        """The timesteps of its run, as last set; None if they are unknown."""
        return None

    def run(self) -> Any:
        """What is another object in each of its runs: by default, the list of timesteps."""
        return self.timesteps()

    def step_index(self) -> int | None:
        """The index of the next call in ``timesteps``; None where the sampler does not count its steps."""
        return None

    def progress(self, timestep: float) -> float:
        """How much of the noise is gone there, from 0: the share of the trained timesteps that are over."""
        return 1 - timestep / 1000

    def repeats_timesteps(self) -> bool:
        """Whether a timestep that stands twice in ``timesteps`` is one step with two calls."""
        return True

    def course(self, first: int, steps: Sequence[int]) -> Course | None:
        """The course of a pass from this index of ``timesteps`` on, with its calls' ``steps``; None if unknown."""
        return None

    def weights(self) -> tuple[float, ...] | None:
        """The weights of the parts of a call's rows in the guided output, in their order; None if they are unknown."""
        return None

    def controls(self) -> Any:
        """The strength of each ControlNet in the next call; None if they are unknown."""
        return None


class LogSigmas(Sampler):
    """Noise of a model whose timesteps are log(sigma) / 4, as of EDM."""

    def progress(self, timestep: float) -> float:
        """The progress of Stable Diffusion where it has as much noise."""
        return noise_gone(math.exp(4 * timestep))


@dataclass(frozen=True, eq=False)
class Host:
    """A model, as its adapter describes it."""

    network: str  # "UNet" or "ControlNet"
    unet: Module  # or the ControlNet
    modules: Callable[[], Iterator[tuple[int, Module]]]  # (depth of the output, module), in running order
    trained_side: float  # of the latent at the size that the model was trained at, in latent pixels
    arguments: Arguments
    # why an attention with this grid must stay whole now
    conflict: Callable[[Module, TokenGrid], Reason | None] = lambda *_: None
    sampler: Sampler = field(default_factory=Sampler)
    patch_keys: Callable[[KeysPatch], Handle] | None = None  # the host's own way to change the keys of each block

    @cached_property
    def _blocks(self) -> list[tuple[int, Module, Any]]:
        """(depth, transformer, block) of each."""
        return [(depth, module, block) for depth, module in self.modules() for block in blocks_of(module)]

    @cached_property
    def depth(self) -> int:
        """How often the latent is halved before level 1."""
        return min((depth for depth, *_ in self._blocks), default=0)

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """The blocks with self-attention, in running order."""
        sites, counts = list[Site](), Counter[int]()
        for depth, transformer, block in self._blocks:
            sites.append(Site(depth - self.depth + 1, counts[depth], transformer, block))
            counts[depth] += 1
        return tuple(sites)

    def is_checkpointed(self) -> bool:
        """Whether a backward pass would run blocks again: ldm and sgm mark their blocks, diffusers what holds them."""
        marks = (getattr(site.block, "checkpoint", False) for site in self.sites)
        return any(marks) or any(getattr(module, "gradient_checkpointing", False) for module in self.unet.modules())

    @property
    def deep_transformers(self) -> tuple[Module, ...]:
        """The transformers below level 1, in running order."""
        return tuple({site.transformer: None for site in self.sites if site.level > 1})

    def level(self, number: int) -> Level:
        """The level of this number; it may have no blocks."""
        depth, blocks = self.depth + number - 1, sum(site.level == number for site in self.sites)
        return Level(number, depth, blocks, self.trained_side / 2**depth, self.trained_side * IMAGE_PIXELS)


def has_foreign_forward(module: Module) -> bool:
    """Whether an extension has replaced ``forward`` on this instance; it may count on the image's number of tokens.

    The wrappers of HyperTile, accelerate, diffusers' own hooks and torch.compile take any number.
    """
    harmless = ("__webui_hypertile_params", "_hf_hook", "_diffusers_hook", "_orig_mod")
    return "forward" in vars(module) and not any(hasattr(module, mark) for mark in harmless)


def counts_calls(model: Module) -> bool:
    """Whether a layer seems to count its calls: its class was replaced by one that a function has made, with numbers.

    As HiDiffusion's. Those of tomesd have no numbers.
    """
    made = {kind for kind in map(type, model.modules()) if "<locals>" in kind.__qualname__}
    return any(type(value) is int and not name.startswith("__") for kind in made for name, value in vars(kind).items())


def original(model: Any) -> Any:
    """The module inside the wrapper that torch.compile returns; any other model itself."""
    return getattr(model, "_orig_mod", model)


def isinstance_str(x: object, name: str) -> bool:
    """Whether ``x`` is an instance of a class called ``name``, without importing that class (after tomesd)."""
    return any(cls.__name__ == name for cls in type(x).__mro__)


def weight_shape(layer: Any) -> tuple[int, ...] | None:
    """The shape of a layer's weight, (outputs, inputs, ...).

    bitsandbytes packs 4-bit weights and keeps the shape beside them. torch's quantised layers hide the weight.
    """
    weight = getattr(layer, "weight", None)
    packed = getattr(weight, "quant_state", None)
    found = getattr(weight if packed is None else packed, "shape", None)
    if found is None and hasattr(layer, "in_features"):
        found = layer.out_features, layer.in_features
    return None if found is None else tuple(found)


# of ldm and sgm; of diffusers; of Stable Video Diffusion, which has other blocks for time
_TRANSFORMERS = ("SpatialTransformer", "Transformer2DModel", "TransformerSpatioTemporalModel")


def blocks_of(transformer: Module) -> list[Any]:
    """The blocks of a spatial transformer whose attn1 is self-attention; none for any other module."""
    blocks: Any = transformer._modules.get("transformer_blocks")
    if blocks is None or not any(isinstance_str(transformer, name) for name in _TRANSFORMERS):
        return []
    marks = ("disable_self_attn", "only_cross_attention")  # of blocks whose attn1 is cross-attention
    return [b for b in blocks if hasattr(b, "attn1") and not any(getattr(b, mark, False) for mark in marks)]
