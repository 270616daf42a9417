"""Train the diffusion model on the latents of the scenes and their captions.

It predicts v (Salimans and Ho 2022). One caption in ten is dropped for classifier-free guidance (Ho and Salimans 2022).
Most noise levels are drawn from the middle of the schedule, where shapes are decided (Esser et al. 2024, section 3.1).
Some batches have twice or four times the base side, so that a hires pass keeps shapes and edges.
"""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..data.captions import caption
from ..data.dataset import Latents, in_batches, objects, pictures, shares, training_scenes
from ..data.scenes import Scene
from ..model import config, weights_file
from ..model.networks import PocketModel
from ..model.vocabulary import vocabulary
from .training_loop import Loop, Options, averaged, half_on_gpu

log = logging.getLogger(__name__)

CAPTIONS = 4  # per scene
TAUGHT = 0.8  # share of the start file's v in the target of another layout
DROPPED = 0.1  # share of captions left empty
OBJECT_WEIGHT = 4  # objects fill little of the picture but most of the caption
SCALES = {1: 1, 2: 6, 4: 24}  # of the base side; one in so many scenes is encoded at that size
LARGEST = 1024  # pixels per side of an enlarged picture
LARGE_MOST = 0.75  # a hires pass starts from a partly denoised latent, so the large sizes need no high noise
MIDDLE, SPREAD, EVEN = 0.3, 1.0, 0.3  # noise levels: mean and deviation of their logit, and the share drawn evenly


