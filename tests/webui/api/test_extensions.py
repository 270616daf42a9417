"""Beside other extensions, in real checkouts: ``--webui-extension NAME=PATH`` links each, with these names.

docs/webui.md lists what was seen here, with sd-webui-controlnet 56cec5b (one line changed: the width of its models is
read from the file), adetailer 36189cb, sd-webui-regional-prompter be62345, multidiffusion-upscaler-for-automatic1111
22798f6, stable-diffusion-webui-two-shot 9936c52 (Latent Couple), sd-dynamic-thresholding 73e4e04,
sd-webui-kohya-hiresfix 05af987, sd-webui-token-downsampling f1f1cba and sd-webui-freeu 7568492, which acts on a UNet of
SD's full width alone.
"""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from ..helpers import NOTHING_PREDICTED, assert_reduced, lengths, reduced, todo_keys
from .test_prediction import DEEP, deep_runs, planned

SMALL = {"steps": 2, "hr_second_pass_steps": 2}
OURS = {"factor_1": 2}
WITH_PROMPT = {"factor_1": 2, "target": "all", "crossattn": True}
UNIT = {"enabled": True, "model": "None", "processor_res": 64}  # of ControlNet; its model is any with canny in its name
REGIONS = {0: True, 2: "Matrix", 6: "1,1"}  # of Regional Prompter, by position; 11 is the mode
# name of the checkout, title of its script, values by position or all of them, the rest of the request
CASES = {
    "ControlNet, reference_only": ("controlnet", "ControlNet", [{**UNIT, "module": "reference_only"}], {}),
    "ControlNet, adain+attn": ("controlnet", "ControlNet", [{**UNIT, "module": "reference_adain+attn"}], {}),
    "ControlNet, canny": ("controlnet", "ControlNet", [{**UNIT, "module": "canny", "model": "canny"}], {}),
    "ControlNet, two units": (
        "controlnet",
        "ControlNet",
        [{**UNIT, "module": "canny", "model": "canny"}, {**UNIT, "module": "reference_only"}],
        {},
    ),
    "Latent Couple": ("latent-couple", "Latent Couple extension", {0: True}, {"prompt": "a hill AND a cat AND a dog"}),
    "Dynamic Thresholding": ("dynamic-thresholding", "Dynamic Thresholding (CFG Scale Fix)", {0: True}, {}),
    "FreeU": ("freeu", "FreeU", [{"enable": True, "stage_infos": [{"backbone_factor": 1.5}] * 3}], {}),
    "Kohya Hires.fix": ("kohya-hiresfix", "Kohya Hires.fix", {0: True, 2: 2, 3: 2, 4: 0.5, 5: 0.5}, {}),
    "Tiled Diffusion": ("tiled-diffusion", "Tiled Diffusion", {0: True, 6: 16, 7: 16, 8: 4}, {"width": 256}),
    "Tiled VAE": ("tiled-diffusion", "Tiled VAE", {0: True, 1: 256, 2: 48}, {}),
    "Regional Prompter, Attention": (
        "regional-prompter",
        "Regional Prompter",
        {**REGIONS, 11: "Attention"},
        {"prompt": "a cat BREAK a dog"},
    ),
    "Regional Prompter, Latent": (
        "regional-prompter",
        "Regional Prompter",
        {**REGIONS, 11: "Latent"},
        {"prompt": "a cat BREAK a dog"},
    ),
}


