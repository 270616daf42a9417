"""How much work a plan saves: multiply-adds, counted from the model's own layers. The only place with that formula.

A row of a UNet call costs weights x positions for every layer, and in self-attention of n tokens and c channels, with
q queries and k keys, 2*c*c*(q + k) for the projections and 2*c*q*k to attend. Only q and k depend on the plan.
Time follows work more or less closely, by device and kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from .hosts import Host, blocks_of
from .patching.plan import LevelPlan, Plan
from .patching.token_grid import TokenGrid
from .settings import Settings

TEXT_TOKENS = 77


@dataclass(frozen=True)
class Block:
    """A transformer block: its channels, the text's, and the weights of its feed-forward part."""

    depth: int
    width: int
    text_width: int
    feed_forward: int


@dataclass(frozen=True)
class Layout:
    """What the work of a UNet is made of. ``weights`` are those used once a position, by depth."""

    depth: int  # halvings before level 1
    weights: tuple[int, ...]
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, host: Host) -> Layout:
        """Count the layers of a model."""
        weights: dict[int, int] = {}
        blocks: list[Block] = []
        inside: set[nn.Module] = set()
        for depth, module in host.tour():
            for block in blocks_of(module):
                blocks.append(_block(depth, block))
                inside.update(block.modules())
            if module not in inside:
                weights[depth] = weights.get(depth, 0) + _weights_a_position(module)
        by_depth = tuple(weights.get(depth, 0) for depth in range(max(weights, default=-1) + 1))
        return cls(host.depth, by_depth, tuple(blocks))

    def work(self, size: TokenGrid, levels: tuple[LevelPlan, ...] = (), settings: Settings | None = None) -> Work:
        """Multiply-adds of one row at a latent of ``size``, with these levels reduced."""
        reduced = {level.level: level.keys for level in levels if level.reduces}
        rest: float = sum(w * size.halved(depth).tokens for depth, w in enumerate(self.weights))
        attention: float = 0
        for block in self.blocks:
            n = size.halved(block.depth).tokens
            part = _block_work(block, n, reduced.get(block.depth - self.depth + 1, n), settings or Settings())
            attention, rest = attention + part[0], rest + part[1]
        return Work(attention, rest)


@dataclass(frozen=True)
class Work:
    """Multiply-adds: of self-attention, projections included, and of everything else."""

    attention: float
    rest: float

    @property
    def total(self) -> float:
        """Both."""
        return self.attention + self.rest

    def __add__(self, other: Work) -> Work:
        return Work(self.attention + other.attention, self.rest + other.rest)

    def __mul__(self, share: float) -> Work:
        return Work(self.attention * share, self.rest * share)


@dataclass(frozen=True)
class Estimate:
    """A plan's work, averaged over its pass, beside the unpatched model's."""

    plan: Plan
    whole: Work
    reduced: Work

    @classmethod
    def of(cls, layout: Layout, plan: Plan) -> Estimate:
        """Weigh the window, what comes after it, and the steps that are left whole."""
        settings, whole = plan.settings, layout.work(plan.size)
        within = layout.work(plan.size, plan.at(settings.start), settings)
        after = layout.work(plan.size, () if settings.end >= 1 else plan.at(1), settings)
        reduced = whole * settings.start + within * (settings.end - settings.start) + after * (1 - settings.end)
        return cls(plan, whole, reduced)

    def __str__(self) -> str:
        if not self.plan.reduces:
            return f"nothing will be reduced: {'; '.join(self.plan.reasons)}"
        levels = [level for level in self.plan.levels if level.reduces] or [a for a in self.plan.after if a.reduces]
        left = "keys" if self.plan.settings.target == "keys/values" else "left"
        tokens = ", ".join(f"{p.grid.tokens:,} tokens, {p.keys:,} {left} at level {p.level}" for p in levels)
        attention = self.whole.attention / self.reduced.attention
        total = self.whole.total / self.reduced.total
        return f"{tokens}; self-attention {attention:.1f}x less work, UNet about {total:.1f}x less"


def _weights_a_position(module: Any) -> int:
    """Weights that a module itself uses at every position. Other linear layers see the timestep, once a row."""
    if isinstance(module, nn.Conv2d):
        return module.weight.numel()
    ends = (getattr(module, name, None) for name in ("proj_in", "proj_out")) if blocks_of(module) else ()
    return sum(end.weight.numel() for end in ends if isinstance(end, nn.Linear))


def _block(depth: int, block: Any) -> Block:
    attn2 = getattr(block, "attn2", None)
    width = block.attn1.to_q.in_features
    text = attn2.to_k.in_features if attn2 is not None else 0
    feed_forward = sum(m.weight.numel() for m in block.ff.modules() if isinstance(m, nn.Linear))
    return Block(depth, width, text, feed_forward)


def _block_work(block: Block, n: int, left: int, settings: Settings) -> tuple[float, float]:
    """(self-attention, the rest) of a block with ``n`` tokens, of which its reduction leaves ``left``."""
    c, merged = block.width, settings.target == "all"
    keys = n if merged and not settings.attn else left
    queries = keys if merged else n
    asking = left if merged and settings.crossattn else n
    feeding = left if merged and settings.mlp else n
    attention = 2 * c * c * (queries + keys) + 2 * c * queries * keys
    text = 2 * c * c * asking + 2 * c * TEXT_TOKENS * asking + 2 * c * block.text_width * TEXT_TOKENS
    return attention, (text if block.text_width else 0) + block.feed_forward * feeding
