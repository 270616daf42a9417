"""Stable Diffusion 1 and 2 models of the user's own, as sampling wants them: from a folder of diffusers' or one file.

Only safetensors are read, for a pickled checkpoint can run any code when it is opened, and only what is on this disk.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from todo_core.errors import SettingsError

from . import checkpoint_layout
from .clip_tokenizer import clip_tokenizer

log = logging.getLogger(__name__)

ALLOWED = (
    "a .safetensors file of a Stable Diffusion 1 or 2 checkpoint (CompVis layout), or the folder of a diffusers "
    "StableDiffusionPipeline with .safetensors weights"
)
PICKLED = (".ckpt", ".pt", ".pth", ".bin", ".pkl")
PICKLE = "it is a pickle, which can run any code when it is opened; convert it to .safetensors first"
PARTS = ("unet", "vae", "text_encoder")
NOISE_LEVEL = 999


class ModelError(ValueError):
    """A model that cannot be read. Names the path, the reason and what is allowed."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} cannot be used: {why}. Allowed: {ALLOWED}.")
        self.path, self.why = path, why


class Checkpoint:
    """A `LatentModel` over a diffusers pipeline. `target` is its UNet."""

    def __init__(self, name: str, pipeline: Any, *, device: str = "cpu") -> None:
        for part in (pipeline.unet, pipeline.vae, pipeline.text_encoder):
            part.to(device).eval().requires_grad_(False)
        self.name, self._pipeline, self.target = name, pipeline, pipeline.unet
        self.channels = pipeline.unet.config.in_channels
        self.device, self.dtype = torch.device(device), pipeline.unet.dtype
        self.prediction = pipeline.scheduler.config.prediction_type

    def context(self, prompts: list[str]) -> Tensor:
        """(b, 77, c). Raises SettingsError for a text of more tokens than CLIP takes."""
        tokenizer = self._pipeline.tokenizer
        most = tokenizer.model_max_length
        rows = tokenizer(prompts, padding="max_length", max_length=most).input_ids
        for prompt, row in zip(prompts, rows, strict=True):
            if len(row) > most:
                raise SettingsError("prompt", prompt, f"at most {most - 2} tokens of CLIP; it has {len(row) - 2}")
        return self._pipeline.text_encoder(torch.tensor(rows, device=self.device)).last_hidden_state

    def predict(self, latents: Tensor, timestep: Tensor, context: Tensor) -> Tensor:
        """The predicted noise or v."""
        return self.target(latents, timestep, encoder_hidden_states=context).sample

    def decode(self, latents: Tensor) -> Tensor:
        """Images in -1..1."""
        vae = self._pipeline.vae
        return vae.decode(latents / vae.config.scaling_factor).sample


def look(path: Path) -> None:
    """Raise ModelError unless `path` looks like a model that `load` can load; only names and shapes are read."""
    if path.is_dir():
        _look_at_folder(path)
    elif not path.exists():
        raise ModelError(path, "there is no such file or folder")
    elif path.suffix in PICKLED:
        raise ModelError(path, PICKLE)
    elif path.suffix != ".safetensors":
        raise ModelError(path, f"it is a {path.suffix or 'nameless'} file")
    else:
        _sizes(path)


