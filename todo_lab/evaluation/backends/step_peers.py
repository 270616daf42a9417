"""Adapters for methods that save work between steps, on ldm UNets.

Their own code is for diffusers pipelines or for one WebUI. So each is written here after its source. A pass makes one
UNet call a step, with cond and uncond as its two rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from todo_core import hosts

from ...sampling.request import Request

Call = Callable[[Tensor, Tensor, Tensor], Tensor]


def deepcache(path: None, target: Any, request: Request, *, interval: int = 2) -> None:
    """DeepCache (Ma et al., CVPR 2024), branch 0: between full calls, only the first and the last block run."""
    from ldm.modules.diffusionmodules.util import timestep_embedding

    unet: Any = hosts.detect(target).unet
    deep: list[Tensor] = []

    def keep(_: nn.Module, args: tuple) -> None:
        deep[:] = [args[0][:, : -unet.model_channels]]  # the rest are the features of the first block

    def call(step: int, own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        if step % interval == 0:
            return own(x, timesteps, context)
        emb = unet.time_embed(timestep_embedding(timesteps, unet.model_channels, repeat_only=False))
        h = unet.input_blocks[0](x, emb, context)
        return unet.out(unet.output_blocks[-1](torch.cat([deep[0], h], 1), emb, context))

    unet.output_blocks[-1].register_forward_pre_hook(keep)
    replace_forward(unet, call)


def zeus(path: None, target: Any, request: Request, *, skipped: int = 2, start: float = 0.2, end: float = 0.9) -> None:
    """ZEUS (Wang et al. 2026, arXiv 2604.01552): after a computed step, ``skipped`` steps are predicted.

    Between ``start`` and ``end`` of the pass. The first of them continues the line through the last two outputs, the
    second repeats the last output, the third takes the first one's prediction, and so on. As in its code, a predicted
    step counts as a repetition when the line is drawn. Its Lagrange polynomial, for 50 steps, is left out.
    """
    outputs: list[Tensor] = []
    line = torch.empty(0)
    predicted = 0  # in a row

    def call(step: int, own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        nonlocal line, predicted
        last = step - 1
        is_inside = max(3, start * request.hires_steps) <= last < end * request.hires_steps
        predicted = predicted + 1 if is_inside and last % (skipped + 1) < skipped else 0
        if not predicted:
            outputs.append(own(x, timesteps, context))
            return outputs[-1]
        if predicted == 1:
            line = 2 * outputs[-1] - outputs[-2]
        outputs.append(outputs[-1])
        return line if predicted % 2 else outputs[-1]

    replace_forward(hosts.detect(target).unet, call)


def replace_forward(unet: Any, call: Callable[[int, Call, Tensor, Tensor, Tensor], Tensor]) -> None:
    """Put ``call`` in the place of the UNet's forward. It gets the step, from 0, and that forward before the rest."""
    own, steps = unet.forward, itertools.count()

    def forward(x: Tensor, timesteps: Any = None, context: Any = None) -> Tensor:
        return call(next(steps), own, x, timesteps, context)

    unet.forward = forward
