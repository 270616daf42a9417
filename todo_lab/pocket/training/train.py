"""Train the pocket model: ``python -m todo_lab pocket train autoencoder|judge|diffusion|weights --out FOLDER``.

Training can be stopped at any time; the same command continues from the last save. ``weights`` writes the current
state as one file. With ``--start FILE`` both stages go on from such a file. It runs on a GPU if there is one.

The autoencoder learns on crops of drawn scenes. See diffusion.py for the diffusion model.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import crops, pictures, training_scenes
from ..model import config, weights_file
from ..model.networks import FirstStage
from .diffusion import train_diffusion, write_weights
from .judge import train_judge
from .options import Options
from .training_loop import Loop, half_on_gpu

EDGES = 1.0  # weight of the edges' strengths, without which fine detail comes out too soft
CORNERS = 4.0  # weight of errors in the corner cells, where the padding otherwise leaves a speck


def train_autoencoder(options: Options) -> FirstStage:
    """Minimise squared and absolute error and blur, with a weak KL term that keeps the latents near a unit normal."""
    torch.manual_seed(options.seed)
    network = weights_file.load(options.start).first_stage_model if options.start else FirstStage()
    network.to(options.device).train().requires_grad_(True)
    base = pictures(options.out, training_scenes(options.scenes), config.BASE_SIZE)
    large = pictures(options.out, training_scenes(options.scenes // 8), 2 * config.BASE_SIZE)
    loop = Loop("autoencoder", network, **options.loop(rate=5e-4 if options.start else 1e-3))
    batch = options.batch // 2

    def loss_of(step: int, rng: np.random.Generator) -> Tensor:
        late = loop.progress() > 0.8  # full pictures at the end, so that the middle attention sees its true size
        side, size = (config.BASE_SIZE, batch // 4) if late else (config.BASE_SIZE // 2, batch)
        images = crops(large if rng.random() < 0.25 else base, side, size, rng).to(options.device)
        with half_on_gpu(options.device):
            latents = network.encode(images)
            decoded = network.decode(latents.sample())
        error = (decoded.float() - images) * at_corners(side).to(options.device)
        divergence = latents.kl().float().mean() / latents.mean[0].numel()
        blur = edge_error(decoded.float(), images)
        return 4 * error.square().mean() + error.abs().mean() + EDGES * blur + 1e-4 * divergence

    loop.run(loss_of)
    return network


def at_corners(side: int) -> Tensor:
    """Weights (side, side): `CORNERS` in the four corner cells of the latent, 1 elsewhere."""
    ends = torch.zeros(side, dtype=torch.bool)
    ends[: config.FACTOR] = ends[-config.FACTOR :] = True
    return torch.where(ends[:, None] & ends[None, :], CORNERS, 1.0)


def edge_error(decoded: Tensor, images: Tensor) -> Tensor:
    """How much the strengths of the edges differ, wherever they lie (Mathieu et al. 2016, equation 6, with alpha 1)."""
    differences = (decoded.diff(dim=dim).abs() - images.diff(dim=dim).abs() for dim in (-1, -2))
    return torch.stack([difference.abs().mean() for difference in differences]).sum()


STAGES: dict[str, Callable[[Options], object]] = {
    "autoencoder": train_autoencoder,
    "judge": train_judge,
    "diffusion": train_diffusion,
    "weights": write_weights,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("stage", choices=list(STAGES))
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the run; training continues from its last save"
    )
    parser.add_argument("--steps", type=int, default=6000, help="of the training (%(default)s)")
    parser.add_argument("--scenes", type=int, default=6000, help="number of training scenes (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path, help="a weights file to go on from")
    parser.add_argument("--layout", choices=list(config.LAYOUTS), default="sd1", help="of the UNet (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="pictures in a step (%(default)s)")
    parser.add_argument("--rate", type=float, help="highest learning rate; by default it depends on the stage")
    parser.add_argument("--minutes", type=float, help="length of the training, if shorter than the steps")


def run(options: argparse.Namespace) -> int:
    """Run one stage."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options.out.mkdir(parents=True, exist_ok=True)
    given = {name: value for name, value in vars(options).items() if name in Options.__dataclass_fields__}
    STAGES[options.stage](Options(**given))
    return 0
