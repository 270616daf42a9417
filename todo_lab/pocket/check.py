"""Measure what the pocket model can do: ``python -m todo_lab pocket check [--out FOLDER]``.

All scenes have combinations of background, colours and shapes that were held out of training.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

from todo_core.image_difference import difference

from ..sampling.passes import decode_image, first_pass, hires_pass
from ..sampling.request import SAMPLERS, Request
from . import colour_reader
from .data.captions import caption
from .data.dataset import as_images, unseen_scenes
from .data.render import render
from .data.scenes import Scene
from .model import config
from .model.pocket_model import Pocket

DEFAULTS = Request(prompt="")


def autoencoder_psnr(model: Pocket, scenes: list[Scene], side: int) -> float:
    """Mean PSNR in decibels of the autoencoder over the scenes at side x side pixels."""
    first_stage = model.target.first_stage_model
    psnrs = []
    for scene in tqdm(scenes, desc=f"autoencoder at {side}", unit="scene"):
        drawn = render(scene, side, side)
        with torch.inference_mode():
            decoded = first_stage.decode(first_stage.encode(as_images(drawn[None])).mode())[0].clamp(-1, 1)
        image = ((decoded.permute(1, 2, 0) + 1) * 127.5).round().to(torch.uint8).numpy()
        psnrs.append(difference(drawn, image).psnr)
    return float(np.mean(psnrs))


def caption_accuracy(
    model: Pocket, scenes: list[Scene], out: Path | None = None, base: Request = DEFAULTS
) -> dict[str, float]:
    """Fractions of captions with the right colours and background, at the base size and after a hires pass.

    ``base`` has the values of the requests apart from prompt and seed. Images are written to ``out``.
    """
    right = {"colour": 0, "background": 0, "colour, hires": 0, "background, hires": 0}
    for number, scene in enumerate(tqdm(scenes, desc="captions", unit="caption")):
        request = replace(base, prompt=caption(scene), seed=number)
        first = first_pass(model, request)
        for suffix, result in (("", first), (", hires", hires_pass(model, request, first))):
            image = decode_image(model, result)
            right[f"colour{suffix}"] += colour_reader.colours_right(image, scene)
            right[f"background{suffix}"] += colour_reader.background_right(image, scene)
            if out:
                Image.fromarray(image).save(out / f"{number:03d}{suffix.strip(', ') and '-hires'}.png")
    return {name: count / len(scenes) for name, count in right.items()}


def request_sensitivity(model: Pocket) -> dict[str, float]:
    """Largest difference between two runs of one request, and the PSNR to other seeds, captions and samplers."""
    request = Request(prompt="a red circle on the left over a cloudy sky", seed=7)
    image = decode_image(model, first_pass(model, request))

    def psnr(**changes: object) -> float:
        return difference(image, decode_image(model, first_pass(model, replace(request, **changes)))).psnr  # type: ignore[arg-type]

    again = decode_image(model, first_pass(model, request)).astype(int)
    figures = {"same seed, largest difference": float(np.abs(image - again).max()), "another seed": psnr(seed=8)}
    figures["another caption"] = psnr(prompt="a big blue star over rolling hills")
    figures["no guidance"] = psnr(guidance=1.0)
    return figures | {f"sampler {name}": psnr(sampler=name) for name in SAMPLERS if name != request.sampler}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--weights", type=Path, help="other weights than the shipped ones")
    parser.add_argument("--scenes", type=int, default=200, help="number of captions (%(default)s)")
    parser.add_argument("--out", type=Path, help="folder for the pictures and the figures")


def run(options: argparse.Namespace) -> int:
    """Print the figures, and write them to the folder."""
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    model, scenes = Pocket(options.weights), unseen_scenes(options.scenes)
    figures = {f"autoencoder PSNR at {s}": autoencoder_psnr(model, scenes, s) for s in (config.BASE_SIZE, 256)}
    figures |= caption_accuracy(model, scenes, options.out) | request_sensitivity(model)
    lines = [f"{name:34} {value:8.3f}" for name, value in figures.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    if options.out:
        (options.out / "figures.json").write_text(json.dumps(figures, indent=1), "utf-8")
    return 0
