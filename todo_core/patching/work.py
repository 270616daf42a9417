"""The work of a UNet call: multiply-adds, counted from the model's own layers.

For one row, a layer costs weights x positions. Self-attention with c channels, q queries and k keys costs
2*c*c*(q + k) for its projections and 2*c*q*k for the attention. Only q and k depend on the plan. ToMe's search adds
c*s*d: it compares each of s tokens with each of d that always stay.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from ..hosts.host import Host, blocks_of, isinstance_str, weight_shape
from ..token_grid import TokenGrid
from .space.level_plan import LevelPlan

TEXT_TOKENS = 77
# what a call of the model does: the levels that are reduced, and whether the deep transformers are predicted
Kind = tuple[tuple[LevelPlan, ...], bool]


@dataclass(frozen=True)
class Block:
    """A transformer block: its channels, those of the text, and the weights of its feed-forward layers."""

    depth: int
    width: int
    text_width: int
    feed_forward: int


@dataclass(frozen=True)
class Layout:
    """What the work of a UNet depends on. ``weights`` has, for each depth, the weights that each position uses once.

    ``deep_weights`` are those of them that stand in the transformers below level 1.
    """

    depth: int  # how often the latent is halved before level 1
    weights: tuple[int, ...]
    deep_weights: tuple[int, ...]
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, host: Host) -> Layout:
        """Count the layers of a model."""
        weights: Counter[int] = Counter()
        deep_weights: Counter[int] = Counter()
        blocks: list[Block] = []
        in_blocks: set[nn.Module] = set()
        in_deep = {module for transformer in host.deep_transformers for module in transformer.modules()}
        for depth, module in host.modules():
            for block in blocks_of(module):
                blocks.append(_block(depth, block))
                in_blocks.update(block.modules())
            if module not in in_blocks:
                own = _weights_per_position(module)
                weights[depth] += own
                deep_weights[depth] += own if module in in_deep else 0
        depths = range(max(weights, default=-1) + 1)
        by_depth = tuple(weights[depth] for depth in depths)
        return cls(host.depth, by_depth, tuple(deep_weights[depth] for depth in depths), tuple(blocks))

    def work(self, size: TokenGrid, levels: Iterable[LevelPlan], *, predicts: bool = False) -> float:
        """Multiply-adds of one row at a latent of ``size``, perhaps without the deep transformers."""
        plans = {level.level: level for level in levels if level.reduces}
        left_out = self.deep_weights if predicts else [0] * len(self.weights)
        weights = zip(self.weights, left_out, strict=True)
        work: float = sum((w - out) * size.halved(depth).tokens for depth, (w, out) in enumerate(weights))
        for block in self.blocks:
            if predicts and block.depth > self.depth:
                continue
            work += _block_work(block, size.halved(block.depth).tokens, plans.get(block.depth - self.depth + 1))
        return work

    def share_saved(self, size: TokenGrid, calls: Mapping[Kind, float], steps: int) -> float:
        """The share of the work of a pass that is saved, from 0 to 1. In its other ``steps`` no layer runs."""
        ran = sum(count * self.work(size, levels, predicts=deep) for (levels, deep), count in calls.items())
        return 1 - ran / (steps * self.work(size, ()))


_layouts: WeakKeyDictionary[Host, Layout] = WeakKeyDictionary()


def layout_of(host: Host) -> Layout:
    """The layout of a model, counted once: SDXL has thousands of modules."""
    if host not in _layouts:
        _layouts[host] = Layout.of(host)
    return _layouts[host]


def _weights_per_position(module: Any) -> int:
    """Weights that a module outside the blocks uses at each position. Other linear layers run once a row."""
    if isinstance(module, nn.Conv2d):
        return _weights(module)
    ends: Iterable[Any] = (getattr(module, name, None) for name in ("proj_in", "proj_out")) if blocks_of(module) else ()
    return sum(_weights(end) for end in ends if isinstance_str(end, "Linear"))


def _block(depth: int, block: Any) -> Block:
    attn2 = getattr(block, "attn2", None)
    width = _inputs(block.attn1.to_q)
    text = _inputs(attn2.to_k) if attn2 is not None else 0
    # by name: the linear layers of Forge are no nn.Linear. Those of peft hold the original one, which counts alone
    linear = (m for m in block.ff.modules() if isinstance_str(m, "Linear") and not hasattr(m, "base_layer"))
    feed_forward = sum(map(_weights, linear))
    return Block(depth, width, text, feed_forward)


def _inputs(linear: Any) -> int:
    return (weight_shape(linear) or (0, 0))[1]


def _weights(layer: Any) -> int:
    return math.prod(weight_shape(layer) or (0,))


def _block_work(block: Block, n: int, plan: LevelPlan | None) -> float:
    """The work of a block with ``n`` tokens, of which the plan leaves some."""
    c, left, modules, compared = block.width, n, tuple[str, ...](), 0
    if plan:
        left, modules, compared = plan.keys, plan.modules, plan.compared
    queries, text_queries, ff_tokens = (left if each in modules else n for each in ("attn1", "attn2", "ff"))
    keys = queries if modules else left
    attention = 2 * c * c * (queries + keys) + 2 * c * queries * keys
    text = 2 * c * c * text_queries + 2 * c * TEXT_TOKENS * text_queries + 2 * c * block.text_width * TEXT_TOKENS
    return attention + (text if block.text_width else 0) + block.feed_forward * ff_tokens + c * compared
