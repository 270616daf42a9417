"""The shipped weights are small and trained. docs/pocket.md has the full figures."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from torch import nn

from todo_core.hosts import detect
from todo_lab.pocket.check import autoencoder_psnr, caption_figures
from todo_lab.pocket.data.dataset import unseen_scenes
from todo_lab.pocket.model import config, weights_file
from todo_lab.pocket.model.networks import PocketModel
from todo_lab.pocket.model.pocket_model import Pocket
from todo_lab.pocket.model.vocabulary import vocabulary
from todo_lab.pocket.shape_judge import ShapeJudge
from todo_lab.pocket.webui_export import EMBEDDING, export
from todo_lab.sampling.request import Request

SDXL = Path(__file__).parents[3] / "benchmarks" / "weights" / "pocket-sdxl.safetensors.xz"


class Few(nn.Module):
    """A model with few weights in the parts that files tell apart."""

    unet_settings = config.UNET

    def __init__(self):
        super().__init__()
        self.first_stage_model, self.model = nn.Conv2d(16, 32, 3), nn.Module()
        self.model.diffusion_model, self.cond_stage_model = nn.Linear(16, 16), nn.Embedding(8, 16)
        self.first_stage_model.weight.data[:, 0, 0, 0] = 127 / 1024  # float16 has its 127th part


def test_packed_weights_are_those_of_the_plain_file_but_for_8_bits_of_the_autoencoder(tmp_path):
    plain, packed = tmp_path / "plain.safetensors", tmp_path / "packed.safetensors.xz"
    model = Few()
    weights_file.save(model, plain)
    weights_file.save(model, packed)
    assert weights_file.unet_settings(packed) == weights_file.unet_settings(plain) == config.UNET
    before, after = weights_file.read(plain), weights_file.read(packed)
    assert before.keys() == after.keys()
    assert before["first_stage_model.weight"].equal(model.first_stage_model.weight.half())
    for key, row in before.items():
        step = row.float().flatten(1).abs().amax(1).max() / 127 if row.ndim > 1 else 0
        near = step * 0.51 if key.startswith("first_stage_model.") else 0
        assert (row.float() - after[key].float()).abs().max() <= near, key
    assert packed.stat().st_size < 0.75 * plain.stat().st_size


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4665a5\nsize 12345\n"


@pytest.mark.parametrize("ending", ["", ".xz"])
@pytest.mark.parametrize("left", [0, 5, 0.5, 0.99, POINTER], ids=["nothing", "a word", "half", "most", "a pointer"])
def test_weights_that_are_not_whole_are_named(tmp_path, ending, left):
    path = tmp_path / f"some.safetensors{ending}"
    weights_file.save(Few(), path)
    whole = path.read_bytes()
    count = left if isinstance(left, int) else int(left * len(whole)) if isinstance(left, float) else 0
    path.write_bytes(whole[:count] if left != POINTER else POINTER)
    told = f"some.safetensors{ending} is not a whole file of weights: {path.stat().st_size:,} bytes. Download it again"
    with pytest.raises(OSError, match=re.escape(told)):
        weights_file.load(path)


def test_the_autoencoder_shows_unseen_scenes_well(pocket):
    assert autoencoder_psnr(pocket, unseen_scenes(12), 128) >= 29.5


@pytest.mark.long
def test_a_caption_of_one_object_decides_its_shape(pocket):
    scenes, base = unseen_scenes(12, most=1), Request(prompt="", steps=8)
    figures = caption_figures(pocket, ShapeJudge(), scenes, scales=[1], base=base)
    assert figures["shapes, 128 px"] >= 0.9, figures


@pytest.mark.slow
def test_captions_decide_colour_and_background(pocket):
    base = Request(prompt="", steps=8, hires_steps=3)
    figures = caption_figures(pocket, ShapeJudge(), unseen_scenes(10), base=base)
    assert len(figures) == 2 * 5
    right = [figures[f"{name}, {side} px"] for name in ("colours", "background") for side in (128, 256)]
    assert min(right) >= 0.8, figures  # docs/pocket.md has the figures of 200 scenes with all steps


@pytest.mark.slow
def test_sdxls_layout_knows_colours_backgrounds_and_most_shapes():
    model = Pocket(SDXL)
    assert detect(model.target).trained_side == 16
    scenes, base = unseen_scenes(10, most=1), Request(prompt="", steps=8)
    figures = caption_figures(model, ShapeJudge(), scenes, scales=[1], base=base)
    assert min(figures["colours, 128 px"], figures["background, 128 px"]) >= 0.8, figures
    assert figures["shapes, 128 px"] >= 0.6, figures


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The models folder of a WebUI after the export."""
    folder = tmp_path_factory.mktemp("webui")
    (folder / "models").mkdir()
    assert export(folder) == folder / "models" / "Stable-diffusion" / "pocket.safetensors"
    return folder / "models"


def test_the_checkpoint_of_a_webui_has_all_that_its_yaml_asks_for(exported):
    checkpoint = exported / "Stable-diffusion" / "pocket.safetensors"
    written = json.loads(checkpoint.with_suffix(".yaml").read_text("utf-8"))["model"]["params"]
    assert written["parameterization"] == "v"
    assert written["scale_factor"] == pytest.approx(float(weights_file.read(weights_file.shipped())["scale_factor"]))
    text = json.loads((exported / "pocket-tokenizer" / "config.json").read_text("utf-8"))
    built = weights_file.named(PocketModel(text["vocab_size"]))
    del built["scale_factor"]
    assert {n: t.shape for n, t in load_file(checkpoint).items()} == {n: t.shape for n, t in built.items()}


def test_the_exported_tokenizer_agrees_with_ours(exported):
    from transformers import CLIPTextConfig, CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(exported / "pocket-tokenizer")
    text = "two crimson triangles on the left and a turquoise donut against a checkered pattern"
    ids = tokenizer(text, padding="max_length", max_length=77).input_ids
    assert np.array_equal(ids, vocabulary().encode([text])[0].numpy())
    known, end = len(vocabulary().tokens), ids[-1]
    size = CLIPTextConfig.from_pretrained(exported / "pocket-tokenizer").vocab_size
    assert max(tokenizer.get_vocab().values()) + 1 == size > known
    rows = load_file(exported / "Stable-diffusion" / "pocket.safetensors")[EMBEDDING]
    assert (rows[known:] == rows[end]).all()  # pieces of no known word say nothing
