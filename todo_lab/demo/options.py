"""What the demo's commands can be told. app.py reads this file before torch is there: the standard library alone."""

from __future__ import annotations

import argparse
from pathlib import Path

PROMPT = "a big red heart over rolling hills"
LEFT_OUT = (
    "What is left out: 20 steps at 128 x 128 pixels, then 12 at twice the side, guidance 2.5; for a model of your own "
    "512 x 512 and guidance 7.5."
)


def add(parser: argparse.ArgumentParser) -> None:
    """The model, the folder, the picture and the reduction."""
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="a model beside the pocket one: a .safetensors checkpoint of Stable Diffusion 1 or 2, or the folder of a "
        "diffusers pipeline; can be given several times, and the terminal's picture is made by the first",
    )
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for the pictures (%(default)s)")
    _picture(parser.add_argument_group("the picture"))
    reduction = parser.add_argument_group("the reduction")
    reduction.add_argument("--preset", default="ToDo balanced", help="named settings to begin with (%(default)s)")
    reduction.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting on top, any of docs/settings.md"
    )


def _picture(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--prompt", help="what to paint; the pocket model knows few words, and says which")
    group.add_argument("--negative", help="what not to paint")
    group.add_argument("--seed", type=int)
    group.add_argument("--width", type=int, help="of the first pass, in pixels")
    group.add_argument("--height", type=int)
    group.add_argument("--steps", type=int, help="of the first pass")
    group.add_argument("--guidance", type=float, help="how closely to follow the prompt")
    group.add_argument("--sampler", help="DDIM, Euler, Euler a, Heun or DPM++ 2M")
    group.add_argument("--hires-scale", type=float, help="by how much the hires pass enlarges each side")
    group.add_argument("--hires-steps", type=int)
    group.add_argument("--denoising", type=float, help="how much of the picture the hires pass makes anew, up to 1")
