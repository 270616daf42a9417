"""What is compared with the unpatched UNet: our settings, their lower bounds, and other implementations."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from todo_core import Settings, TokenGrid, patched
from todo_lab.evaluation.backends.peers import INSTALLED, applied
from unet_call.models import LAYOUTS, PIXELS, Subject

BASELINE = "baseline"
OURS = {
    "out of the window": Settings(factor_1=2, start=0.9, window="noise", interval=1),  # the call is at 0.5
    "factor 1": Settings(factor_1=1, factor_2=1, interval=1),
    **{f"ToDo {factor}": Settings(factor_1=factor, factor_2=1, interval=1) for factor in (2, 3, 4)},
    "ToDo auto": Settings(interval=1),
    **{f"ToDo {factor} and 2": Settings(factor_1=factor, factor_2=2, interval=1) for factor in (2, 4)},
    **{f"ToMe {r:g}": Settings(method="similarity", target="all", ratio_1=r, interval=1) for r in (0.5, 0.75)},
    "cluster 0.5": Settings(method="cluster", ratio_1=0.5, interval=1),
}
EVERY_SECOND: dict[str, Any] = {"interval": 2, "predict": "deep"}
PRESETS = {name: Settings.preset(name) for name in ("Balanced", "Closest", "Fast", "ToDo only")}
OF_PASSES = {**PRESETS, "interval 2": Settings(factor_1=1, factor_2=1, **EVERY_SECOND)}
for _name in ("ToDo 2", "ToDo 2 and 2"):
    OF_PASSES |= {_name: OURS[_name], f"{_name}, interval 2": replace(OURS[_name], **EVERY_SECOND)}
LOWER_BOUNDS = {f"lower bound of ToDo {factor}": factor for factor in (2, 3, 4)}


@dataclass(frozen=True)
class Peer:
    """An adapter of `todo_lab.evaluation.backends.peers`, its options, and the layouts that the peer supports."""

    adapter: str
    options: Mapping[str, Any]
    layouts: Collection[str]


PEERS = {f"tomesd {ratio:g}": Peer("tomesd", {"ratio": ratio}, LAYOUTS) for ratio in (0.5, 0.75)}
PEERS |= {
    f"token-downsampling {factor}": Peer("token-downsampling", {"factor": factor}, ("sd1-ldm",)) for factor in (2, 3, 4)
}
PEERS["ImprovedTokenMerge 2"] = Peer("ImprovedTokenMerge", {"factor": 2}, ("sd1",))
PEERS["BiGain 2"] = Peer("BiGain", {"factor": 2}, ("sd1", "sd1-ldm", "sdxl-ldm"))
PEERS |= {f"HyperTile {tile}": Peer("hypertile", {"tile": tile}, ("sd1-ldm",)) for tile in (256, 512)}
NAMES = (BASELINE, *OURS, *LOWER_BOUNDS, *PEERS)  # of calls

Patch = Callable[[], AbstractContextManager[Any]]


def peer_paths(parser: argparse.ArgumentParser, peers: Sequence[str]) -> dict[str, Path]:
    """The folders of ``--peer NAME=PATH``."""
    paths = {name: Path(path) for name, _, path in (peer.partition("=") for peer in peers)}
    known = {peer.adapter for peer in PEERS.values()}
    for name, path in paths.items():
        if name not in known or not path.is_dir():
            parser.error(f"--peer needs NAME=FOLDER with a NAME of {', '.join(sorted(known))}, not {name}={path}")
    return paths


def variants(subject: Subject, side: int, names: Collection[str], paths: Mapping[str, Path]) -> dict[str, Patch]:
    """Context managers by name, the baseline first. Peers only if they support the layout and are installed."""
    patches: dict[str, Patch] = {BASELINE: nullcontext}
    patches |= {name: partial(patched, subject.unet, settings) for name, settings in OURS.items()}
    patches |= {name: partial(lower_bound, subject, side, factor, {}) for name, factor in LOWER_BOUNDS.items()}
    patches |= {
        name: partial(_peer, subject, side, peer, paths.get(peer.adapter))
        for name, peer in PEERS.items()
        if subject.layout in peer.layouts and (peer.adapter in paths or peer.adapter in INSTALLED)
    }
    return {name: patch for name, patch in patches.items() if name == BASELINE or name in names}


@contextmanager
def lower_bound(subject: Subject, side: int, factor: int, ready: dict[Any, torch.Tensor]) -> Iterator[None]:
    """Give each level-1 self-attention a ready context with as many tokens as ToDo leaves.

    The warm-up fills ``ready`` with these contexts.
    """
    context = subject.host.arguments.context
    keys = TokenGrid(side, side).halved(subject.host.depth).strided(factor).tokens

    def hook(module: torch.nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        kind = (*args[0].shape, args[0].dtype)
        if kind not in ready:
            ready[kind] = args[0][:, :keys].clone()
        return args, {**kwargs, context: ready[kind]}

    with ExitStack() as hooks:
        for block in subject.blocks:
            hooks.enter_context(block.attn1.register_forward_pre_hook(hook, with_kwargs=True))
        yield


def _peer(subject: Subject, side: int, peer: Peer, path: Path | None) -> AbstractContextManager[None]:
    """tomesd merges at level 1 too, which is one halving further down in SDXL."""
    options = dict(peer.options)
    if peer.adapter == "tomesd":
        options["max_downsample"] = 2**subject.host.depth
    size: Any = SimpleNamespace(hires_size=(side * PIXELS, side * PIXELS))
    return applied(peer.adapter, path, subject.model, size, json.dumps(options))
