"""Images of a model in this process: the pocket model or any other `LatentModel`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from todo_core.patching.record import Record
from todo_core.settings import Settings

from ...sampling.infotext import format_infotext
from ...sampling.passes import LatentModel, Sampled, decode_image, first_pass, hires_pass, what_ran
from ...sampling.request import Request
from ..variants import Variant
from . import peers

BASELINE_STEPS = 3
CPU_ATTENTION = {  # torch counts a GPU's alone
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)
}


@dataclass
class TimedImage:
    """One image and its times in seconds. ``step_seconds`` are those of the hires pass."""

    image: np.ndarray  # uint8 (h, w, 3)
    step_seconds: list[float]
    first_seconds: float
    hires_seconds: float
    total_seconds: float
    infotext: str = ""
    plan: str = ""
    notes: Sequence[str] = ()
    peak_mib: float | None = None
    more: dict[str, Any] = field(default_factory=dict)


class Local:
    """Makes images with a model. ``peers`` maps the name of an adapter to the folder of its checkout."""

    def __init__(self, model: LatentModel, peers: Mapping[str, Path] | None = None, *, counts: bool = False) -> None:
        self.model, self.peers, self.counts = model, dict(peers or {}), counts
        self._first_passes: dict[Request, Sampled] = {}
        device, dtype = str(model.device), str(model.dtype).removeprefix("torch.")
        self.about = {"model": model.name, "device": device, "dtype": dtype}

    def prepare(self, request: Request) -> LocalScene:
        """Sample the baseline first pass, once for all hires passes that begin with it."""
        first = replace(request, hires_scale=1, hires_steps=1, denoising=1)
        if first not in self._first_passes:
            once = replace(request, steps=1, hires_steps=1)
            hires_pass(self.model, once, first_pass(self.model, once))  # a warm-up
            self._first_passes[first] = first_pass(self.model, first)
        return LocalScene(self, request, self._first_passes[first])


class LocalScene:
    """A scene whose variants start from one baseline first pass.

    Settings that act in the first pass get a first pass of their own.
    """

    def __init__(self, backend: Local, request: Request, first: Sampled) -> None:
        self._backend, self._model, self._request, self._first = backend, backend.model, request, first

    def generate(self, variant: Variant) -> TimedImage:
        """Run hires pass and decoding. The total time includes the first pass."""
        settings = _settings(variant)
        request = peers.request_of(variant.peer, self._request, variant.options)
        device = self._model.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        acts_in_first = settings is not None and settings.includes("first")
        first = first_pass(self._model, self._request, settings) if acts_in_first else self._first
        counter = FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION)
        with self._peer(variant), counter if self._backend.counts else nullcontext():
            hires = hires_pass(self._model, request, first, settings)
        started = time.perf_counter()
        image = decode_image(self._model, hires)
        decoding = time.perf_counter() - started
        reduction = {"Peer": variant.name} if variant.peer else what_ran(first, hires)
        more: dict[str, Any] = {"ran": step_letters(hires.record, request.hires_steps)}
        if self._backend.counts:
            more["multiplications"] = counter.get_total_flops() // 2  # each with an addition
        return TimedImage(
            image,
            hires.step_seconds,
            first.total_seconds,
            hires.total_seconds,
            first.total_seconds + hires.total_seconds + decoding,
            format_infotext(self._request, self._model.name, reduction),
            str(hires.plan or first.plan or ""),
            tuple(dict.fromkeys([*first.why_less, *hires.why_less])),
            torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None,
            more,
        )

    def time_baseline_steps(self) -> list[float]:
        """Run a few baseline steps at the hires size. They tell how fast the machine is at this moment."""
        steps = min(BASELINE_STEPS, self._request.hires_steps)
        return hires_pass(self._model, replace(self._request, hires_steps=steps), self._first).step_seconds

    def warm_up(self, variant: Variant) -> None:
        """Run one step of the hires pass."""
        settings = _settings(variant)
        once = replace(self._request, hires_steps=1)
        with self._peer(variant):
            hires_pass(self._model, once, self._first, settings and replace(settings, start=0, end=1))

    def _peer(self, variant: Variant) -> AbstractContextManager[None]:
        if not variant.peer:
            return nullcontext()
        path = self._backend.peers.get(variant.peer)
        return peers.applied(variant.peer, path, self._model.target, self._request, variant.options)


def step_letters(record: Record, steps: int) -> str:
    """A letter for each step: t where tokens are reduced, d with deep layers predicted, b both, - predicted, . none."""
    tokens: set[int] = set().union(*record.ran_in.values())
    whole, deep = (part.predicted_in for part in record.parts.values())
    kinds = ((step in tokens, step in deep, step in whole) for step in range(steps))
    return "".join("-" if is_whole else ".tdb"[is_reduced + 2 * is_deep] for is_reduced, is_deep, is_whole in kinds)


def _settings(variant: Variant) -> Settings | None:
    return None if variant.settings.method == "none" else variant.settings
