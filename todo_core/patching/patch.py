"""The Python API: put a reduction on a model, and take it off again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary, ref

from torch.nn import Module

from ..hosts import detect
from ..settings import Settings
from .session import Session

# The session of each patched UNet, so that patching can begin by removing. It is not an attribute of the model: a patch
# leaves nothing behind. The references are weak: the hooks keep their session alive as long as the model lives.
_sessions: WeakKeyDictionary[Module, ref[Session]] = WeakKeyDictionary()


def apply_patch(model: Any, settings: Settings | None = None, **overrides: Any) -> Session:
    """Reduce the self-attention of ``model`` from its next call on, and return the session.

    ``model`` is an ldm or sgm LatentDiffusion or UNetModel, or a diffusers pipeline, UNet or ControlNet; of a pipeline
    only the UNet is patched. ``overrides`` are fields of ``Settings``. An earlier patch is taken off first.
    ``passes`` and ``img2img`` have no effect here: every call whose timestep is in the window is reduced.
    The patch is for sampling. Gradient checkpointing would recompute the blocks without the reduction.
    ``session.plan`` says what will happen: at the size that the model was trained at, until a call has another.

    Raises SettingsError and UnsupportedModelError before anything is changed.
    """
    settings = replace(settings or Settings(), **overrides)
    host = detect(model)
    _remove(host.unet)
    session = Session(host, settings).attach()
    _sessions[host.unet] = ref(session)
    return session


def remove_patch(model: Any) -> Any:
    """Take the patch off, if there is one, without a trace. Returns ``model``."""
    _remove(detect(model).unet)
    return model


@contextmanager
def patched(model: Any, settings: Settings | None = None, **overrides: Any) -> Iterator[Session]:
    """``with patched(model, settings) as session:`` takes the patch off at the end of the block, whatever happens."""
    session = apply_patch(model, settings, **overrides)
    try:
        yield session
    finally:
        session.remove()


def _remove(unet: Module) -> None:
    session = _sessions.pop(unet, lambda: None)()
    if session:
        session.remove()
