"""Adapters for other implementations, each from its own unmodified checkout.

They act in the hires pass only, which is also our default. Afterwards the model is restored.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from torch import Tensor, nn

from todo_core.errors import SettingsError

from ...sampling.request import Request

ALWAYS = sys.maxsize
Adapter = Callable[..., None]


@contextmanager
def applied(name: str, path: Path | None, target: Any, request: Request, options: str = "{}") -> Iterator[None]:
    """Apply the peer ``name`` to ``target`` (a model that `apply_patch` accepts) with ``options`` (JSON).

    ``path`` is its checkout; an installed tomesd needs none. Raises SettingsError for an unknown name.
    """
    if name not in ADAPTERS:
        raise SettingsError("peer", name, ", ".join(ADAPTERS))
    if path is None and name not in INSTALLED:
        raise SettingsError("peer", name, f"--peer {name}=PATH, the folder of its checkout")
    with restored(target):
        ADAPTERS[name](path, target, request, **json.loads(options))
        yield


def _tomesd(path: Path | None, target: Any, request: Request, **options: Any) -> None:
    """dbolya/tomesd: ``ratio`` and the other options of its apply_patch. It replaces the class of the blocks."""
    _from(path, "tomesd").apply_patch(target, **options)


def _improved_token_merge(path: Path, target: Any, request: Request, *, factor: int = 2, **options: Any) -> None:
    """ethansmith2000/ImprovedTokenMerge, on diffusers. It finds its levels by SD 1.5's 320 and 640 channels."""
    unet = _diffusers_unet(target)
    one_method = {"timestep_threshold_switch": 0.0, "downsample_factor": factor}  # the same method in every step
    unet.register_forward_pre_hook(_one_timestep, with_kwargs=True)
    with _stubs("xformers", "xformers.ops"):
        peer = _from(path, "utils", beside=("merge",))
    # it passes a LoRA scale to layers; current diffusers accepts one only with peft
    peer.TokenMergeAttentionProcessor.__call__.__globals__["USE_PEFT_BACKEND"] = True
    peer.patch_attention_proc(unet, {**one_method, **options})


def _token_downsampling(path: Path, target: Any, request: Request, *, factor: float = 2, factor2: float = 1) -> None:
    """feffy380/sd-webui-token-downsampling, on ldm. By default it stops before the hires pass; here it never stops."""
    with _stubs(*_WEBUI_MODULES):
        script = _from(path / "scripts", "token_downsampling")
    script.apply_patch(_ldm(target), False, factor, factor2, ALWAYS)


def _hypertile(path: Path, target: Any, request: Request, *, tile: int = 256, swap: int = 1, depth: int = 3) -> None:
    """The WebUI's built-in HyperTile, on ldm; ``path`` is its folder. It finds layers by SD 1.5's names."""
    width, height = request.hires_size
    tiles: dict[str, Any] = {"tile_size_max": tile, "swap_size": swap, "max_depth": depth}
    _from(path, "hypertile").hypertile_hook_model(_ldm(target).model, width, height, enable=True, **tiles)


ADAPTERS: dict[str, Adapter] = {
    "tomesd": _tomesd,
    "ImprovedTokenMerge": _improved_token_merge,
    "token-downsampling": _token_downsampling,
    "hypertile": _hypertile,
}
INSTALLED = ("tomesd",)
DEFAULTS: dict[str, list[dict[str, Any]]] = {
    "tomesd": [{"ratio": 0.5}],
    "ImprovedTokenMerge": [{"factor": 2}],
    "token-downsampling": [{"factor": 2}],
    "hypertile": [{"tile": 256}],
}
"""Options of a peer that no grid names: those that its authors show, or its own defaults."""


@contextmanager
def restored(target: Any) -> Iterator[None]:
    """Restore the class, the attributes and the hooks of every module of the model on exit."""
    before = [(module, type(module), dict(vars(module)), _dicts(module)) for module in _root(target).modules()]
    try:
        yield
    finally:
        for module, kind, attributes, dicts in before:
            module.__class__ = kind
            module.__dict__.clear()
            module.__dict__.update(attributes)
            for name, content in dicts.items():  # keep these objects: handles of other hooks refer to them
                attributes[name].clear()
                attributes[name].update(content)


def _dicts(module: nn.Module) -> dict[str, Any]:
    """Copies of a module's dictionaries, which hold its hooks and submodules."""
    return {name: value.copy() for name, value in vars(module).items() if type(value) in (dict, OrderedDict)}


def _root(target: Any) -> nn.Module:
    return target if isinstance(target, nn.Module) else target.unet


def _ldm(target: Any) -> Any:
    if not hasattr(getattr(target, "model", None), "diffusion_model"):
        raise TypeError(f"this peer needs an ldm model; {type(target).__name__} is not one")
    return target


def _diffusers_unet(target: Any) -> Any:
    unet = getattr(target, "unet", target)
    if not hasattr(unet, "config"):
        raise TypeError(f"this peer needs a diffusers UNet; {type(target).__name__} has none")
    return unet


def _one_timestep(unet: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Pass a single timestep: the peer expects one number, and sampling passes one per row."""
    latents, timestep = args
    return (latents, timestep.flatten()[0] if isinstance(timestep, Tensor) else timestep), kwargs


def _from(path: Path | None, name: str, *, beside: tuple[str, ...] = ()) -> ModuleType:
    """Import the module ``name`` from the folder ``path`` only, and remove it from sys.modules afterwards.

    Modules in ``beside``, which it imports by name, are removed too: peers use names such as "utils".
    """
    if path is None:
        return importlib.import_module(name)
    if not (path / f"{name}.py").is_file() and not (path / name).is_dir():
        raise FileNotFoundError(f"{path} has no module {name}")
    names = (name, *beside)
    hidden = {key: sys.modules.pop(key) for key in [*sys.modules] if key.split(".")[0] in names}
    sys.path.insert(0, str(path))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(path))
        for key in [key for key in sys.modules if key.split(".")[0] in names]:
            del sys.modules[key]
        sys.modules.update(hidden)


_WEBUI_MODULES = (
    "modules",
    "modules.scripts",
    "modules.script_callbacks",
    "modules.shared",
    "modules.processing",
    "gradio",
)


@contextmanager
def _stubs(*names: str) -> Iterator[None]:
    """Put empty modules in place of those that a peer imports but its reduction does not need."""
    hidden = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.modules.update({name: _stub(name) for name in names})
    for name in names:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(hidden)


def _stub(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = importlib.util.spec_from_loader(name, None, is_package=True)
    module.__path__ = []
    attributes = SimpleNamespace(Script=object, AlwaysVisible=None)
    vars(module).update(vars(attributes), on_ui_settings=_ignore, on_before_ui=_ignore)
    return module


def _ignore(*_: Any, **__: Any) -> None:
    """A callback registration that does nothing."""
