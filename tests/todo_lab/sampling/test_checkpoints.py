"""Small random models in both file formats compute the same as the networks in them."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from ldm.modules.diffusionmodules.util import timestep_embedding
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import CLIPTextModelWithProjection

from tests.models import ldm_unet, noise, randomised
from tests.todo_lab.saved_pipelines import save_sd1, save_sdxl, text_model
from todo_core import Settings, SettingsError
from todo_lab.pocket.model import config
from todo_lab.pocket.model.networks import FirstStage
from todo_lab.sampling import checkpoints
from todo_lab.sampling.checkpoints import ModelError, load
from todo_lab.sampling.clip_tokenizer import make_tokenizer
from todo_lab.sampling.comparison import compare_all
from todo_lab.sampling.request import Request

WIDTH = 32
LATER = {"num_heads": -1, "num_head_channels": 64, "use_linear_in_transformer": True, "model_channels": 64}  # than SD 1
PHOTO = [49406, 320, 1125, 539, 320, 2368, 49407]  # CLIP's tokens of "a photo of a cat"
REQUEST = Request(prompt="a photo of a cat", width=64, height=64, steps=1, hires_steps=1)


def openai_names(model, prefix="cond_stage_model."):
    nested = {key.removeprefix("text_model."): row for key, row in model.state_dict().items()}
    return {f"{prefix}transformer.text_model.{key}": row for key, row in nested.items()}


def open_clip_names(model, prefix="cond_stage_model.", more=1):
    """The state dict with OpenCLIP's names and one more layer, which SD 2 does not use."""
    state = {key.removeprefix("text_model."): row for key, row in model.state_dict().items()}
    named = {
        "token_embedding.weight": state["embeddings.token_embedding.weight"],
        "positional_embedding": state["embeddings.position_embedding.weight"],
        "ln_final.weight": state["final_layer_norm.weight"],
        "ln_final.bias": state["final_layer_norm.bias"],
        "text_projection": state.get("text_projection.weight", torch.zeros(WIDTH, WIDTH)).T,
        "logit_scale": torch.zeros(()),
    }
    layers = model.config.num_hidden_layers
    for number in range(layers + more):
        old, new = f"encoder.layers.{min(number, layers - 1)}.", f"transformer.resblocks.{number}."
        for kind in ("weight", "bias"):
            parts = [state[f"{old}self_attn.{letter}_proj.{kind}"] for letter in "qkv"]
            named[f"{new}attn.in_proj_{kind}"] = torch.cat(parts)
            named[f"{new}attn.out_proj.{kind}"] = state[f"{old}self_attn.out_proj.{kind}"]
            for theirs, ours in {"ln_1": "layer_norm1", "ln_2": "layer_norm2"}.items():
                named[f"{new}{theirs}.{kind}"] = state[f"{old}{ours}.{kind}"]
            for theirs, ours in {"c_fc": "fc1", "c_proj": "fc2"}.items():
                named[f"{new}mlp.{theirs}.{kind}"] = state[f"{old}mlp.{ours}.{kind}"]
    return {f"{prefix}model.{key}": row for key, row in named.items()}


def parts_of(unet, texts, text_state):
    """The networks with a first stage, and their state dict as in a checkpoint."""
    vae = randomised(FirstStage({**config.FIRST_STAGE, "ch_mult": [1, 1, 1, 1]}))
    prefixes = {"model.diffusion_model.": unet, "first_stage_model.": vae}
    state = {f"{of}{key}": row for of, network in prefixes.items() for key, row in network.state_dict().items()}
    return SimpleNamespace(unet=unet, vae=vae, texts=texts, state=state | text_state)


def compvis(family):
    """ldm's UNet and a text encoder of SD 1 or 2."""
    unet = ldm_unet(**(LATER if family == 2 else {}), channel_mult=[1, 2])
    text = text_model(2, hidden_act="gelu" if family == 2 else "quick_gelu")
    return parts_of(unet, [text], (open_clip_names if family == 2 else openai_names)(text))


class Label(nn.Sequential):
    """sgm's layers for a vector, in ldm's UNet, which knows none: a forward sets it."""

    def forward(self, _):
        return super().forward(self.vector)


