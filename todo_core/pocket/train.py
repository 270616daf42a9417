"""Train the pocket model: ``python -m todo_core.pocket.train autoencoder|diffusion --out FOLDER``; both can be resumed.

The autoencoder learns on crops of drawn scenes. The diffusion model then learns on the scenes' latents with their
captions: v-prediction (Salimans and Ho 2022), one caption in ten dropped for classifier-free guidance (Ho and Salimans
2022), three batches in four at the base size and one at twice its side, so that a hires pass stays coherent.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from . import config
from .captions import caption
from .dataset import Latents, crops, in_batches, pictures, training_scenes
from .loop import Loop
from .networks import FirstStage, PocketModel
from .scenes import Scene
from .vocabulary import vocabulary

CAPTIONS = 4  # wordings of each scene


def train_autoencoder(folder: Path, *, steps: int, scenes: int, seed: int = 0, batch: int = 16) -> FirstStage:
    """Minimise squared and absolute error with a slight pull of the latents towards a unit normal."""
    torch.manual_seed(seed)
    network = FirstStage()
    base = pictures(folder, training_scenes(scenes), config.BASE_SIZE)
    large = pictures(folder, training_scenes(scenes // 4), 2 * config.BASE_SIZE)

    def loss_of(step: int, rng: np.random.Generator) -> Tensor:
        late = step > 0.8 * steps  # whole pictures at the end: the middle attention has to see its true size
        side, size = (config.BASE_SIZE, batch // 4) if late else (config.BASE_SIZE // 2, batch)
        images = crops(large if rng.random() < 0.25 else base, side, size, rng)
        with torch.autocast("cpu", torch.bfloat16):
            latents = network.encode(images)
            decoded = network.decode(latents.sample())
        error = decoded.float() - images
        divergence = latents.kl().float().mean() / latents.mean[0].numel()
        return 4 * error.square().mean() + error.abs().mean() + 1e-4 * divergence

    Loop("autoencoder", network, folder, steps=steps, rate=1e-3, seed=seed).run(loss_of)
    return network


def train_diffusion(folder: Path, *, steps: int, scenes: int, seed: int = 0, batch: int = 32) -> PocketModel:
    """Train UNet and text encoder together on the latents of the folder's autoencoder."""
    torch.manual_seed(seed)
    model = PocketModel(len(vocabulary().tokens))
    model.first_stage_model.load_state_dict(_averaged(folder, "autoencoder"))
    base = encoded(model, folder, training_scenes(scenes), config.BASE_SIZE)
    large = encoded(model, folder, training_scenes(scenes // 4), 2 * config.BASE_SIZE)
    model.scale_factor.copy_(1 / base.latents.float().std())
    empty = vocabulary().encode([""])[0]
    learner = nn.ModuleDict({"unet": model.unet, "text": model.cond_stage_model})

    def loss_of(step: int, rng: np.random.Generator) -> Tensor:
        wide = step % 4 == 3
        latents, ids = (large if wide else base).batch(batch // 4 if wide else batch, rng)
        ids[torch.from_numpy(rng.random(len(ids)) < 0.1)] = empty
        # a hires pass starts half way down, so the large size sees the noisiest quarter seldom
        times = torch.from_numpy(rng.integers(750 if wide and step % 16 != 3 else 1000, size=len(ids)))
        clean, noise = latents * model.scale_factor, torch.randn(latents.shape)
        signal = model.alphas_cumprod[times].sqrt().view(-1, 1, 1, 1)
        spread = (1 - model.alphas_cumprod[times]).sqrt().view(-1, 1, 1, 1)
        with torch.autocast("cpu", torch.bfloat16):
            context = model.cond_stage_model(ids)
            predicted = model.unet(signal * clean + spread * noise, timesteps=times, context=context)
        return functional.mse_loss(predicted.float(), signal * noise - spread * clean)

    Loop("diffusion", learner, folder, steps=steps, rate=1e-3, seed=seed).run(loss_of)
    return model


def encoded(model: PocketModel, folder: Path, scenes: list[Scene], side: int) -> Latents:
    """The scenes' latents (unscaled means) and token ids, from the folder's file or made now."""
    path = folder / f"latents-{side}-{len(scenes)}.pt"
    if not path.exists():
        stack = pictures(folder, scenes, side)
        with torch.inference_mode():
            means = [model.first_stage_model.encode(images).mode() for images in in_batches(stack, 16, "encoding")]
        ids = torch.stack([vocabulary().encode([caption(scene, seed) for seed in range(CAPTIONS)]) for scene in scenes])
        torch.save({"latents": torch.cat(means).half(), "ids": ids}, path)
    return Latents(**torch.load(path, weights_only=True))


def _averaged(folder: Path, name: str) -> dict[str, Tensor]:
    return torch.load(folder / f"{name}.pt", weights_only=True)["average"]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m todo_core.pocket.train", description=__doc__)
    parser.add_argument("stage", choices=["autoencoder", "diffusion"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; goes on from what is there")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--scenes", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options.out.mkdir(parents=True, exist_ok=True)
    train = train_autoencoder if options.stage == "autoencoder" else train_diffusion
    train(options.out, steps=options.steps, scenes=options.scenes, seed=options.seed)


if __name__ == "__main__":
    main()
