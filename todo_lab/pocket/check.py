"""Measure what the pocket model can do: ``python -m todo_lab pocket check``.

All scenes have combinations of background, colours and shapes that were held out of training.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from todo_core.image_difference import difference

from ..sampling import TRAILING
from ..sampling.passes import decode_image, first_pass, hires_pass
from ..sampling.request import Request
from . import colour_reader
from .data.captions import caption
from .data.dataset import unseen_scenes
from .data.render import render
from .data.scenes import Scene
from .model import config
from .model.pocket_model import Pocket
from .shape_judge import ShapeJudge, count_right, look, shapes_right
from .training.judge import decode, examples

DEFAULTS = Request(prompt="", schedule=TRAILING)  # as the figures of docs/pocket.md were measured
KINDS = (("single", 1, 1), ("several", 2, 3), ("up to three", 1, 3))  # kinds of captions: least and most objects


def autoencoder_psnr(model: Pocket, scenes: list[Scene], side: int) -> float:
    """Mean PSNR in decibels of the autoencoder over the scenes at side x side pixels."""
    drawn = np.stack([render(scene, side, side) for scene in tqdm(scenes, desc=f"drawing at {side}", unit="scene")])
    decoded = decode(model.target.first_stage_model, drawn)
    return float(np.mean([difference(*pair).psnr for pair in zip(drawn, decoded, strict=True)]))


def caption_figures(
    model: Pocket, judge: ShapeJudge, scenes: list[Scene], *, scales: Sequence[float] = (1, 2), base: Request = DEFAULTS
) -> dict[str, float]:
    """Fractions of captions whose picture is right, after the first pass (scale 1) and after hires passes.

    ``detail`` is the high-frequency energy relative to that of the drawn scenes. ``base`` has the values of the
    requests apart from prompt and seed.
    """
    sums: Counter[str] = Counter()
    for number, scene in enumerate(tqdm(scenes, desc="captions", unit="caption")):
        request = replace(base, prompt=caption(scene), seed=number)
        first = first_pass(model, request)
        for scale in scales:
            made = first if scale == 1 else hires_pass(model, replace(request, hires_scale=scale), first)
            image = decode_image(model, made)
            side = image.shape[1]
            sums.update({f"{name}, {side} px": value for name, value in _judged(judge, image, scene).items()})
    figures = {name: value / len(scenes) for name, value in sums.items() if not name.startswith(("energy", "drawn"))}
    sides = [name.split(", ")[1] for name in sums if name.startswith("energy")]
    return figures | {f"detail, {side}": sums[f"energy, {side}"] / sums[f"drawn, {side}"] for side in sides}


def _judged(judge: ShapeJudge, image: np.ndarray, scene: Scene) -> dict[str, float]:
    found = look(judge, image, scene.groups)
    return {
        "shapes": shapes_right(found, scene),
        "count": count_right(found, scene),
        "colours": colour_reader.colours_right(image, scene),
        "background": colour_reader.background_right(image, scene),
        "energy": detail(image),
        "drawn": detail(render(scene, image.shape[1], image.shape[0])),
    }


def detail(image: np.ndarray) -> float:
    """High-frequency energy: the mean squared difference of neighbouring pixels' lightness."""
    grey = image.astype(np.float64).mean(-1)
    return float((np.diff(grey, axis=0) ** 2).mean() + (np.diff(grey, axis=1) ** 2).mean())


def judge_figures(judge: ShapeJudge, model: Pocket, scenes: list[Scene]) -> dict[str, float]:
    """How often the judge is right about drawn scenes that went through the autoencoder, and of how many objects."""
    drawn = np.stack([render(scene, config.BASE_SIZE, config.BASE_SIZE) for scene in scenes])
    stack = decode(model.target.first_stage_model, drawn)
    crops, labels = examples(stack, scenes)
    with torch.inference_mode():
        right = (judge.classifier(crops).argmax(1) == labels).float()
    pairs = [(look(judge, image, scene.groups), scene) for image, scene in zip(stack, scenes, strict=True)]
    return {
        "judge, number of objects": len(labels),
        "judge, objects": float(right.mean()),
        "judge, shapes of a scene": float(np.mean([shapes_right(*pair) for pair in pairs])),
        "judge, count of a scene": float(np.mean([count_right(*pair) for pair in pairs])),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--weights", type=Path, help="other weights than the shipped ones")
    parser.add_argument("--scenes", type=int, default=200, help="captions of each kind (%(default)s)")
    parser.add_argument("--scales", type=float, nargs="+", default=[1, 2, 4], help="1 is the first pass (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print the figures."""
    model, judge = Pocket(options.weights), ShapeJudge()
    scenes = unseen_scenes(options.scenes)
    figures = {f"autoencoder PSNR at {s}": autoencoder_psnr(model, scenes, s) for s in (config.BASE_SIZE, 256)}
    figures |= judge_figures(judge, model, scenes)
    for kind, least, most in KINDS:
        chosen = unseen_scenes(options.scenes, least=least, most=most)
        found = caption_figures(model, judge, chosen, scales=options.scales)
        figures |= {f"{kind}: {name}": value for name, value in found.items()}
    sys.stdout.writelines(f"{name:34} {value:8.3f}\n" for name, value in figures.items())
    return 0
