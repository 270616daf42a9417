"""Adapters for methods that save work between steps, on ldm UNets.

Their own code is for diffusers pipelines or for one WebUI. So each is written here after its source. A pass makes one
UNet call a step, with cond and uncond as its two rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from todo_core import hosts

from ...sampling.request import Request
from .checkouts import import_from

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


def spectrum(path: Path, target: Any, request: Request, *, warmup: int = 5, window: float = 2, w: float = 0.5) -> None:
    """hanjq17/Spectrum (CVPR 2026): it forecasts what enters the UNet's last layers. Defaults: its SDXL script."""
    basis: Any = import_from(path / "src" / "utils", "basis_utils")
    basis.DTYPE = torch.float32  # its bfloat16 is for a GPU
    unet: Any = hosts.detect(target).unet
    forecaster = basis.Spectrum(basis.ChebyshevForecaster(M=4, K=100, lam=0.1), taylor_order=1, prefer="cheb", w=w)
    skipped, width, shape = 0, window, torch.Size()

    def keep(step: int, args: tuple) -> None:
        nonlocal shape
        shape = args[0].shape
        forecaster.update(step, args[0].reshape(1, -1))

    def call(step: int, own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        nonlocal skipped, width
        is_full = step < warmup or (skipped + 1) % math.floor(width) == 0
        width += 0.75 * (is_full and step >= warmup)
        skipped = 0 if is_full else skipped + 1
        if not is_full:
            return unet.out(forecaster.predict(step).view(shape).to(x))
        with unet.out.register_forward_pre_hook(lambda _, args: keep(step, args)):
            return own(x, timesteps, context)

    replace_forward(unet, call)


def easycache(
    path: None, target: Any, request: Request, *, threshold: float = 0.2, start: float = 0.15, end: float = 0.95
) -> None:
    """EasyCache (Zhou et al. 2025, arXiv 2507.02860) as ComfyUI's node has it: it keeps the output minus the input.

    It is added again while the estimated change of the output since the last computed step stays below ``threshold``.
    ``start`` and ``end`` are shares of the noise schedule.
    """
    known: dict[str, Tensor] = {}  # of the last computed step
    rate: Tensor | None = None  # change of the output to that of the input
    total = torch.zeros(())

    def coarse(x: Tensor) -> Tensor:
        return x[:1, :, ::8, ::8]

    def call(_: int, own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        nonlocal rate, total
        done = 1 - float(timesteps.flatten()[0]) / 1000
        if done >= end:
            return own(x, timesteps, context)
        change = (coarse(x) - known["input"]).abs().mean() if known and done >= start else None
        if change is not None and rate is not None:
            total = total + rate * change / known["size"]
            if total < threshold:
                return x + known["difference"]
            total = torch.zeros(())
        output = own(x, timesteps, context)
        if change is not None:
            rate = (coarse(output) - known["output"]).abs().mean() / change
        known.update(input=coarse(x), output=coarse(output), size=output.abs().mean(), difference=output - x)
        return output

    replace_forward(hosts.detect(target).unet, call)


def replace_forward(unet: Any, call: Callable[[int, Call, Tensor, Tensor, Tensor], Tensor]) -> None:
    """Put ``call`` in the place of the UNet's forward. It gets the step, from 0, and that forward before the rest."""
    own, steps = unet.forward, itertools.count()

    def forward(x: Tensor, timesteps: Any = None, context: Any = None) -> Tensor:
        return call(next(steps), own, x, timesteps, context)

    unet.forward = forward
