"""The Python API: put a reduction on a model, and take it off again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn import Module

from ..hosts import detect
from ..hosts.compiled_code import forget_compiled_code
from ..settings import Settings
from ..settings.keywords import combine, show_settings
from .hooks.module_calls import hooks_on
from .session import Session


@show_settings
def apply_patch(
    model: Any, settings: Settings | None = None, *, preset: str | None = None, **overrides: Any
) -> Session:
    """Reduce the self-attention of ``model`` from its next call on, and return the session.

    ``model`` is a UNet or ControlNet of ldm, sgm or diffusers, an ldm LatentDiffusion, an sgm DiffusionEngine, or a
    diffusers pipeline, of which only the UNet is patched. ``overrides`` are fields of ``Settings``; the others come
    from ``settings`` or from the built-in ``preset``. An earlier patch is taken off first. ``passes`` has no effect
    here: every call whose timestep is in the window is reduced.
    The patch is for sampling. Gradient checkpointing would recompute the blocks without the reduction.
    ``session.plan`` says what will happen: at the size that the model was trained at, until a call has another.

    Raises SettingsError and UnsupportedModelError before anything is changed.

    >>> session = apply_patch(unet, factor_1=2, interval=1)
    >>> print(session.plan)
    level 1: 64 x 64, 4,096 tokens -> 1,024 by downsample (32 x 32), 3 blocks
    level 2: 32 x 32, 1,024 tokens, not reduced: this model was trained at 512 x 512
    >>> remove_patch(unet) is unet
    True
    """
    settings = combine(settings, preset, overrides)
    host = detect(model)
    _remove(host.unet)
    return Session(host, settings).attach()


def remove_patch(model: Any) -> Any:
    """Take the patch off, if there is one, without a trace. Returns ``model``."""
    _remove(detect(model).unet)
    return model


@show_settings
@contextmanager
def patched(
    model: Any, settings: Settings | None = None, *, preset: str | None = None, **overrides: Any
) -> Iterator[Session]:
    """``with patched(model, factor_1=2) as session:`` takes the patch off at the end of the block, whatever happens.

    A patch that was there before the block comes back, as with torch's own nested contexts.

    >>> with patched(unet, preset="ToDo paper") as session:
    ...     output = unet(latent, timestep, context=text)
    >>> print(session.record)
    <Record: level 1 by downsample in 1 steps>
    """
    unet = detect(model).unet
    outer = _session_on(unet)
    session = apply_patch(model, settings, preset=preset, **overrides)
    try:
        yield session
    finally:
        session.remove()
        if outer and not _session_on(unet):
            outer.attach()


def _session_on(unet: Module) -> Session | None:
    """The session whose hooks are on ``unet``. The hooks themselves tell, so copies of a model work alike."""
    return next((hook.owner for hook in hooks_on(unet) if isinstance(hook.owner, Session)), None)


def _remove(unet: Module) -> None:
    hooks = [hook for module in unet.modules() for hook in hooks_on(module)]
    for session in {hook.owner for hook in hooks_on(unet) if isinstance(hook.owner, Session)}:
        session.remove()
    for hook in hooks:  # some may be of a session on another model, where a module was copied from there
        hook.remove()
    if hooks:
        forget_compiled_code(unet)
