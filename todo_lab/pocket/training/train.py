"""Train the pocket model: ``python -m todo_lab pocket train autoencoder|diffusion|weights --out FOLDER``.

Training can be stopped at any time; the same command continues from the last save. ``weights`` writes the current
state as one file. With ``--start FILE`` the diffusion model starts from such a file, without an autoencoder training.

The autoencoder learns on crops of drawn scenes. The diffusion model learns on the latents of the scenes and their
captions, with v-prediction (Salimans and Ho 2022). One caption in ten is dropped for classifier-free guidance (Ho and
Salimans 2022). One batch in six has twice the base side, so that a hires pass stays coherent.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..data.captions import caption
from ..data.dataset import Latents, crops, in_batches, objects, pictures, training_scenes
from ..data.scenes import Scene
from ..model import config, weights_file
from ..model.networks import FirstStage, PocketModel
from ..model.vocabulary import vocabulary
from .training_loop import Loop

log = logging.getLogger(__name__)

CAPTIONS = 4  # per scene
OBJECT_WEIGHT = 4  # objects fill little of the picture but most of the caption


@dataclass(frozen=True)
class Options:
    """A run: its folder, length, number of scenes, seed, and optionally a weights file to start from."""

    out: Path
    steps: int
    scenes: int
    seed: int = 0
    start: Path | None = None


def train_autoencoder(options: Options, *, batch: int = 16) -> FirstStage:
    """Minimise squared and absolute error, with a weak KL term that keeps the latents near a unit normal."""
    torch.manual_seed(options.seed)
    network, folder, scenes, steps = FirstStage(), options.out, options.scenes, options.steps
    base = pictures(folder, training_scenes(scenes), config.BASE_SIZE)
    large = pictures(folder, training_scenes(scenes // 4), 2 * config.BASE_SIZE)

    def loss_of(step: int, rng: np.random.Generator) -> Tensor:
        late = step > 0.8 * steps  # full pictures at the end, so that the middle attention sees its true size
        side, size = (config.BASE_SIZE, batch // 4) if late else (config.BASE_SIZE // 2, batch)
        images = crops(large if rng.random() < 0.25 else base, side, size, rng)
        with torch.autocast("cpu", torch.bfloat16):
            latents = network.encode(images)
            decoded = network.decode(latents.sample())
        error = decoded.float() - images
        divergence = latents.kl().float().mean() / latents.mean[0].numel()
        return 4 * error.square().mean() + error.abs().mean() + 1e-4 * divergence

    Loop("autoencoder", network, folder, steps=steps, rate=1e-3, seed=options.seed).run(loss_of)
    return network


def train_diffusion(options: Options, *, batch: int = 32) -> PocketModel:
    """Train UNet and text encoder together on latents of the run's autoencoder."""
    torch.manual_seed(options.seed)
    folder, scenes = options.out, options.scenes
    model = _start_model(options)
    base = encoded(model, folder, training_scenes(scenes), config.BASE_SIZE)
    large = encoded(model, folder, training_scenes(scenes // 4), 2 * config.BASE_SIZE)
    model.scale_factor.copy_(_scale(base))
    empty = vocabulary().encode([""])[0]
    learner = nn.ModuleDict({"unet": model.unet, "text": model.cond_stage_model})

    def loss_of(step: int, rng: np.random.Generator) -> Tensor:
        wide = step % 6 == 5
        latents, ids, objects_mask = (large if wide else base).batch(batch // 4 if wide else batch, rng)
        ids[torch.from_numpy(rng.random(len(ids)) < 0.1)] = empty
        # a hires pass starts from a partly denoised latent, so the large size needs no high noise
        times = torch.from_numpy(rng.integers(750 if wide else 1000, size=len(ids)))
        clean, noise = latents * model.scale_factor, torch.randn(latents.shape)
        signal = model.alphas_cumprod[times].sqrt().view(-1, 1, 1, 1)
        spread = (1 - model.alphas_cumprod[times]).sqrt().view(-1, 1, 1, 1)
        with torch.autocast("cpu", torch.bfloat16):
            context = model.cond_stage_model(ids)
            predicted = model.unet(signal * clean + spread * noise, timesteps=times, context=context)
        error = (predicted.float() - (signal * noise - spread * clean)).square()
        return ((1 + OBJECT_WEIGHT * objects_mask) * error).mean()

    rate = 4e-4 if options.start else 1e-3
    Loop("diffusion", learner, folder, steps=options.steps, rate=rate, seed=options.seed).run(loss_of)
    return model


def write_weights(options: Options) -> None:
    """Write the averaged weights of both stages, in their current state, into one file in the run's folder."""
    model = _start_model(options)
    learner = nn.ModuleDict({"unet": model.unet, "text": model.cond_stage_model})
    learner.load_state_dict(_averaged(options.out, "diffusion"))
    model.scale_factor.copy_(_scale(encoded(model, options.out, training_scenes(options.scenes), config.BASE_SIZE)))
    weights_file.save(model, options.out / "pocket.safetensors")
    log.info("written: %s", options.out / "pocket.safetensors")


def _start_model(options: Options) -> PocketModel:
    """A model with the run's autoencoder, or with the weights of the start file."""
    if options.start:
        return weights_file.load(options.start).train().requires_grad_(True)
    model = PocketModel(len(vocabulary().tokens))
    model.first_stage_model.load_state_dict(_averaged(options.out, "autoencoder"))
    return model


def _scale(latents: Latents) -> Tensor:
    return 1 / latents.latents.float().std()


def encoded(model: PocketModel, folder: Path, scenes: list[Scene], side: int) -> Latents:
    """Unscaled mean latents and token ids of the scenes. They are made once and stored in `folder`."""
    path = folder / f"latents-{side}-{len(scenes)}.pt"
    if not path.exists():
        stack = pictures(folder, scenes, side)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            means = [model.first_stage_model.encode(images).mode() for images in in_batches(stack, 16, "encoding")]
        ids = torch.stack([vocabulary().encode([caption(scene, seed) for seed in range(CAPTIONS)]) for scene in scenes])
        torch.save({"latents": torch.cat(means).half(), "ids": ids}, path)
    return Latents(**torch.load(path, weights_only=True), objects=objects(scenes, side // config.FACTOR))


def _averaged(folder: Path, name: str) -> dict[str, Tensor]:
    return torch.load(folder / f"{name}.pt", weights_only=True)["average"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("stage", choices=["autoencoder", "diffusion", "weights"])
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the run; training continues from its last save"
    )
    parser.add_argument("--steps", type=int, default=6000, help="of the training (%(default)s)")
    parser.add_argument("--scenes", type=int, default=6000, help="number of training scenes (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path, help="a weights file to start the diffusion model from")


def run(options: argparse.Namespace) -> int:
    """Run one stage."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    stages: dict[str, Callable[[Options], object]] = {
        "autoencoder": train_autoencoder,
        "diffusion": train_diffusion,
        "weights": write_weights,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    stages[options.stage](Options(options.out, options.steps, options.scenes, seed=options.seed, start=options.start))
    return 0
