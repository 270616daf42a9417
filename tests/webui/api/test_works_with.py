"""Scripts that make several images of one request: the WebUI's own, and Compare."""

import numpy as np
import pytest

from ..helpers import FACTOR_2, REDUCED, reduced

FEW = {"steps": 4, "denoising_strength": 0.5}
STEPS = {"steps": 2, "hr_second_pass_steps": 8}  # with random weights four steps are too unlike to predict one
X, Y = ("[ToDo] Factor, level 1", ["1", "2"]), ("[ToDo] Enabled", ["True", "False"])
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


def test_each_cell_of_an_xyz_plot_has_its_settings_and_its_line(webui):
    scripts = webui.get("/sdapi/v1/script-info")
    arguments = next(s["args"] for s in scripts if s["name"] == "x/y/z plot" and not s["is_img2img"])
    axes = next(arg["choices"] for arg in arguments if arg["label"] == "X type")  # in the order of the API's numbers
    args = [each for name, values in (X, Y, ("Nothing", [])) for each in (axes.index(name), ", ".join(values), values)]
    # those behind the axes differ between the WebUIs
    args += [each["label"] == "Include Sub Images" or each["value"] for each in arguments[len(args) :]]
    result = webui.txt2img(script_name="x/y/z plot", script_args=args, **FEW)
    _, *texts = result.info["infotexts"]
    assert ["ToDo factor 1: 2" in text for text in texts] == [False, True, False, False]
    grid, plain, reduced, *off = result.pictures
    assert [np.array_equal(plain, each) for each in off] == [True, True]
    assert np.array_equal(reduced, webui.txt2img({"factor_1": 2}, **FEW).pixels[0])
    first, second = (line for line in result.comments.splitlines() if "ToDo" in line)
    assert first.startswith("ToDo with Factor, level 1 = 1; Enabled = True: found nothing to reduce")
    assert second.startswith("ToDo with Factor, level 1 = 2; Enabled = True: reduced the hires pass")


def test_variants_of_compare_are_those_of_single_requests_and_are_told(webui):
    result = webui.txt2img(script_name="ToDo compare", script_args=[["Fast"], True, 2, False], **STEPS)
    grid, baseline, fast = result.pictures
    assert np.array_equal(baseline, webui.txt2img(**STEPS).pixels[0])
    assert np.array_equal(fast, webui.txt2img({"preset": "Fast"}, **STEPS).pixels[0])
    assert grid.shape[1] >= 2 * baseline.shape[1]
    assert ["ToDo version" in text for text in result.info["infotexts"][1:]] == [False, True]
    assert "Fast: reduced the hires pass" in result.comments
    told = result.info["todo_compare"]
    assert told["passes"] == ["hires"]
    assert all(row["seconds"] > 0 and row["spread"] >= 0 for row in told["rows"])
    assert told["rows"][1]["mse"] > 0
