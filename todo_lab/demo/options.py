"""The demo's command line options. app.py reads them before torch is installed: the standard library alone."""

from __future__ import annotations

import argparse
from pathlib import Path

PROMPTS = (
    "a big red heart on a hedge of leaves",
    "a big blue star in front of city windows",
    "two yellow stars over a night full of stars",
    "a pink heart and a yellow star over woven cloth",
)
"""Captions for the pocket model: the first one is the default, the page offers all."""
OWN_PROMPTS = ("a lighthouse on a cliff at dusk, waves, long exposure photograph",)
DEFAULTS = (
    "Defaults: 20 steps at 128 x 128 pixels, then 12 steps at 512 x 512, guidance 2.5. A model of your own starts at "
    "the size it was trained for, then doubles it; guidance is 7.5, or 5 for SDXL."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the model, the folder, the picture and the reduction."""
    parser.add_argument(
        "--model",
        type=Path,
        metavar="PATH",
        help="a model of your own: a .safetensors checkpoint of Stable Diffusion 1 or 2, or a diffusers folder of "
        "Stable Diffusion 1, 2 or XL",
    )
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for the pictures (%(default)s)")
    _add_picture(parser.add_argument_group("the picture"))
    reduction = parser.add_argument_group("the reduction")
    reduction.add_argument("--preset", default="ToDo balanced", help="preset to start from (%(default)s)")
    reduction.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting of docs/settings.md"
    )


def _add_picture(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--prompt", help="what to show; docs/pocket.md has the words of the pocket model")
    group.add_argument("--negative", help="what not to show")
    group.add_argument("--seed", type=int, help="of the picture's noise")
    group.add_argument("--width", type=int, help="of the first pass, in pixels")
    group.add_argument("--height", type=int, help="of the first pass, in pixels")
    group.add_argument("--steps", type=int, help="of the first pass")
    group.add_argument("--guidance", type=float, help="scale of classifier-free guidance")
    group.add_argument("--sampler", help="DDIM, Euler, Euler a, Heun or DPM++ 2M")
    group.add_argument("--hires-scale", type=float, help="factor by which the hires pass enlarges each side")
    group.add_argument("--hires-steps", type=int, help="of the hires pass")
    group.add_argument("--denoising", type=float, help="strength of the hires pass, at most 1")
