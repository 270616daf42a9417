"""Adapters for other implementations, each from its own unmodified checkout.

They act in the hires pass only, which is also our default. Afterwards the model is restored.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from todo_core import hosts
from todo_core.errors import SettingsError

from ...sampling.request import Request
from . import step_peers
from .checkouts import WEBUI_MODULES, import_from, stubs

CA_TOME_STEPS = (0, 8, 11, 13, 20, 25, 30, 35, 45, 46, 47, 48, 49)  # its CONFIG_3
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


def request_of(name: str, request: Request, options: str = "{}") -> Request:
    """The request that the peer makes of ``request``: with "fewer steps", a share of the hires steps."""
    share = json.loads(options)["share"] if name == "fewer steps" else 1
    return replace(request, hires_steps=max(1, round(share * request.hires_steps)))


def _tomesd(path: Path | None, target: Any, request: Request, **options: Any) -> None:
    """dbolya/tomesd: ``ratio`` and the other options of its apply_patch. It replaces the class of the blocks."""
    import_from(path, "tomesd").apply_patch(target, **options)


def _ca_tome(path: Path | None, target: Any, request: Request, *, threshold: float = 0.7) -> None:
    """CA-ToMe (Saghatchian et al. 2025, PyPI ca-tome): tokens at least so similar merge; it matches in some steps only.

    Those steps are the ones that its authors found best in 50 steps, at the same places of the pass.
    """
    steps = [round(step * (request.hires_steps - 1) / 49) for step in CA_TOME_STEPS]
    import_from(path, "ca_tome").patch.apply_patch(target, compute_on=steps, r=threshold)
    blocks: list[Any] = [site.block for site in hosts.detect(target).sites]
    count = itertools.count()

    def begin(_: nn.Module, args: tuple) -> None:
        step = next(count)
        for block in blocks:
            block.inference_step = step

    hosts.detect(target).unet.register_forward_pre_hook(begin)


def _improved_token_merge(path: Path, target: Any, request: Request, *, factor: int = 2, **options: Any) -> None:
    """ethansmith2000/ImprovedTokenMerge, on diffusers. It finds its levels by SD 1.5's 320 and 640 channels."""
    unet = _diffusers_unet(target)
    one_method = {"timestep_threshold_switch": 0.0, "downsample_factor": factor}  # the same method in every step
    unet.register_forward_pre_hook(_one_timestep, with_kwargs=True)
    with stubs("xformers", "xformers.ops"):
        peer = import_from(path, "utils", beside=("merge",))
    # it passes a LoRA scale to layers; current diffusers accepts one only with peft
    peer.TokenMergeAttentionProcessor.__call__.__globals__["USE_PEFT_BACKEND"] = True
    peer.patch_attention_proc(unet, {**one_method, **options})


def _token_downsampling(path: Path, target: Any, request: Request, *, factor: float = 2, factor2: float = 1) -> None:
    """feffy380/sd-webui-token-downsampling, on ldm. By default it stops before the hires pass; here it never stops."""
    with stubs(*WEBUI_MODULES):
        script = import_from(path / "scripts", "token_downsampling")
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
    with stubs("xformers", "xformers.ops"):
        beside = ("token_scoring", "frequency_selection", "masked_attention_handler")
        resample = import_from(path / "ImprovedTokenMerge", "merge", beside=beside).up_or_downsample
    host = hosts.detect(target)
    now: dict[str, Any] = {}

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
    for site in _level_1(host):
        site.transformer.register_forward_pre_hook(see_grid)
        site.block.attn1.register_forward_pre_hook(reduce, with_kwargs=True)


def _sito(path: Path, target: Any, request: Request, *, ratio: float = 0.5, **options: Any) -> None:
    """EvelynZhang-epiclab/SiTo, on ldm and square images.

    Its import needs a GPU for a counter that it never uses, and it forgets to import torch.nn.functional as F.
    """
    zeros = torch.zeros
    anywhere = mock.patch.object(torch, "zeros", lambda *size, device=None, **kind: zeros(*size, **kind))
    with stubs("matplotlib", "matplotlib.pyplot"), anywhere:
        peer = import_from(path.resolve().parent, path.resolve().name)
    peer.sito.F = torch.nn.functional
    model = _ldm(target)
    model.model.diffusion_model.register_forward_pre_hook(_timestep_second, with_kwargs=True)
    peer.apply_patch(model, prune_ratio=ratio, **options)


