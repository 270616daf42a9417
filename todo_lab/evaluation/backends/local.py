"""Images by a model in this process: the pocket model, or any other `LatentModel`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from todo_core.settings import Settings

from ...sampling.infotext import infotext
from ...sampling.passes import LatentModel, Pass, first_pass, hires_pass, picture
from ...sampling.request import Request
from ..metrics.peak_memory import peak_memory
from ..running.variants import Variant
from . import peers
from .backend import Shot

PACE_STEPS = 3


class Local:
    """``peers`` maps the name of an adapter to the folder of that implementation's checkout."""

    def __init__(self, model: LatentModel, peers: Mapping[str, Path] | None = None) -> None:
        self.model, self.peers = model, dict(peers or {})
        device, dtype = str(model.device), str(model.dtype).removeprefix("torch.")
        self.about = {"backend": "local", "model": model.name, "device": device, "dtype": dtype}

    def stage(self, request: Request) -> LocalStage:
        """Sample the unreduced first pass."""
        return LocalStage(self, request)


class LocalStage:
    """The first pass is sampled once, unreduced, and every variant goes on from it.

    Settings that act in the first pass have one of their own.
    """

    def __init__(self, backend: Local, request: Request) -> None:
        self._backend, self._model, self._request = backend, backend.model, request
        once = replace(request, steps=1, hires_steps=1)
        hires_pass(self._model, once, first_pass(self._model, once))  # kernels and memory are there before it counts
        self._first = first_pass(self._model, request)

    def shoot(self, variant: Variant) -> Shot:
        """First pass, hires pass and decoding; the whole time is their sum."""
        settings, request = self._settings(variant), self._request
        with peak_memory(self._model.device) as peak:
            first = self._first_of(settings)
            with self._peer(variant):
                hires = hires_pass(self._model, request, first, settings)
            started = time.perf_counter()
            image = picture(self._model, hires)
            decoding = time.perf_counter() - started
        return Shot(
            image,
            hires.seconds,
            first.total,
            hires.total,
            first.total + hires.total + decoding,
            self._infotext(variant),
            str(hires.plan or first.plan or ""),
            tuple(dict.fromkeys([*first.record.notes, *hires.record.notes])),
            peak.mib,
            peak.kind,
        )

    def _infotext(self, variant: Variant) -> str:
        told = {"Peer": variant.name} if variant.peer else {} if variant.unreduced else variant.settings.to_infotext()
        return infotext(self._request, self._model.name, told)

    def pace(self) -> list[float]:
        """A few unreduced steps at the hires size."""
        few = min(PACE_STEPS, self._request.hires_steps)
        return hires_pass(self._model, replace(self._request, hires_steps=few), self._first).seconds

    def warm_up(self, variant: Variant) -> None:
        """One step of the hires pass."""
        settings = self._settings(variant)
        once = replace(self._request, hires_steps=1)
        with self._peer(variant):
            hires_pass(self._model, once, self._first, settings and replace(settings, start=0, end=1))

    def _settings(self, variant: Variant) -> Settings | None:
        return None if variant.settings.method == "none" else variant.settings

    def _first_of(self, settings: Settings | None) -> Pass:
        acts = settings is not None and settings.passes in ("first", "all")
        return first_pass(self._model, self._request, settings) if acts else self._first

    def _peer(self, variant: Variant) -> AbstractContextManager[None]:
        if not variant.peer:
            return nullcontext()
        path = self._backend.peers.get(variant.peer)
        return peers.applied(variant.peer, path, self._model.target, self._request, variant.options)
