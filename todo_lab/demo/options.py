"""The demo's command line options. app.py reads them before torch is installed: the standard library alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..sampling import SAMPLERS, SCHEDULES

PROMPTS = (
    "a pink heart and a yellow star over woven cloth",
    "two yellow stars over a night full of stars",
    "a big red heart on a hedge of leaves",
    "a big blue star in front of city windows",
)
"""Captions for the pocket model: the first one is the default, the page offers all."""
OWN_PROMPTS = ("a lighthouse on a cliff at dusk, waves, long exposure photograph",)
POCKET_DEFAULTS = {"guidance": 6.0, "sampler": "DPM++ 2M", "hires_scale": 4.0, "hires_steps": 15, "denoising": 0.35}
"""64 x 64 tokens at level 1, and steps and denoising that many users have: whole steps are predicted."""
DEFAULTS = (
    "Defaults: 20 steps at 128 x 128 pixels, then 15 steps at 512 x 512, denoising 0.35, DPM++ 2M, guidance 6. A "
    "model of your own starts at the size it was trained for, then doubles it; guidance is 7.5, or 5 for SDXL."
)
OWN_MODEL = (
    "a model of your own: a .safetensors checkpoint or a diffusers folder of Stable Diffusion 1, 2 or XL; "
    "docs/evaluation.md measures it on many prompts, with plain steps beside"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the model, the folder, the picture and the reduction."""
    parser.add_argument("--model", type=Path, metavar="PATH", help=OWN_MODEL)
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for the pictures (%(default)s)")
    picture = parser.add_argument_group("the picture")
    picture.add_argument("--prompt", help="what to show; docs/pocket.md has the words of the pocket model")
    picture.add_argument("--negative", help="what not to show")
    picture.add_argument("--seed", type=int, help="of the picture's noise")
    picture.add_argument("--width", type=int, help="of the first pass, in pixels")
    picture.add_argument("--height", type=int, help="of the first pass, in pixels")
    picture.add_argument("--steps", type=int, help="of the first pass")
    picture.add_argument("--guidance", type=float, help="scale of classifier-free guidance")
    picture.add_argument("--sampler", help=f"one of {', '.join(SAMPLERS)}")
    picture.add_argument("--schedule", help=f"one of {', '.join(SCHEDULES)}")
    picture.add_argument("--hires-scale", type=float, help="factor by which the hires pass enlarges each side")
    picture.add_argument("--hires-steps", type=int, help="of the hires pass")
    picture.add_argument("--denoising", type=float, help="strength of the hires pass, at most 1")
    reduction = parser.add_argument_group("the reduction")
    reduction.add_argument("--preset", default="Balanced", help="preset to start from (%(default)s)")
    change = "change a setting of docs/settings.md"
    reduction.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=change)