def squares():
    """An image with edges, base64."""
    cells = (np.indices((64, 64)) // 16).sum(0) % 2 * 255
    file = io.BytesIO()
    Image.fromarray(np.stack([cells, 255 - cells, cells // 2], -1).astype(np.uint8)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def of_controlnets(events):
    """The different (queries, keys) in the ControlNets of these steps."""
    calls = (call for event in events for call in event["calls"] if call["class"] == "ControlNet")
    return {tuple(pair) for call in calls for pair in call["lengths"]}


def need(request, name):
    """Skip where the checkout ``name`` was not given."""
    given = [each.partition("=")[0] for each in request.config.getoption("--webui-extension")]
    if name not in given:
        pytest.skip(f"needs --webui-extension {name}=PATH")


@pytest.fixture
def beside(webui, request):
    """A request with another extension switched on; skipped where its checkout was not given."""

    def switched_on(case):
        name, title, values, more = CASES[case]
        need(request, name)
        scripts = webui.get("/sdapi/v1/script-info")
        info = next(s for s in scripts if s["name"] == title.lower() and not s["is_img2img"])
        args = values
        if name == "controlnet":
            models = webui.get("/controlnet/model_list")["model_list"]
            chosen = [next((model for model in models if unit["model"] in model), "None") for unit in values]
            args = [{**unit, "model": model, "image": squares()} for unit, model in zip(values, chosen, strict=True)]
        if isinstance(values, dict):
            args = [values.get(position, arg["value"]) for position, arg in enumerate(info["args"])]
        return {**SMALL, "alwayson_scripts": {title: {"args": args}}, **more}

    return switched_on


@pytest.mark.parametrize("settings", [OURS, WITH_PROMPT], ids=["keys/values", "all"])
@pytest.mark.parametrize("case", CASES)
def test_the_image_the_first_pass_the_line_and_the_infotext(webui, beside, case, settings):
    request = beside(case)
    alone = {name: value for name, value in request.items() if name != "alwayson_scripts"}
    before, plain = webui.baseline(**alone), webui.baseline(**request)
    if np.array_equal(plain.pixels, before.pixels) and case != "Tiled VAE":
        pytest.skip("the other extension changes nothing with this checkpoint")
    ours = assert_reduced(webui, settings, None, told=["ToDo reduced the hires pass"], **request)
    assert todo_keys(ours.infotext)
    assert ("ControlNet too" in ours.comments) == (of_controlnets(ours.hires) != of_controlnets(plain.hires))
    assert ("ControlNet too" in ours.comments) == ("canny" in str(request))
    assert np.array_equal(webui.txt2img(**alone).pixels, before.pixels)


@pytest.mark.parametrize("case", CASES)
def test_the_deep_layers_run_in_the_planned_steps(webui, beside, case):
    request = {**beside(case), "hr_second_pass_steps": 8}
    ours = assert_reduced(webui, {**OURS, "interval": 2}, None, **request)
    networks = {"UNet", "ControlNet"} & {name for name in ("UNet", "ControlNet") if name in str(ours.hires)}
    for network in networks:
        assert [bool(count) for count in deep_runs(ours.hires, network)] == planned(DEEP), network


@pytest.fixture
def style_align(webui, request):
    """ControlNet's StyleAlign switched on. It is no argument of the API: the page's event is sent as the page does."""
    need(request, "controlnet")
    page = webui.get("/config")
    (box, *_) = (part["id"] for part in page["components"] if "[StyleAlign]" in str(part["props"].get("label")))
    events = page["dependencies"]
    (event, *_) = (number for number, event in enumerate(events) if event["inputs"][1:] == [box])

    def choose(on):
        webui.post("/run/predict", {"fn_index": event, "data": [None, on], "session_hash": "tests"})

    choose(True)
    yield
    choose(False)


@pytest.mark.parametrize(("target", "seen"), [("keys/values", (128, 32)), ("all", (128, 128))])
def test_style_align_shares_the_reduced_tokens_of_the_batch(webui, request, target, seen):
    """In the first pass each image of a batch looks at the tokens of all. With ``all`` they stay whole."""
    batch = {**SMALL, "batch_size": 2}
    before = webui.baseline(**batch)
    request.getfixturevalue("style_align")
    plain, ours = webui.txt2img(**batch), webui.txt2img({**OURS, "target": target, "passes": "all"}, **batch)
    assert not np.array_equal(plain.pixels, before.pixels)
    assert (128, 128) in lengths(plain.first)
    assert max(lengths(ours.first)) == seen
    assert ("ToDo reduced the first pass" in ours.comments) == (target == "keys/values")
    assert ours.pixels.std() > 5
    assert np.array_equal(webui.txt2img(**batch).pixels, plain.pixels)


def test_adetailer_keeps_the_infotext(webui, request):
    """Its model is the file yolo.pt in models/adetailer, of any weights; its boxes need not be found."""
    need(request, "adetailer")
    detail = {"ADetailer": {"args": [True, False, {"ad_model": "yolo.pt", "ad_confidence": 0.0}]}}
    ours = webui.txt2img(OURS, alwayson_scripts=detail, **SMALL)
    assert todo_keys(ours.infotext) == {"ToDo method": "downsample", "ToDo factor 1": "2"} | NOTHING_PREDICTED
    assert "ToDo reduced the hires pass" in ours.comments
    inner = ours.first[2:]
    assert inner, "no box was found"
    assert reduced(inner) == set()


def test_sd_webui_token_downsampling_is_switched_off_for_the_image(webui, request):
    need(request, "token-downsampling")
    alone, baseline = webui.txt2img(OURS, **SMALL), webui.baseline(**SMALL)
    webui.post("/sdapi/v1/options", {"token_downsampling_factor": 2.0})  # the API lists no options of extensions
    try:
        plain, both, again = webui.txt2img(**SMALL), webui.txt2img(OURS, **SMALL), webui.txt2img(**SMALL)
    finally:
        webui.post("/sdapi/v1/options", {"token_downsampling_factor": 1.0})
    assert np.array_equal(both.pixels, alone.pixels)
    assert "ToDo switches it off for this image" in both.comments
    assert np.array_equal(again.pixels, plain.pixels)
    assert not np.array_equal(plain.pixels, baseline.pixels)
