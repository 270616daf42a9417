"""Load a user's Stable Diffusion model, 1, 2 or XL, from a single file or a diffusers folder.

Only local safetensors files are read: a pickled checkpoint can run any code when it is opened.
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
from todo_core.hosts import detect
from todo_core.hosts.host import IMAGE_PIXELS

from . import checkpoint_layout
from .clip_tokenizer import END, OPEN_CLIP_PAD, make_tokenizer
from .model_path import PICKLE_REASON, PICKLED, ModelError, check_name

log = logging.getLogger(__name__)

NETWORKS = {
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
}
LAST_TIMESTEP = 999


class Checkpoint:
    """A `LatentModel` over a diffusers pipeline. `target` is the UNet; `side` and `guidance` are usual for it."""

    parts: tuple[str, ...] = ("unet", "vae", "text_encoder")
    without: dict[str, Any] = {"safety_checker": None, "requires_safety_checker": False}  # what a pipeline shall lack
    guidance = 7.5
    multiple = IMAGE_PIXELS

    def __init__(self, name: str, pipeline: Any, device: str) -> None:
        for part in self.parts:
            getattr(pipeline, part).to(device).eval().requires_grad_(False)
        self.name, self._pipeline, self.target = name, pipeline, pipeline.unet
        self.channels = pipeline.unet.config.in_channels
        self.device, self.dtype = torch.device(device), pipeline.unet.dtype
        self.prediction = pipeline.scheduler.config.prediction_type

    @property
    def side(self) -> int:
        """Pixels of the side of the images that it was trained on."""
        return round(detect(self.target).trained_side * IMAGE_PIXELS)

    def context(self, prompts: list[str]) -> Any:
        """Text encodings (b, 77, c). Raises SettingsError if a prompt exceeds CLIP's token limit."""
        rows = self._tokens(prompts)
        return self._pipeline.text_encoder(torch.tensor(rows, device=self.device)).last_hidden_state

    def _tokens(self, prompts: list[str]) -> list[list[int]]:
        tokenizer = self._pipeline.tokenizer
        limit = tokenizer.model_max_length
        rows = tokenizer(prompts, padding="max_length", max_length=limit).input_ids
        for prompt, row in zip(prompts, rows, strict=True):
            if len(row) > limit:
                raise SettingsError("prompt", prompt, f"at most {limit - 2} tokens of CLIP; it has {len(row) - 2}")
        return rows

    def predict(self, latents: Tensor, timestep: Tensor, context: Any) -> Tensor:
        """The predicted noise or v."""
        return self.target(latents, timestep, encoder_hidden_states=context).sample

    def decode(self, latents: Tensor) -> Tensor:
        """Images in -1..1."""
        vae = self._pipeline.vae
        return vae.decode((latents / vae.config.scaling_factor).to(vae.dtype)).sample


class XLCheckpoint(Checkpoint):
    """Stable Diffusion XL: two text encoders. The UNet also takes their pooled text and the size of the image."""

    parts = (*Checkpoint.parts, "text_encoder_2")
    without = {"add_watermarker": False}
    guidance = 5.0

    def __init__(self, name: str, pipeline: Any, device: str) -> None:
        super().__init__(name, pipeline, device)
        if pipeline.vae.config.force_upcast:  # values of its decoder exceed float16
            pipeline.vae.to(torch.float32)

    def context(self, prompts: list[str]) -> tuple[Tensor, Tensor]:
        """Text encodings (b, 77, c) and pooled text (b, c), both zero for an empty prompt if the model wants it."""
        self._tokens(prompts)
        options = {"device": self.device, "do_classifier_free_guidance": False}
        text, _, pooled, _ = self._pipeline.encode_prompt(prompts, **options)
        if self._pipeline.config.force_zeros_for_empty_prompt:
            empty = [row for row, prompt in enumerate(prompts) if not prompt]
            text[empty], pooled[empty] = 0, 0
        return text, pooled

    def predict(self, latents: Tensor, timestep: Tensor, context: tuple[Tensor, Tensor]) -> Tensor:
        """The predicted noise or v. The image was neither resized nor cropped."""
        text, pooled = context
        size = [side * IMAGE_PIXELS for side in latents.shape[2:]]
        sizes = torch.tensor([[*size, 0, 0, *size]] * len(latents), device=self.device, dtype=self.dtype)
        added = {"text_embeds": pooled, "time_ids": sizes}
        return self.target(latents, timestep, encoder_hidden_states=text, added_cond_kwargs=added).sample


CLASSES = {"StableDiffusionPipeline": Checkpoint, "StableDiffusionXLPipeline": XLCheckpoint}


def check_path(path: Path) -> str:
    """The name of its pipeline. Raises ModelError if `load` cannot read it; only names and shapes are looked at."""
    check_name(path)
    if path.is_dir():
        return _check_folder(path)
    return "StableDiffusionXLPipeline" if checkpoint_layout.is_xl(_tensor_shapes(path)) else "StableDiffusionPipeline"


