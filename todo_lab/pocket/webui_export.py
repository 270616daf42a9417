"""Write the pocket model as a checkpoint of a WebUI: ``python -m todo_lab pocket export WEBUI_FOLDER``.

It writes ``models/Stable-diffusion/pocket.safetensors``, the config ``pocket.yaml`` beside it, and the folder
``models/pocket-tokenizer``: the CLIP tokenizer and text config that the yaml names.

It does not import ldm, so it also runs in the environment of a WebUI, whose ldm is another one.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ..sampling.clip_tokenizer import as_merges, split, write_files
from .model import config, weights_file
from .model.vocabulary import END, START, vocabulary

log = logging.getLogger(__name__)

EMBEDDING = weights_file.NESTED + "embeddings.token_embedding.weight"
MARKS = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}


def export(webui: Path, weights: Path | None = None) -> Path:
    """Write all files; returns the path of the checkpoint. Raises NotADirectoryError without a models folder."""
    if not (webui / "models").is_dir():
        raise NotADirectoryError(f"{webui} is not a WebUI: it has no folder models")
    tokenizer = (webui / "models" / "pocket-tokenizer").resolve()
    ids = write_tokenizer(tokenizer)
    checkpoint = webui / "models" / "Stable-diffusion" / "pocket.safetensors"
    checkpoint.parent.mkdir(exist_ok=True)
    source = weights or weights_file.shipped()
    state, unet = weights_file.read(source), weights_file.unet_settings(source)
    scale = float(state.pop("scale_factor"))
    known, end = state[EMBEDDING], vocabulary().encode([""])[0, -1]
    state[EMBEDDING] = torch.cat([known, known[end].expand(max(ids.values()) + 1 - len(known), -1)])
    save_file(state, checkpoint, metadata={"modelspec.title": "pocket"})
    # JSON is valid YAML
    checkpoint.with_suffix(".yaml").write_text(json.dumps(webui_config(scale, tokenizer, unet), indent=1), "utf-8")
    return checkpoint


def webui_config(scale: float, tokenizer: Path, unet: dict[str, Any]) -> dict[str, Any]:
    """The CompVis config: a LatentDiffusion of the three networks that predicts v."""

    def part(target: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"target": target, "params": params}

    first_stage = {"embed_dim": config.FIRST_STAGE["z_channels"], "monitor": "val/rec_loss"}
    first_stage |= {"ddconfig": config.FIRST_STAGE, "lossconfig": {"target": "torch.nn.Identity"}}
    params = {
        **{name: config.DIFFUSION[name] for name in ("timesteps", "linear_start", "linear_end")},
        "parameterization": "v",
        "num_timesteps_cond": 1,
        "log_every_t": 200,
        "first_stage_key": "jpg",
        "cond_stage_key": "txt",
        "image_size": unet["image_size"],
        "channels": 4,
        "cond_stage_trainable": False,
        "conditioning_key": "crossattn",
        "scale_factor": scale,
        "use_ema": False,
        "unet_config": part(*_unet(unet)),
        "first_stage_config": part("ldm.models.autoencoder.AutoencoderKL", first_stage),
        "cond_stage_config": part("ldm.modules.encoders.modules.FrozenCLIPEmbedder", {"version": str(tokenizer)}),
    }
    return {"model": part("ldm.models.diffusion.ddpm.LatentDiffusion", params)}


def _unet(settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The class and its arguments. The WebUI's ldm takes one depth for all levels; its sgm a list, no image size."""
    name = "modules.diffusionmodules.openaimodel.UNetModel"
    if isinstance(settings["transformer_depth"], int):
        return f"ldm.{name}", settings
    return f"sgm.{name}", {key: value for key, value in settings.items() if key != "image_size"}


def write_tokenizer(folder: Path) -> dict[str, int]:
    """Write a folder for `CLIPTokenizer` and `CLIPTextConfig`; returns the embedding row of each piece.

    Merges also produce intermediate pieces, which are no tokens of the model. transformers 5 requires an id for each,
    so they get rows after the known ones.
    """
    merges = as_merges((weights_file.shipped().parent / "merges.txt").read_text("utf-8"))
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    rows = {token: row for row, token in enumerate(vocabulary().tokens)}
    ids = {MARKS["bos_token"]: rows[START], MARKS["eos_token"]: rows[END]}
    for word, tokens in vocabulary().words.items():
        ids |= dict(zip(split(word, ranks), (rows[token] for token in tokens), strict=True))
    for first, second in merges:
        for piece in (first, second, first + second):
            ids.setdefault(piece, len(ids))
    write_files(folder, ids, merges, {**MARKS, "pad_token": MARKS["eos_token"]})
    text = {**config.TEXT, "vocab_size": len(ids), "bos_token_id": rows[START], "eos_token_id": rows[END]}
    text |= {"architectures": ["CLIPTextModel"], "model_type": "clip_text_model"}
    (folder / "config.json").write_text(json.dumps(text), "utf-8")
    return ids


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("webui", type=Path, help="the WebUI's folder")
    parser.add_argument("--weights", type=Path, help="other weights than the shipped ones")


def run(options: argparse.Namespace) -> int:
    """Write the files and name the checkpoint."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    log.info("written: %s", export(options.webui, options.weights))
    return 0
