"""Other implementations: those of tokens from their own unmodified checkouts, those of steps from `step_peers`.

They act in the hires pass only, which is also our default. Afterwards the model is restored.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from todo_core import hosts
from todo_core.errors import SettingsError

from ...sampling.request import Request
from .checkouts import import_from
from .step_peers import deepcache, easycache, spectrum, zeus

ALWAYS = sys.maxsize
PARTS = ("scripts", "script_callbacks", "shared", "processing")
WEBUI_MODULES = ("gradio", "modules", *(f"modules.{part}" for part in PARTS))
XFORMERS = ("xformers", "xformers.ops")


@contextmanager
def applied(name: str, path: Path | None, target: Any, request: Request, options: str = "{}") -> Iterator[None]:
    """Apply the peer ``name`` to ``target`` (a model that `apply_patch` accepts) with ``options`` (JSON).

    ``path`` is its checkout; those in `INSTALLED` need none. Raises SettingsError for an unknown name.
    """
    if name not in PEERS:
        raise SettingsError("peer", name, ", ".join(PEERS))
    if path is None and name not in INSTALLED:
        raise SettingsError("peer", name, f"--peer {name}=PATH, the folder of its checkout")
    with restored(target):
        PEERS[name].apply(path, target, request, **json.loads(options))
        yield


def request_of(name: str, request: Request, options: str = "{}") -> Request:
    """The request that the peer makes of ``request``: with "fewer steps", a share of the hires steps."""
    share = json.loads(options)["share"] if name == "fewer steps" else 1
    return replace(request, hires_steps=max(1, round(share * request.hires_steps)))


def _tomesd(path: Path | None, target: Any, request: Request, **options: Any) -> None:
    """dbolya/tomesd: ``ratio`` and the other options of its apply_patch. It replaces the class of the blocks."""
    import_from(path, "tomesd").apply_patch(target, **options)


def _improved_token_merge(path: Path, target: Any, request: Request, *, factor: int = 2, **options: Any) -> None:
    """ethansmith2000/ImprovedTokenMerge, on diffusers. It finds its levels by SD 1.5's 320 and 640 channels."""
    unet = getattr(target, "unet", target)
    if not hasattr(unet, "config"):
        raise TypeError(f"this peer needs a diffusers UNet; {type(target).__name__} has none")
    one_method = {"timestep_threshold_switch": 0.0, "downsample_factor": factor}  # the same method in every step
    unet.register_forward_pre_hook(_one_timestep, with_kwargs=True)
    peer = import_from(path, "utils", beside=("merge",), stubs=XFORMERS)
    # it passes a LoRA scale to layers; current diffusers accepts one only with peft
    peer.TokenMergeAttentionProcessor.__call__.__globals__["USE_PEFT_BACKEND"] = True
    peer.patch_attention_proc(unet, {**one_method, **options})


def _one_timestep(unet: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Pass a single timestep: the peer expects one number, and sampling passes one per row."""
    latents, timestep = args
    return (latents, timestep.flatten()[0] if isinstance(timestep, Tensor) else timestep), kwargs


def _token_downsampling(path: Path, target: Any, request: Request, *, factor: float = 2, factor2: float = 1) -> None:
    """feffy380/sd-webui-token-downsampling, on ldm. By default it stops before the hires pass; here it never stops."""
    script = import_from(path / "scripts", "token_downsampling", stubs=WEBUI_MODULES)
    script.apply_patch(_ldm(target), False, factor, factor2, ALWAYS)


def _hypertile(path: Path, target: Any, request: Request, *, tile: int = 256, swap: int = 1, depth: int = 3) -> None:
    """The WebUI's built-in HyperTile, on ldm; ``path`` is its folder. It finds layers by SD 1.5's names."""
    width, height = request.hires_size
    tiles: dict[str, Any] = {"tile_size_max": tile, "swap_size": swap, "max_depth": depth}
    import_from(path, "hypertile").hypertile_hook_model(_ldm(target).model, width, height, enable=True, **tiles)


def _bigain(
    path: Path, target: Any, request: Request, *, factor: int = 2, method: str = "uniform_random", **options: Any
) -> None:
    """Greenoso/BiGain: its resampling of keys and values. It finds level 1 by 320 channels; here we name the layers.

    ``method`` and ``options`` are those of its up_or_downsample: uniform_random moves the position with every call,
    uniform_timestep by the timestep; linear_blend with a ``blend_factor`` above 1 extrapolates.
    """
    beside = ("token_scoring", "frequency_selection", "masked_attention_handler")
    resample = import_from(path / "ImprovedTokenMerge", "merge", beside=beside, stubs=XFORMERS).up_or_downsample
    host, now = hosts.detect(target), dict[str, Any]()

    def see_timestep(_: nn.Module, args: tuple, kwargs: dict) -> None:
        timestep = args[1] if len(args) > 1 else kwargs[host.arguments.timestep]
        now["timestep"] = torch.as_tensor(timestep).flatten()[0].item()

    def see_grid(_: nn.Module, args: tuple) -> None:
        now["height"], now["width"] = args[0].shape[-2:]

    def reduce(_: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        width, height = now["width"], now["height"]
        size = (width, height, width // factor, height // factor)
        kept = resample(args[0], *size, method, timestep=now["timestep"], **options)
        return args, {**kwargs, host.arguments.context: kept}

    host.unet.register_forward_pre_hook(see_timestep, with_kwargs=True)
    level_1: list[Any] = [site for site in host.sites if site.level == 1]
    for site in level_1:
        site.transformer.register_forward_pre_hook(see_grid)
        site.block.attn1.register_forward_pre_hook(reduce, with_kwargs=True)


def _ldm(target: Any) -> Any:
    if not hasattr(getattr(target, "model", None), "diffusion_model"):
        raise TypeError(f"this peer needs an ldm model; {type(target).__name__} is not one")
    return target


class Peer(NamedTuple):
    """How it is applied, whether it needs a checkout, and the options where no grid names any: those of its authors."""

    apply: Callable[..., None]
    needs_checkout: bool
    usual: list[dict[str, Any]]


PEERS = {
    "tomesd": Peer(_tomesd, False, [{"ratio": 0.5}]),
    "ImprovedTokenMerge": Peer(_improved_token_merge, True, [{"factor": 2}]),
    "token-downsampling": Peer(_token_downsampling, True, [{"factor": 2}]),
    "hypertile": Peer(_hypertile, True, [{"tile": 256}]),
    "BiGain": Peer(
        _bigain, True, [{"factor": 2, "method": m} for m in ("uniform_random", "uniform_timestep", "linear_blend")]
    ),
    "fewer steps": Peer(lambda *_, **__: None, False, [{"share": 0.5}]),
    "DeepCache": Peer(deepcache, False, [{"interval": 2}]),
    "ZEUS": Peer(zeus, False, [{"skipped": 2}]),
    "EasyCache": Peer(easycache, False, [{"threshold": 0.2}]),
    "Spectrum": Peer(spectrum, True, [{"warmup": 5}]),
}
INSTALLED = tuple(name for name, peer in PEERS.items() if not peer.needs_checkout)


@contextmanager
def restored(target: Any) -> Iterator[None]:
    """Restore the class, the attributes and the hooks of every module of the model on exit."""
    root = target if isinstance(target, nn.Module) else target.unet
    before = []
    for module in root.modules():  # its dictionaries hold its hooks and submodules
        dicts = {name: value.copy() for name, value in vars(module).items() if type(value) in (dict, OrderedDict)}
        before.append((module, type(module), dict(vars(module)), dicts))
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