def load(path: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Checkpoint:
    """The model at `path`, ready to sample. Raises ModelError."""
    from diffusers.utils import logging as diffusers_logging

    diffusers_logging.disable_progress_bar()
    kind = check_path(path)
    try:
        if path.is_dir():
            return CLASSES[kind](path.name, _from_folder(path, kind, dtype), device)
        model = CLASSES[kind](path.stem, _from_file(path, kind, dtype), device)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:  # the libraries raise all of these
        raise ModelError(path, f"it could not be read ({_first_line(error)})") from error
    _detect_prediction(model)
    return model


def _check_folder(folder: Path) -> str:
    """The name of its pipeline. Raises ModelError."""
    index = folder / "model_index.json"
    if not index.is_file():
        raise ModelError(folder, "the folder has no model_index.json")
    try:
        kind = json.loads(index.read_text("utf-8")).get("_class_name")
    except (ValueError, AttributeError) as error:
        raise ModelError(folder, "its model_index.json cannot be read") from error
    if kind not in CLASSES:
        raise ModelError(folder, f"it is a {kind}")
    for part in CLASSES[kind].parts:
        if not any((folder / part).glob("*.safetensors")):
            pickled = any(file.suffix in PICKLED for file in (folder / part).glob("*"))
            raise ModelError(folder, f"{part}: {PICKLE_REASON}" if pickled else f"its {part} has no weights")
    return kind


def _tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor, from the file's header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelError(path, f"it is not a complete safetensors file ({_first_line(error)})") from error
    try:
        checkpoint_layout.configs(shapes)
    except checkpoint_layout.UnsupportedLayout as error:
        raise ModelError(path, str(error)) from error
    return shapes


def _from_folder(path: Path, kind: str, dtype: torch.dtype) -> Any:
    import diffusers

    options = {"local_files_only": True, "use_safetensors": True, **CLASSES[kind].without}
    return getattr(diffusers, kind).from_pretrained(str(path), dtype=dtype, **options)


def _from_file(path: Path, kind: str, dtype: torch.dtype) -> Any:
    """Convert with diffusers, using configs from the tensor shapes instead of downloaded ones."""
    import diffusers

    shapes = _tensor_shapes(path)
    networks = checkpoint_layout.configs(shapes)
    absent = {"feature_extractor": None, "image_encoder": None, **CLASSES[kind].without}
    with TemporaryDirectory() as folder:
        parts = _write_configs(Path(folder), kind, networks)
        # accepted silently; sampling makes its own
        parts["scheduler"] = diffusers.DDIMScheduler(steps_offset=1, clip_sample=False)
        pipeline = getattr(diffusers, kind).from_single_file(
            str(path),
            config=folder,
            dtype=dtype,
            local_files_only=True,
            low_cpu_mem_usage=False,  # with accelerate, weights that the file lacks would be empty
            **parts,
            **absent,
        )
    counts = checkpoint_layout.weight_counts(shapes, networks["text_encoder"]["num_hidden_layers"])
    _check_complete(pipeline, counts)
    return pipeline


def _write_configs(folder: Path, kind: str, networks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Write the configs of a pipeline's networks into its folder; returns its tokenizers."""
    index = {"_class_name": kind, **{name: NETWORKS[name] for name in networks}}
    (folder / "model_index.json").write_text(json.dumps(index), "utf-8")
    tokenizers = {}
    for name, config in networks.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config), "utf-8")
        if name.startswith("text_encoder"):
            tokenizer = name.replace("text_encoder", "tokenizer")
            pad = OPEN_CLIP_PAD if config["hidden_act"] == "gelu" else END
            tokenizers[tokenizer] = make_tokenizer(folder / tokenizer, pad)
    return tokenizers


def _check_complete(pipeline: Any, counts: dict[str, int]) -> None:
    """Raise ValueError if a network has other weights than the file.

    The conversion leaves missing weights random, so the network then has more weights than the file.
    """
    for name, count in counts.items():
        network: nn.Module = getattr(pipeline, name)
        size = sum(weight.numel() for weight in network.parameters())
        if size != count:
            raise ValueError(f"its {name} has {count:,} weights instead of {size:,}")


def _detect_prediction(model: Checkpoint) -> None:
    """Find out whether the UNet predicts the noise or v. The file does not say it.

    At the last timestep the latent is almost pure noise. A noise model then returns its input. A v model does not:
    v = sqrt(a) noise - sqrt(1 - a) image (Salimans and Ho 2022), and a is close to 0 there.
    """
    noise = torch.randn(1, 4, 64, 64, generator=torch.Generator().manual_seed(0)).to(model.device, model.dtype)
    with torch.inference_mode():
        answer = model.predict(noise, torch.tensor(LAST_TIMESTEP, device=model.device), model.context([""]))
    similarity = torch.nn.functional.cosine_similarity(noise.flatten().float(), answer.flatten().float(), dim=0)
    model.prediction = "epsilon" if similarity > 0.5 else "v_prediction"
    config = model.target.config
    if model.prediction == "v_prediction" and config.use_linear_projection and not config.addition_embed_type:
        model.target.register_to_config(sample_size=96)  # SD 2's v model was trained at 768 pixels
    log.info("%s predicts %s", model.name, "the noise" if model.prediction == "epsilon" else "v")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