def load(path: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Checkpoint:
    """The model at `path`, ready to sample. Raises ModelError."""
    from diffusers.utils import logging as diffusers_logging

    diffusers_logging.disable_progress_bar()
    look(path)
    try:
        if path.is_dir():
            return Checkpoint(path.name, _from_folder(path, dtype), device=device)
        model = Checkpoint(path.stem, _from_file(path, dtype), device=device)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:  # whatever the libraries stumble over
        raise ModelError(path, f"it could not be read ({_first_line(error)})") from error
    _find_out_prediction(model)
    return model


def _look_at_folder(folder: Path) -> None:
    index = folder / "model_index.json"
    if not index.is_file():
        raise ModelError(folder, "the folder has no model_index.json")
    try:
        kind = json.loads(index.read_text("utf-8")).get("_class_name")
    except (ValueError, AttributeError) as error:
        raise ModelError(folder, "its model_index.json cannot be read") from error
    if kind != "StableDiffusionPipeline":
        raise ModelError(folder, f"it is a {kind}")
    for part in PARTS:
        if not any((folder / part).glob("*.safetensors")):
            pickled = any(file.suffix in PICKLED for file in (folder / part).glob("*"))
            raise ModelError(folder, f"{part}: {PICKLE}" if pickled else f"its {part} has no weights")


def _sizes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor, from the file's head alone."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelError(path, f"it is no whole safetensors file ({_first_line(error)})") from error
    try:
        checkpoint_layout.configs(shapes)
    except checkpoint_layout.ForeignLayout as error:
        raise ModelError(path, str(error)) from error
    return shapes


def _from_folder(path: Path, dtype: torch.dtype) -> Any:
    from diffusers import StableDiffusionPipeline

    bare: dict[str, Any] = {"safety_checker": None, "requires_safety_checker": False}
    safe: dict[str, Any] = {"local_files_only": True, "use_safetensors": True}
    return StableDiffusionPipeline.from_pretrained(str(path), dtype=dtype, **safe, **bare)


def _from_file(path: Path, dtype: torch.dtype) -> Any:
    """By diffusers' own conversion, with configs made from the shapes instead of downloaded ones."""
    from diffusers import StableDiffusionPipeline

    shapes = _sizes(path)
    networks = checkpoint_layout.configs(shapes)
    with TemporaryDirectory() as folder:
        index: dict[str, Any] = {"_class_name": "StableDiffusionPipeline", "text_encoder": _named("CLIPTextModel")}
        index |= {"unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"]}
        _write(Path(folder) / "model_index.json", index)
        for name, config in networks.items():
            _write(Path(folder) / name / "config.json", config)
        given = {"tokenizer": clip_tokenizer(Path(folder) / "tokenizer"), "scheduler": _scheduler()}
        without = dict.fromkeys(("safety_checker", "feature_extractor", "image_encoder"))
        pipeline = StableDiffusionPipeline.from_single_file(
            str(path),
            config=folder,
            dtype=dtype,
            local_files_only=True,
            requires_safety_checker=False,
            **given,
            **without,
        )
    _check_whole(path, pipeline, checkpoint_layout.needed(shapes, networks["text_encoder"]["num_hidden_layers"]))
    return pipeline


def _scheduler() -> Any:
    """One that the pipeline does not warn of; sampling makes its own."""
    from diffusers import DDIMScheduler

    return DDIMScheduler(steps_offset=1, clip_sample=False)


def _check_whole(path: Path, pipeline: Any, needed: dict[str, int]) -> None:
    """The conversion leaves random what the file lacks; then the network is larger than what the file has for it."""
    for name in PARTS:
        network: nn.Module = getattr(pipeline, name)
        size = sum(weight.numel() for weight in network.parameters())
        if size != needed[name]:
            raise ValueError(f"its {name} has {needed[name]:,} numbers where {size:,} are needed")


def _find_out_prediction(model: Checkpoint) -> None:
    """No file says whether the UNet predicts the noise or v, so it is asked at the highest noise.

    There the latent is all but the noise itself: a model of the noise gives it back, and one of v, which is the
    noise's small share less the image, does not.
    """
    noise = torch.randn(1, 4, 64, 64, generator=torch.Generator().manual_seed(0)).to(model.device, model.dtype)
    with torch.inference_mode():
        answer = model.predict(noise, torch.tensor(NOISE_LEVEL, device=model.device), model.context([""]))
    alike = torch.nn.functional.cosine_similarity(noise.flatten().float(), answer.flatten().float(), dim=0)
    model.prediction = "epsilon" if alike > 0.5 else "v_prediction"
    config = model.target.config
    if model.prediction == "v_prediction" and config.use_linear_projection:
        model.target.register_to_config(sample_size=96)  # SD 2's v model was trained at 768 pixels
    log.info("%s predicts %s", model.name, "the noise" if model.prediction == "epsilon" else "v")


def _named(kind: str) -> list[str]:
    return ["transformers", kind]


def _write(path: Path, config: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(config), "utf-8")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
