"""Beside the WebUI's own scripts, which make several images of one request."""

import numpy as np
import pytest

from ..helpers import FACTOR_2, REDUCED, reduced

FEW = {"steps": 4, "denoising_strength": 0.5}
UPSCALE = {"Tile overlap": 32, "Scale factor": 2.0, "Upscaler": "Lanczos"}


@pytest.mark.parametrize(
    ("script", "chosen"), [("Loopback", {"Loops": 2, "Final denoising strength": 0.5}), ("SD upscale", UPSCALE)]
)
def test_every_round_of_loopback_and_every_tile_of_sd_upscale_is_reduced(webui, script, chosen):
    if "Upscaler" in chosen:
        webui.need_upscaler(chosen["Upscaler"])
    image = webui.baseline(enable_hr=False).base64_images[0]
    script = webui.script_of_img2img(script, chosen)
    baseline, result = (webui.img2img(image, todo, **FEW, **script) for todo in (None, FACTOR_2))
    assert reduced(baseline.events) == set()
    assert all(call["tokens"] == 4 * call["keys"] for call in result.calls)
    assert len(result.calls) == len(baseline.calls) >= FEW["steps"]
    assert result.hooks_left == 0
    assert "ToDo reduced the img2img pass" in result.comments
    infotexts, expected = result.info["infotexts"], len(baseline.info["infotexts"])  # Classic has one, the others more
    assert len(infotexts) == expected > 0
    assert [text.count("ToDo method: downsample") for text in infotexts].count(1) >= min(2, expected)


def test_each_line_of_prompts_from_file_has_its_own_settings_and_image(webui):
    lines = 'a red cat\n--prompt "a blue dog" --steps 3'
    script = {"script_name": "Prompts from file or textbox", "script_args": [False, False, "start", lines]}
    result = webui.txt2img(FACTOR_2, prompt="", **script)
    assert len({picture.tobytes() for picture in result.pictures}) >= 2
    single = webui.txt2img(FACTOR_2, prompt="a red cat ")
    assert any(np.array_equal(picture, single.pixels[0]) for picture in result.pictures)
    assert sum("ToDo method: downsample" in text for text in result.info["infotexts"]) >= 2
    assert (reduced(result.first), reduced(result.hires)) == (set(), REDUCED)
