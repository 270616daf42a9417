"""Time of one UNet call, whole and reduced, beside tomesd and beside the limit; a table and a plot at the end.

    pip install -e ".[benchmark]"
    python benchmarks/unet.py --quick

The UNet is diffusers' with random weights: time does not depend on what it has learned. All variants of a size run
interleaved, so that drift of the machine meets them alike; medians and their ratio to the unpatched UNet are shown.
The limit of a setting is the same UNet whose reduced attentions are handed a ready-made context of that size:
nothing but the arithmetic that must remain.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from diffusers import UNet2DConditionModel

from todo_core import Settings, patched
from todo_core.hosts import detect

LAYOUTS: dict[str, dict[str, Any]] = {
    "sd1": {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8},
    "sdxl": {
        "sample_size": 128,
        "block_out_channels": (320, 640, 1280),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "transformer_layers_per_block": (1, 2, 10),
        "attention_head_dim": (5, 10, 20),
        "use_linear_projection": True,
        "cross_attention_dim": 2048,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    },
}
OURS = {
    "ToDo 2": Settings(factor_1=2),
    "ToDo 3": Settings(factor_1=3),
    "ToDo 4": Settings(factor_1=4),
    "ToDo 2 and 2": Settings(factor_1=2, factor_2=2),
    "ToMe 0.5": Settings(method="similarity", target="all", ratio_1=0.5),
    "ToMe 0.75": Settings(method="similarity", target="all", ratio_1=0.75),
    "cluster 0.5": Settings(method="cluster", ratio_1=0.5),
}
QUICK = ("ToDo 2", "ToDo 4", "ToMe 0.5")


@contextmanager
def limit(unet: torch.nn.Module, factor: int) -> Iterator[None]:
    """Hand every level-1 self-attention a context that was ready before."""
    ready: dict[Any, torch.Tensor] = {}

    def hook(module: torch.nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        x = args[0]
        shape = (x.shape[0], x.shape[1] // factor**2, x.shape[2])
        if shape not in ready:
            ready[shape] = x[:, : shape[1]].clone()
        return args, {**kwargs, "encoder_hidden_states": ready[shape]}

    sites = [site.block.attn1 for site in detect(unet).sites if site.level == 1]
    handles = [attention.register_forward_pre_hook(hook, with_kwargs=True) for attention in sites]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def tomesd_peer(unet: torch.nn.Module, ratio: float, levels: int) -> Iterator[None]:
    """tomesd itself, from PyPI, told to reach the layout's finest attention."""
    import tomesd

    tomesd.apply_patch(unet, ratio=ratio, max_downsample=levels)
    try:
        yield
    finally:
        tomesd.remove_patch(unet)


def variants(unet: torch.nn.Module, *, quick: bool, finest: int) -> dict[str, Callable[[], Any]]:
    """Context managers by label; the first is the unpatched UNet."""
    from contextlib import nullcontext

    names = QUICK if quick else tuple(OURS)
    found: dict[str, Callable[[], Any]] = {"whole": nullcontext}
    found |= {name: lambda name=name: patched(unet, OURS[name]) for name in names}
    found |= {f"limit of ToDo {f}": lambda f=f: limit(unet, f) for f in ((2, 4) if quick else (2, 3, 4))}
    found |= {f"tomesd {r}": lambda r=r: tomesd_peer(unet, r, finest) for r in ((0.5,) if quick else (0.5, 0.75))}
    return found


def timed(call: Callable[[], Any], device: str) -> float:
    """Seconds of one call."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


@torch.inference_mode()
def measure(unet: Any, side: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of one latent size: label, median seconds, speed against the whole UNet, peak memory on a GPU."""
    like = {"device": args.device, "dtype": getattr(torch, args.dtype)}
    x = torch.randn(args.batch, 4, side, side, **like)
    text = torch.randn(args.batch, 77, unet.config.cross_attention_dim, **like)
    extra = {}
    if unet.config.addition_embed_type:
        pooled = torch.zeros(args.batch, unet.config.projection_class_embeddings_input_dim - 6 * 256, **like)
        extra = {"added_cond_kwargs": {"text_embeds": pooled, "time_ids": torch.zeros(args.batch, 6, **like)}}

    def call() -> None:
        unet(x, 500, encoder_hidden_states=text, **extra)

    tried = variants(unet, quick=args.quick, finest=2 ** detect(unet).depth)
    seconds: dict[str, list[float]] = {name: [] for name in tried}
    memory: dict[str, float] = {}
    for turn in range(args.repeats + 1):  # the first is the warm-up
        for name, patch in tried.items():
            if args.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            with patch():
                took = timed(call, args.device)
            if args.device == "cuda":
                memory[name] = torch.cuda.max_memory_allocated() / 2**30
            if turn:
                seconds[name].append(took)
    whole = statistics.median(seconds["whole"])
    return [
        {"latent": side, "setting": name, "seconds": statistics.median(s), "speed": whole / statistics.median(s)}
        | ({"peak GiB": memory[name]} if memory else {})
        for name, s in seconds.items()
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    keys = list(rows[0])
    lines = ["| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
    for row in rows:
        cells = [
            f"{v:.3f}" if k == "seconds" else f"{v:.2f}" if isinstance(v, float) else str(v) for k, v in row.items()
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """Speed by setting, one group of bars a latent size."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sides = sorted({row["latent"] for row in rows})
    names = [row["setting"] for row in rows if row["latent"] == sides[0] and row["setting"] != "whole"]
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(names) * len(sides) ** 0.5 + 1.6), layout="constrained")
    height = 0.8 / len(sides)
    for i, side in enumerate(sides):
        speeds = {row["setting"]: row["speed"] for row in rows if row["latent"] == side}
        places = [n + (i - (len(sides) - 1) / 2) * height for n in range(len(names))]
        grey = str(0.25 + 0.5 * i / max(1, len(sides) - 1))
        bars = axes.barh(places, [speeds[n] for n in names], height * 0.9, color=grey, label=f"{side} x {side}")
        axes.bar_label(bars, fmt="%.2fx", padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("speed of one UNet call, whole UNet = 1")
    axes.set_title(title, fontsize=10)
    axes.margins(x=0.12)
    axes.legend(title="latent", loc="lower right", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", choices=LAYOUTS, default="sd1")
    parser.add_argument("--latents", type=int, nargs="+", help="sides; default 64 96 128")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float16" if torch.cuda.is_available() else "float32")
    parser.add_argument("--quick", action="store_true", help="batch 1, three repeats, fewer settings; latent 96")
    parser.add_argument("--out", type=Path, help="folder for unet.json, unet.md and unet.png")
    args = parser.parse_args()
    args.latents = args.latents or ([96] if args.quick else [64, 96, 128])
    if args.quick:
        args.batch, args.repeats = 1, 3
    with torch.device(args.device):
        unet = UNet2DConditionModel(**LAYOUTS[args.layout]).eval()
    if args.dtype != "float32":
        unet = unet.to(getattr(torch, args.dtype))
    rows: list[dict[str, Any]] = []
    for side in args.latents:
        rows += measure(unet, side, args)
        print(table([row for row in rows if row["latent"] == side]), "\n", flush=True)
    device = (
        torch.cuda.get_device_name()
        if args.device == "cuda"
        else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    title = f"{args.layout} layout, batch {args.batch}, {args.dtype}, torch {torch.__version__}, {device}"
    print(title)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "unet.json").write_text(json.dumps({"title": title, "rows": rows}, indent=1))
        (args.out / "unet.md").write_text(f"{title}\n\n{table(rows)}\n")
        plot(rows, args.out / "unet.png", title)


if __name__ == "__main__":
    main()