def train_diffusion(options: Options) -> PocketModel:
    """Train the UNet, and with the layout ``sd1`` the text encoder, too. Other layouts have a teacher."""
    torch.manual_seed(options.seed)
    model = _model(options)
    scales = [scale for scale in SCALES if scale == 1 or scale * options.side <= LARGEST]
    data = {scale: _latents(model, options, scale) for scale in scales}
    _set_scale(model, options, data[1])
    learner = _learner(model, options)
    teacher = _teacher(options)
    empty, size = vocabulary().encode([""])[0].to(options.device), options.side / config.BASE_SIZE

    def loss_of(step: int, rng: np.random.Generator) -> Tensor:
        scale = {1: 2, 3: 4, 5: 2}.get(step % 8, 1)  # of 8 steps, two have twice the base side and one has four times
        scale = scale if scale in data else 1
        latents, ids, mask = data[scale].batch(max(1, options.batch // scale**2), rng)
        ids[torch.from_numpy(rng.random(len(ids)) < DROPPED).to(ids.device)] = empty
        times = torch.from_numpy(noise_times(len(ids), rng, 1.0 if scale == 1 else LARGE_MOST, size)).to(ids.device)
        error = v_error(model, latents * model.scale_factor, ids, times, teacher)
        return (cell_weights(mask, model.alphas_cumprod[times]) * error).mean()

    Loop(_name(options), learner, options, rate=4e-4 if options.start else 1e-3, muon=True).run(loss_of)
    return model


def cell_weights(mask: Tensor, kept: Tensor) -> Tensor:
    """Weights (b, 1, h, w) of the cells in the loss, from the objects' mask and the signal's share of the variance (b).

    Where noise hides whether a cell has an object, all cells weigh the same. If those of objects weighed more there,
    the model would paint more objects than the caption says.
    """
    return 1 + OBJECT_WEIGHT * kept.view(-1, 1, 1, 1) * mask


def noise_times(count: int, rng: np.random.Generator, most: float = 1.0, size: float = 1.0) -> np.ndarray:
    """Timesteps below `most` of the schedule: a share evenly, the others mostly from the middle.

    Pictures `size` times as large need more noise to hide as much (Esser et al. 2024, section 5.3.2).
    """
    middle = 1 / (1 + np.exp(-rng.normal(MIDDLE + math.log(size), SPREAD, size=count)))
    shares = np.where(rng.random(count) < EVEN, rng.random(count), middle)
    return (shares * most * config.DIFFUSION["timesteps"]).astype(np.int64)


def v_error(model: PocketModel, clean: Tensor, ids: Tensor, times: Tensor, teacher: PocketModel | None) -> Tensor:
    """Squared error of the predicted v at each cell of the scaled latents, in part to the v of a teacher."""
    noise = torch.randn_like(clean)
    kept = model.alphas_cumprod[times].view(-1, 1, 1, 1)
    signal, spread = kept.sqrt(), (1 - kept).sqrt()
    noisy, target = signal * clean + spread * noise, signal * noise - spread * clean
    with half_on_gpu(clean.device):
        context = model.cond_stage_model(ids)
        predicted = model.unet(noisy, timesteps=times, context=context)
        if teacher:
            with torch.no_grad():
                target = torch.lerp(target, teacher.unet(noisy, timesteps=times, context=context).float(), TAUGHT)
    return (predicted.float() - target).square()


def write_weights(options: Options) -> None:
    """Write the averaged weights in their current state into one file in the run's folder."""
    model = _model(options)
    _learner(model, options).load_state_dict(averaged(options.out, _name(options)))
    _set_scale(model, options)
    path = options.out / f"{'pocket' if options.layout == 'sd1' else 'pocket-' + options.layout}.safetensors"
    weights_file.save(model, path, unet_alone=options.layout != "sd1")
    log.info("written: %s", path)


def _name(options: Options) -> str:
    return "diffusion" if options.layout == "sd1" else f"diffusion-{options.layout}"


def _learner(model: PocketModel, options: Options) -> nn.ModuleDict:
    """The networks that learn. Other layouts use the text encoder of the start file as it is."""
    parts = {"unet": model.unet, "text": model.cond_stage_model}
    if options.layout != "sd1":
        parts.pop("text").requires_grad_(False)
    return nn.ModuleDict(parts)


def _model(options: Options) -> PocketModel:
    """A model with the weights of the start file, or with the run's autoencoder."""
    settings = {**config.LAYOUTS[options.layout], "image_size": options.side // config.FACTOR}
    model = PocketModel(len(vocabulary().tokens), settings)
    if options.start:
        started = weights_file.load(options.start)
        model.first_stage_model.load_state_dict(started.first_stage_model.state_dict())
        model.cond_stage_model.load_state_dict(started.cond_stage_model.state_dict())
        model.scale_factor.copy_(started.scale_factor)
        model.unet.load_state_dict(_fitting(started.unet.state_dict(), model.unet.state_dict()), strict=False)
    for stage in ("autoencoder", "decoder"):  # the decoder stage comes after the other
        if (options.out / f"{stage}.pt").exists():
            model.first_stage_model.load_state_dict(averaged(options.out, stage))
    return model.to(options.device)


def _teacher(options: Options) -> PocketModel | None:
    """Another layout learns from the model of the start file (Hinton et al. 2015), which takes far fewer steps.

    At another size that model is no example.
    """
    if options.layout == "sd1" or not options.start or options.side != config.BASE_SIZE:
        return None
    return weights_file.load(options.start).to(options.device)


def _fitting(start: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights that fit: all of them in the same layout; in another one, those of the same place and shape.

    Output blocks are counted from the last one. Transformer blocks that the start file lacks begin by adding nothing.
    """
    more = _outputs(start) - _outputs(own)
    named = {re.sub(r"(?<=^output_blocks\.)\d+", lambda n: str(int(n[0]) - more), name): w for name, w in start.items()}
    fitting = {name: weight for name, weight in named.items() if name in own and own[name].shape == weight.shape}
    last = re.compile(r"transformer_blocks\.[1-9]\d*\.(attn[12]\.to_out\.0|ff\.net\.2)\.(weight|bias)$")
    silent = {name: torch.zeros_like(weight) for name, weight in own.items() if last.search(name)}
    return silent | fitting


def _outputs(weights: dict[str, Tensor]) -> int:
    return 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("output_blocks."))


def _set_scale(model: PocketModel, options: Options, latents: Latents | None = None) -> None:
    """Give the scaled latents a variance of 1. The file of another layout has a UNet alone, so that scale is fixed."""
    if options.layout == "sd1":
        latents = latents or _latents(model, options, 1)
        model.scale_factor.copy_(1 / latents.latents.float().std())


def _latents(model: PocketModel, options: Options, scale: int) -> Latents:
    """The training latents of one scale."""
    return encoded(model, options.out, scenes_at(scale, options), scale * options.side)


def scenes_at(scale: int, options: Options) -> list[Scene]:
    """The scenes of the run that are encoded at a multiple of the base side."""
    return training_scenes(max(1, options.scenes // SCALES[scale]))


def encoded(model: PocketModel, folder: Path, scenes: list[Scene], side: int) -> Latents:
    """Unscaled mean latents and token ids of the scenes. They are made once and stored in `folder`."""
    path, device = folder / f"latents-{side}-{len(scenes)}.pt", model.scale_factor.device
    if not path.exists():
        stack = pictures(folder, scenes, side)
        with torch.inference_mode(), half_on_gpu(device):
            encode, batch = model.first_stage_model.encode, max(1, 2**18 // side**2)
            means = [encode(images.to(device)).mode().half().cpu() for images in in_batches(stack, batch, "encoding")]
        ids = torch.stack([vocabulary().encode([caption(scene, seed) for seed in range(CAPTIONS)]) for scene in scenes])
        torch.save({"latents": torch.cat(means), "ids": ids}, path)
    stored, masks = torch.load(path, weights_only=True), objects(scenes, side // config.FACTOR)
    latents = Latents(**stored, objects=masks, shares=shares(scenes))
    return latents.to(device)
