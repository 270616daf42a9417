"""Train the pocket model: ``python -m todo_lab pocket train autoencoder|decoder|judge|diffusion|weights --out FOLDER``.

Training can be stopped at any time; the same command continues from the last save. ``weights`` writes the current
state as one file. With ``--start FILE`` a stage goes on from such a file. It runs on a GPU if there is one.

The autoencoder learns on crops of drawn scenes. ``decoder`` trains its decoder alone. See diffusion.py for the
diffusion model.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ..data.dataset import as_images, crops, pictures, training_scenes
from ..model import config, weights_file
from ..model.networks import FirstStage
from .diffusion import encoded, scenes_at, train_diffusion, write_weights
from .judge import train_judge
from .training_loop import Loop, Options, half_on_gpu

EDGES = 1.0  # weight of the edges' strengths, without which fine detail comes out too soft
TEXTURE = 1.5  # weight of the strength of fine detail in each cell, wherever it lies
CORNERS = 4.0  # weight of errors in the corner cells, where the padding otherwise leaves a speck


def train_autoencoder(options: Options) -> None:
    """Minimise the error of the pictures, with a weak KL term that keeps the latents near a unit normal."""
    torch.manual_seed(options.seed)
    network = weights_file.load(options.start).first_stage_model if options.start else FirstStage()
    network.to(options.device).train().requires_grad_(True)
    base = pictures(options.out, training_scenes(options.scenes), config.BASE_SIZE)
    large = pictures(options.out, training_scenes(options.scenes // 8), 2 * config.BASE_SIZE)
    loop = Loop("autoencoder", network, options, rate=5e-4 if options.start else 1e-3)
    batch = options.batch // 2

    def loss_of(step: int, rng: np.random.Generator) -> Tensor:
        late = loop.progress() > 0.8  # full pictures at the end, so that the middle attention sees its true size
        side, size = (config.BASE_SIZE, batch // 4) if late else (config.BASE_SIZE // 2, batch)
        images = crops(large if rng.random() < 0.25 else base, side, size, rng).to(options.device)
        with half_on_gpu(options.device):
            latents = network.encode(images)
            decoded = network.decode(latents.sample())
        divergence = latents.kl().float().mean() / latents.mean[0].numel()
        return picture_error(decoded.float(), images) + 1e-4 * divergence

    loop.run(loss_of)


def train_decoder(options: Options) -> None:
    """Train the decoder of the start file alone: all latents, and so the diffusion model, stay as they are.

    It sees whole pictures. One batch in four has twice the base side.
    """
    torch.manual_seed(options.seed)
    model = weights_file.load(options.start)
    network = model.to(options.device).first_stage_model.train()
    for part in (network.decoder, network.post_quant_conv):
        part.requires_grad_(True)
    scenes = {scale: scenes_at(scale, options) for scale in (1, 2)}
    data = {scale: encoded(model, options.out, chosen, scale * config.BASE_SIZE) for scale, chosen in scenes.items()}
    stacks = {scale: pictures(options.out, chosen, scale * config.BASE_SIZE) for scale, chosen in scenes.items()}

    def loss_of(step: int, rng: np.random.Generator) -> Tensor:
        scale = 2 if step % 4 == 3 else 1
        rows = np.sort(rng.choice(len(stacks[scale]), max(1, options.batch // 4 // scale**2), replace=False))
        images = as_images(stacks[scale][rows]).to(options.device)
        with half_on_gpu(options.device):
            decoded = network.decode(data[scale].latents[torch.from_numpy(rows)].float())
        return picture_error(decoded.float(), images)

    Loop("decoder", network, options, rate=4e-4).run(loss_of)


def picture_error(decoded: Tensor, images: Tensor) -> Tensor:
    """Squared and absolute error, and errors of the edges and of the texture."""
    ends = torch.zeros(images.shape[-1], dtype=torch.bool, device=images.device)
    ends[: config.FACTOR] = ends[-config.FACTOR :] = True
    error = (decoded - images) * torch.where(ends[:, None] & ends[None, :], CORNERS, 1.0)
    texture = (texture_of(decoded) - texture_of(images)).abs().mean()
    # the strengths of the edges, wherever they lie (Mathieu et al. 2016, equation 6, with alpha 1)
    differences = (decoded.diff(dim=dim).abs() - images.diff(dim=dim).abs() for dim in (-1, -2))
    edges = torch.stack([difference.abs().mean() for difference in differences]).sum()
    return 4 * error.square().mean() + error.abs().mean() + EDGES * edges + TEXTURE * texture


def texture_of(images: Tensor) -> Tensor:
    """Root mean square of the differences of neighbouring pixels' lightness in each latent cell, (b, 1, h/8, w/8)."""
    grey = images.mean(1, keepdim=True)
    across, down = grey.diff(dim=-1).square(), grey.diff(dim=-2).square()
    energy = functional.pad(across, (0, 1)) + functional.pad(down, (0, 0, 0, 1))
    return (functional.avg_pool2d(energy, config.FACTOR) + 1e-5).sqrt()


STAGES: dict[str, Callable[[Options], object]] = {
    "autoencoder": train_autoencoder,
    "decoder": train_decoder,
    "judge": train_judge,
    "diffusion": train_diffusion,
    "weights": write_weights,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("stage", choices=list(STAGES), help="what to train or write")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; its last save is continued")
    parser.add_argument("--steps", type=int, default=6000, help="of the training (%(default)s)")
    parser.add_argument("--scenes", type=int, default=6000, help="number of training scenes (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the training scenes and weights (%(default)s)")
    parser.add_argument("--start", type=Path, help="a weights file to go on from")
    parser.add_argument("--layout", choices=list(config.LAYOUTS), default="sd1", help="of the UNet (%(default)s)")
    side = "of the base pictures of the diffusion model, in pixels (%(default)s)"
    parser.add_argument("--side", type=int, default=config.BASE_SIZE, help=side)
    parser.add_argument("--batch", type=int, default=32, help="pictures in a step (%(default)s)")
    parser.add_argument("--minutes", type=float, help="length of the training, if shorter than the steps")


def run(options: argparse.Namespace) -> int:
    """Run one stage."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options.out.mkdir(parents=True, exist_ok=True)
    given = {name: value for name, value in vars(options).items() if name in Options.__dataclass_fields__}
    STAGES[options.stage](Options(**given))
    return 0