def _window_attention(path: Path, target: Any, request: Request) -> None:
    """megvii-research/HiDiffusion: its window attention without its RAU-Net, at level 1 of ldm.

    Its block is made for diffusers. So it gets the attributes of a diffusers block, and ldm's names of arguments.
    """
    with stubs("diffusers.pipelines.controlnet.multicontrolnet"):  # current diffusers has it elsewhere
        make = import_from(path, "hidiffusion").hidiffusion.make_diffusers_transformer_block
    host = hosts.detect(_ldm(target))
    info: dict[str, Any] = {}
    norms = ("ada_layer_norm", "ada_layer_norm_zero", "ada_layer_norm_continuous", "ada_layer_norm_single")
    unused = {**{f"use_{name}": False for name in norms}, "pos_embed": None, "only_cross_attention": False}
    attributes = {**unused, "use_layer_norm": True, "_chunk_size": None, "info": info}

    def see_size(_: nn.Module, args: tuple) -> None:
        info["size"] = args[0].shape[-2:]

    def with_context(_: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        return args, {"context": kwargs["encoder_hidden_states"]}

    host.unet.register_forward_pre_hook(see_size)
    for site in _level_1(host):
        forward = partial(make(type(site.block)).forward, site.block)
        vars(site.block).update(attributes, forward=partial(_with_ldm_names, forward))
        for attention in (site.block.attn1, site.block.attn2):
            attention.register_forward_pre_hook(with_context, with_kwargs=True)


ADAPTERS: dict[str, Adapter] = {
    "tomesd": _tomesd,
    "CA-ToMe": _ca_tome,
    "ImprovedTokenMerge": _improved_token_merge,
    "token-downsampling": _token_downsampling,
    "hypertile": _hypertile,
    "BiGain": _bigain,
    "SiTo": _sito,
    "HiDiffusion": _window_attention,
    "fewer steps": lambda *_, **__: None,
    "DeepCache": step_peers.deepcache,
    "FBCache": step_peers.fbcache,
    "skipped uncond": step_peers.skipped_uncond,
    "T-GATE": step_peers.t_gate,
    "Spectrum": step_peers.spectrum,
    "ZEUS": step_peers.zeus,
    "EasyCache": step_peers.easycache,
}
INSTALLED = (
    "tomesd",
    "CA-ToMe",
    "fewer steps",
    "DeepCache",
    "FBCache",
    "skipped uncond",
    "T-GATE",
    "ZEUS",
    "EasyCache",
)
DEFAULTS: dict[str, list[dict[str, Any]]] = {
    "tomesd": [{"ratio": 0.5}],
    "CA-ToMe": [{"threshold": 0.7}],
    "ImprovedTokenMerge": [{"factor": 2}],
    "token-downsampling": [{"factor": 2}],
    "hypertile": [{"tile": 256}],
    "BiGain": [{"factor": 2, "method": m} for m in ("uniform_random", "uniform_timestep", "linear_blend")],
    "SiTo": [{"ratio": 0.5}],
    "HiDiffusion": [{}],
    "fewer steps": [{"share": 0.5}],
    "DeepCache": [{"interval": 2}],
    "FBCache": [{"threshold": 0.2}],
    "skipped uncond": [{"every": 2}],
    "T-GATE": [{"gate": 0.4}],
    "Spectrum": [{"warmup": 5}],
    "ZEUS": [{"skipped": 2}],
    "EasyCache": [{"threshold": 0.2}],
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


def _level_1(host: hosts.Host) -> list[Any]:
    return [site for site in host.sites if site.level == 1]


def _with_ldm_names(forward: Callable[..., Tensor], x: Tensor, context: Tensor | None = None) -> Tensor:
    return forward(x, encoder_hidden_states=context)


def _timestep_second(unet: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Pass the timesteps of an ldm UNet by position: peers read them there."""
    if len(args) > 1:
        return args, kwargs
    return (*args, kwargs["timesteps"]), {name: value for name, value in kwargs.items() if name != "timesteps"}


def _one_timestep(unet: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Pass a single timestep: the peer expects one number, and sampling passes one per row."""
    latents, timestep = args
    return (latents, timestep.flatten()[0] if isinstance(timestep, Tensor) else timestep), kwargs
