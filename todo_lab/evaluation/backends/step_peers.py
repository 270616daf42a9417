"""Adapters for methods that save work between steps, on ldm UNets.

Their own code is for diffusers pipelines or for one WebUI. So each is written here after its source, but for Spectrum,
whose forecaster comes from its checkout. A pass makes one UNet call a step, with cond and uncond as its two rows.
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
    unet: Any = hosts.detect(target).unet
    deep: list[Tensor] = []

    def keep(_: nn.Module, args: tuple) -> None:
        deep[:] = [args[0][:, : -unet.model_channels]]  # the rest are the features of the first block

    def call(step: int, own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        if step % interval == 0:
            return own(x, timesteps, context)
        emb = embedded(unet, timesteps)
        h = unet.input_blocks[0](x, emb, context)
        return unet.out(unet.output_blocks[-1](torch.cat([deep[0], h], 1), emb, context))

    unet.output_blocks[-1].register_forward_pre_hook(keep)
    replace_forward(unet, call)


def fbcache(path: None, target: Any, request: Request, *, threshold: float = 0.2) -> None:
    """First Block Cache on a UNet, as Comfy-WaveSpeed has it: it keeps what the later blocks add.

    It is added again while what the first block adds differs by less than ``threshold``, relative to the last full
    call.
    """
    unet: Any = hosts.detect(target).unet
    first: Tensor | None = None
    others: Tensor | None = None

    def call(_: int, own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        nonlocal first, others
        emb = embedded(unet, timesteps)
        skips = [unet.input_blocks[0](x, emb, context)]
        skips.append(start := unet.input_blocks[1](skips[0], emb, context))
        added = start - skips[0]
        if first is not None and (first - added).abs().mean() < threshold * first.abs().mean():
            return unet.out(start + others)
        h, first = start, added
        for block in unet.input_blocks[2:]:
            skips.append(h := block(h, emb, context))
        h = unet.middle_block(h, emb, context)
        for block in unet.output_blocks:
            h = block(torch.cat([h, skips.pop()], 1), emb, context)
        others = h - start
        return unet.out(h)

    replace_forward(unet, call)


def skipped_uncond(path: None, target: Any, request: Request, *, start: float = 0.0, every: int = 2) -> None:
    """A1111's Negative Guidance minimum sigma: from ``start`` of the pass, no uncond row in every ``every``-th step."""

    def call(step: int, own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        if step < start * request.hires_steps or (step + 1) % every:
            return own(x, timesteps, context)
        return of_cond(own, x, timesteps, context)

    replace_forward(hosts.detect(target).unet, call)


def t_gate(path: None, target: Any, request: Request, *, gate: float = 0.4) -> None:
    """T-GATE (Zhang et al. 2024): past ``gate`` of the pass, no uncond row, and cross-attention as it was then."""
    host = hosts.detect(target)
    last = max(1, round(gate * request.hires_steps))
    is_gated = False

    def kept(own: Call) -> Call:
        mean: list[Tensor] = []

        def forward(x: Tensor, context: Any = None, mask: Any = None) -> Tensor:
            if not is_gated:
                output = own(x, context, mask)
                mean[:] = [output.mean(0, keepdim=True)]
                return output
            return mean[0]

        return forward

    def call(step: int, own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        nonlocal is_gated
        is_gated = step >= last
        return of_cond(own, x, timesteps, context) if is_gated else own(x, timesteps, context)

    for site in host.sites:
        attention: Any = site.block.attn2
        attention.forward = kept(attention.forward)
    replace_forward(host.unet, call)


def spectrum(
    path: Path,
    target: Any,
    request: Request,
    *,
    warmup: int = 5,
    window: float = 2,
    flex: float = 0.75,
    w: float = 0.5,
    lam: float = 0.1,
    m: int = 4,
) -> None:
    """hanjq17/Spectrum (CVPR 2026): it forecasts what enters the UNet's last layers. Defaults: its SDXL script."""
    basis: Any = import_from(path / "src" / "utils", "basis_utils")
    basis.DTYPE = torch.float32  # its bfloat16 is for a GPU
    unet: Any = hosts.detect(target).unet
    forecaster = basis.Spectrum(basis.ChebyshevForecaster(M=m, K=100, lam=lam), taylor_order=1, prefer="cheb", w=w)
    skipped, width, shape = 0, window, torch.Size()

    def call(step: int, own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        nonlocal skipped, width, shape
        is_full = step < warmup or (skipped + 1) % math.floor(width) == 0
        if is_full and step >= warmup:
            width += flex
        skipped = 0 if is_full else skipped + 1
        if not is_full:
            return unet.out(forecaster.predict(step).view(shape).to(x))
        seen: list[Tensor] = []
        hook = unet.out.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        output = own(x, timesteps, context)
        hook.remove()
        shape = seen[0].shape
        forecaster.update(step, seen[0].reshape(1, -1))
        return output

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

    def call(_: int, own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        nonlocal rate, total
        done = 1 - float(timesteps.flatten()[0]) / 1000
        if done >= end:
            return own(x, timesteps, context)
        change = (_coarse(x) - known["input"]).abs().mean() if known and done >= start else None
        if change is not None and rate is not None:
            total = total + rate * change / known["size"]
            if total < threshold:
                return x + known["difference"]
            total = torch.zeros(())
        output = own(x, timesteps, context)
        if change is not None:
            rate = (_coarse(output) - known["output"]).abs().mean() / change
        known.update(input=_coarse(x), output=_coarse(output), size=output.abs().mean(), difference=output - x)
        return output

    replace_forward(hosts.detect(target).unet, call)


def _coarse(x: Tensor) -> Tensor:
    """Every eighth row and column of the first image."""
    return x[:1, :, ::8, ::8]


def replace_forward(unet: Any, call: Callable[[int, Call, Tensor, Tensor, Tensor], Tensor]) -> None:
    """Put ``call`` in the place of the UNet's forward. It gets the step, from 0, and that forward before the rest."""
    whole, steps = unet.forward, itertools.count()

    def own(x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        return whole(x, timesteps=timesteps, context=context)

    def forward(x: Tensor, timesteps: Any = None, context: Any = None) -> Tensor:
        return call(next(steps), own, x, timesteps, context)

    unet.forward = forward


def of_cond(own: Call, x: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
    """The output for the cond row, twice: guidance then leaves it as it is."""
    return own(x[:1], timesteps[:1], context[:1]).repeat(2, 1, 1, 1)


def embedded(unet: Any, timesteps: Tensor) -> Tensor:
    """The UNet's embedding of the timesteps (b, channels)."""
    from ldm.modules.diffusionmodules.util import timestep_embedding

    return unet.time_embed(timestep_embedding(timesteps, unet.model_channels, repeat_only=False))