def sdxl():
    """The same for SDXL: ldm's UNet with sgm's additional layers, and two text encoders."""
    deeper = {"attention_resolutions": [2], "transformer_depth": 2, "context_dim": [WIDTH + WIDTH // 2] * 2}
    unet = ldm_unet(**LATER, **deeper, channel_mult=[1, 2])
    unet.num_classes = 1
    unet.label_emb = Label(nn.Sequential(nn.Linear(24 + 6 * 8, 256), nn.SiLU(), nn.Linear(256, 256)))
    randomised(unet)
    first = text_model(2, hidden_size=WIDTH // 2)
    second = text_model(3, CLIPTextModelWithProjection, hidden_act="gelu", projection_dim=24)
    state = openai_names(first, "conditioner.embedders.0.")
    state |= open_clip_names(second, "conditioner.embedders.1.", more=0)
    return parts_of(unet, [first, second], state)


def written(path, state):
    save_file({key: row.contiguous().clone() for key, row in state.items()}, path)
    return path


@pytest.fixture(scope="module", params=[1, 2], ids=["sd1", "sd2"])
def single(request, tmp_path_factory):
    parts = compvis(request.param)
    path = written(tmp_path_factory.mktemp("single") / "small.safetensors", parts.state)
    return parts, load(path)


@pytest.fixture(scope="module")
def sd1_file(tmp_path_factory):
    return written(tmp_path_factory.mktemp("sd1") / "small.safetensors", compvis(1).state)


@pytest.fixture(scope="module")
def xl_file(tmp_path_factory):
    parts = sdxl()
    return parts, written(tmp_path_factory.mktemp("xl") / "small.safetensors", parts.state)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder saved by diffusers."""
    return save_sd1(tmp_path_factory.mktemp("pipelines") / "saved")


@pytest.fixture(scope="module")
def xl_folder(tmp_path_factory):
    return save_sdxl(tmp_path_factory.mktemp("pipelines") / "saved-xl")


@torch.inference_mode()
def test_a_single_file_computes_what_ldm_and_its_encoder_compute(single):
    parts, model = single
    (encoder,) = parts.texts
    padding = 0 if encoder.config.hidden_act == "gelu" else 49407  # OpenCLIP's is 0
    expected = encoder(input_ids=torch.tensor([PHOTO + [padding] * 70])).last_hidden_state
    torch.testing.assert_close(model.context(["a photo of a cat"]), expected, atol=1e-5, rtol=1e-4)
    latent, text = noise(2, 4, 8, 8), noise(2, 7, WIDTH)
    expected = parts.unet(latent, torch.full((2,), 400.0), text)
    torch.testing.assert_close(model.predict(latent, torch.tensor(400), text), expected, atol=1e-4, rtol=1e-3)
    expected = parts.vae.decode(latent[:1] / 0.18215)
    torch.testing.assert_close(model.decode(latent[:1]), expected, atol=1e-3, rtol=1e-3)


@torch.inference_mode()
def test_a_single_file_of_sdxl_computes_what_ldm_and_its_encoders_compute(xl_file):
    parts, model = xl_file[0], load(xl_file[1])
    ids = [PHOTO + [padding] * 70 for padding in (49407, 0)]  # OpenCLIP's is 0
    options = {"output_hidden_states": True}
    first, second = (encoder(torch.tensor([row]), **options) for encoder, row in zip(parts.texts, ids, strict=True))
    text, pooled = torch.cat([first.hidden_states[-2], second.hidden_states[-2]], -1), second.text_embeds
    for found, expected in zip(model.context(["a photo of a cat"]), (text, pooled), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    sizes = timestep_embedding(torch.tensor([64.0, 96.0, 0, 0, 64, 96]), 8).flatten()
    latent = noise(1, 4, 8, 12)
    parts.unet.label_emb.vector = torch.cat([pooled, sizes[None]], 1)
    expected = parts.unet(latent, torch.full((1,), 400.0), [text] * 2, y=torch.zeros(1))
    found = model.predict(latent, torch.tensor(400), (text, pooled))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(model.decode(latent), parts.vae.decode(latent / 0.13025), atol=1e-3, rtol=1e-3)
    assert (model.side, model.guidance, model.prediction) == (1024, 5.0, "v_prediction")


def test_the_tokenizer_is_clips(tmp_path):
    ids = make_tokenizer(tmp_path)(["A photo of a cat", "naïve ☕ café!"]).input_ids
    assert ids[0] == PHOTO
    assert 49407 not in ids[1][1:-1]  # bytes have tokens of their own, so nothing is unknown


def test_the_prediction_type_is_detected(single, monkeypatch):
    _, model = single
    assert model.prediction == "v_prediction"  # random weights do not give the noise back
    monkeypatch.setattr(model, "predict", lambda latents, timestep, context: latents * 0.98)
    monkeypatch.setattr(model, "prediction", None)
    checkpoints._detect_prediction(model)
    assert model.prediction == "epsilon"


@pytest.mark.long
def test_a_model_knows_its_usual_size_and_guidance(sd1_file, folder, xl_folder):
    found = [(model.side, model.guidance) for model in map(load, (sd1_file, folder, xl_folder))]
    assert found == [(512, 7.5), (512, 7.5), (1024, 5.0)]
    model = load(folder)
    assert (model.name, model.prediction, model.channels) == ("saved", "v_prediction", 4)


def test_sdxl_has_zeros_for_an_empty_prompt_where_the_model_wants_it(xl_folder):
    for empty, other in load(xl_folder).context(["", "a cat"]):
        assert not empty.any()
        assert other.any()


def test_sdxl_decodes_in_float32(xl_folder):
    model = load(xl_folder, dtype=torch.bfloat16)
    assert (model.dtype, model._pipeline.vae.dtype) == (torch.bfloat16, torch.float32)
    assert model.decode(noise(1, 4, 4, 4).to(torch.bfloat16)).shape == (1, 3, 32, 32)


@pytest.mark.parametrize("form", ["file", "folder", "sdxl", "sdxl file"])
def test_a_comparison_runs_on_it(form, sd1_file, folder, xl_folder, xl_file):
    model = load({"file": sd1_file, "folder": folder, "sdxl": xl_folder, "sdxl file": xl_file[1]}[form])
    (comparison,) = compare_all(model, REQUEST, [Settings(factor_1=2)])
    assert comparison.baseline_image.shape == comparison.reduced_image.shape == (128, 128, 3)
    assert comparison.difference.mse > 0
    assert {level.keys for level in comparison.reduced.record.ran_in} == {16 if "sdxl" in form else 64}


def test_a_text_beyond_the_limit_of_clip_is_rejected(folder):
    with pytest.raises(SettingsError, match="at most 75 tokens"):
        load(folder).context(["cat " * 76, ""])


def test_a_path_that_is_not_a_model_is_rejected_with_the_reason(tmp_path, folder, xl_folder):
    for name in ("text.safetensors", "photo.png", "model.ckpt"):
        (tmp_path / name).write_text("no safetensors")
    other = tmp_path / "other"
    other.mkdir()
    (other / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    copy, xl = shutil.copytree(folder, tmp_path / "copy"), shutil.copytree(xl_folder, tmp_path / "xl")
    next((copy / "unet").glob("*.safetensors")).rename(copy / "unet" / "diffusion_pytorch_model.bin")
    shutil.rmtree(xl / "text_encoder_2")
    for path, reason in {
        tmp_path / "none.safetensors": "no such file",
        tmp_path / "text.safetensors": "not a complete safetensors file",
        tmp_path / "photo.png": "a .png file",
        tmp_path: "no model_index.json",
        other: "it is a FluxPipeline",
        tmp_path / "model.ckpt": "pickle, which can run any code",
        copy: "unet: it is a pickle",
        xl: "its text_encoder_2 has no weights",
    }.items():
        with pytest.raises(ModelError, match=reason) as raised:
            load(path)
        assert str(path) in str(raised.value)
        assert "Allowed: a .safetensors file" in str(raised.value)


EMBEDDING = "cond_stage_model.transformer.text_model.embeddings.token_embedding.weight"
INPUT, MIDDLE = (f"model.diffusion_model.{name}.weight" for name in ("input_blocks.0.0", "middle_block.0.in_layers.2"))
UNSUPPORTED = [  # what is left out, what is put in, and the reason in the error
    ("no such", {"conditioner.embedders.0.x": (1,)}, "no first text encoder, as SDXL's refiner"),
    ("", {"lora_unet_down.weight": (1,)}, "no UNet"),
    ("no such", {INPUT: (32, 9, 3, 3)}, "9 channels"),
    ("no such", {EMBEDDING: (97, WIDTH)}, "has 97 tokens"),
    ("cond_stage", {}, "lacks the tensor"),
    (MIDDLE, {}, "weights instead of"),
    ("no such", {MIDDLE: (3, 3)}, "could not be read"),
]


XL_UNSUPPORTED = [
    ("conditioner.embedders.1", {}, "lacks the tensor conditioner.embedders.1.model.text_projection"),
    ("model.diffusion_model.label_emb", {}, "lacks the tensor model.diffusion_model.label_emb.0.0.weight"),
    ("conditioner.embedders.1.model.ln_final", {}, "its text_encoder_2 has .* weights instead of"),
    ("first_stage_model.decoder", {}, "its vae has .* weights instead of"),
]


@pytest.mark.parametrize(
    ("left_out", "put_in", "reason", "is_xl"),
    [*((*case, False) for case in UNSUPPORTED), *((*case, True) for case in XL_UNSUPPORTED)],
)
def test_an_unsupported_file_is_rejected_with_the_reason(left_out, put_in, reason, is_xl, sd1_file, xl_file, tmp_path):
    path = xl_file[1] if is_xl else sd1_file
    state = {key: row for key, row in load_file(path).items() if not key.startswith(left_out)}
    path = written(tmp_path / "foreign.safetensors", state | {key: torch.zeros(size) for key, size in put_in.items()})
    with pytest.raises(ModelError, match=reason) as raised:
        load(path)
    assert str(path) in str(raised.value)
