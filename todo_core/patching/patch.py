"""The Python door: put a reduction on a model, and take it off again."""

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

# Which session sits on which UNet, so that patching can begin by removing. Kept here and not on the model, for a patch
# leaves no attribute behind; weakly, for the hooks keep their session alive, and a dropped model takes both along.
_sessions: WeakKeyDictionary[Module, ref[Session]] = WeakKeyDictionary()


def apply_patch(model: Any, settings: Settings | None = None, **overrides: Any) -> Session:
    """Reduce the self-attention of ``model`` from its next call on, and return the session.

    ``model`` is an ldm or sgm LatentDiffusion or UNetModel, or a diffusers pipeline, UNet or ControlNet; of a pipeline
    the UNet alone is patched. ``overrides`` are fields of ``Settings``. A patch that is already there is taken off
    first. ``passes`` and ``img2img`` do not matter here: every call whose timestep lies in the window is reduced.
    It is made for sampling: a backward pass through blocks that torch checkpoints would recompute them whole.
    ``session.plan`` says what will happen; it is made for the model's own training size until a call shows another.

    Raises SettingsError and UnsupportedModelError, both before anything is changed.
    """
    settings = replace(settings or Settings(), **overrides)
    host = detect(model)
    _remove(host.unet)
    session = Session(host, settings).attach()
    _sessions[host.unet] = ref(session)
    return session


def remove_patch(model: Any) -> Any:
    """Take the patch off, if there is one; nothing of it stays. Returns ``model``."""
    _remove(detect(model).unet)
    return model


@contextmanager
def patched(model: Any, settings: Settings | None = None, **overrides: Any) -> Iterator[Session]:
    """``with patched(model, settings) as session:`` the patch lasts as long as the block, whatever happens in it."""
    session = apply_patch(model, settings, **overrides)
    try:
        yield session
    finally:
        session.remove()


def _remove(unet: Module) -> None:
    session = _sessions.pop(unet, lambda: None)()
    if session:
        session.remove()
