"""Beside the WebUI's own scripts, which make several images of one request, and what others send as settings."""

import json

import numpy as np
import pytest

from todo_core import SETTINGS

from ..helpers import Result, reduced

IMG2IMG = {"factor_1": 2}
FEW = {"steps": 4, "denoising_strength": 0.5}


@pytest.fixture
def image(webui):
    """128 x 128, base64."""
    return webui.txt2img(enable_hr=False, steps=2).base64_images[0]


def one_by_one(result):
    """(pixels of each image, infotext of each)."""
    return [Result([image], {}, []).pixels[0] for image in result.base64_images], result.info["infotexts"]


def test_every_round_of_loopback_is_reduced(webui, image):
    script = webui.script_of_img2img("Loopback", {"Loops": 2, "Final denoising strength": 0.5})
    baseline, result = (webui.img2img(image, todo, **FEW, **script) for todo in (None, IMG2IMG))
    assert reduced(baseline.events) == set()
    assert {tuple(sorted(reduced([step]))) for step in result.events} == {((256, 64),)}
    assert result.hooks_left == 0
    infotexts, expected = result.info["infotexts"], len(baseline.info["infotexts"])  # Classic has one, the others more
    assert len(infotexts) == expected > 0
    assert [text.count("ToDo method: downsample") for text in infotexts].count(1) >= min(2, expected)


def test_every_tile_of_sd_upscale_is_reduced(webui, image):
    webui.need_upscaler("Lanczos")
    chosen = {"Tile overlap": 32, "Scale factor": 2.0, "Upscaler": "Lanczos"}
    script = webui.script_of_img2img("SD upscale", chosen)
    result = webui.img2img(image, IMG2IMG, **FEW, **script)
    assert {tuple(sorted(reduced([step]))) for step in result.events} == {((256, 64),)}
    pictures, (infotext, *_) = one_by_one(result)
    assert pictures[0].shape == (256, 256, 3)
    assert "ToDo method: downsample" in infotext
    assert result.hooks_left == 0


def test_each_line_of_prompts_from_file_has_its_own_settings_and_image(webui):
    lines = 'a red cat\n--prompt "a blue dog" --steps 3'
    script = {"script_name": "Prompts from file or textbox", "script_args": [False, False, "start", lines]}
    result = webui.txt2img({"factor_1": 2}, prompt="", **script)
    pictures, infotexts = one_by_one(result)
    assert len({picture.tobytes() for picture in pictures}) >= 2
    single = webui.txt2img({"factor_1": 2}, prompt="a red cat ")
    assert any(np.array_equal(picture, single.pixels[0]) for picture in pictures)
    assert sum("ToDo method: downsample" in text for text in infotexts) >= 2
    assert reduced(result.hires) == {(1024, 256)}
    assert reduced(result.first) == set()


def test_settings_that_went_through_json_are_the_same(webui):
    """sd-webui-distributed forwards the panel's values to other hosts as JSON."""
    info = next(i for i in webui.get("/sdapi/v1/script-info") if i["name"] == "todo" and not i["is_img2img"])
    values = [
        True,
        *(2 if field["label"] == SETTINGS["factor_1"].label else field["value"] for field in info["args"][1:]),
    ]
    sent, again = (webui.txt2img(args=args) for args in (values, json.loads(json.dumps(values))))
    assert np.array_equal(sent.pixels, again.pixels)
    assert reduced(sent.hires) == {(1024, 256)}
