"""Beside other extensions, in real checkouts: those that the WebUI has are tested.

docs/webui.md lists what was seen here, with sd-webui-controlnet 56cec5b (one line changed: the width of its models is
read from the file), adetailer 36189cb, sd-webui-regional-prompter be62345, multidiffusion-upscaler-for-automatic1111
22798f6, stable-diffusion-webui-two-shot 9936c52 (Latent Couple), sd-dynamic-thresholding 73e4e04,
sd-webui-kohya-hiresfix 05af987, sd-webui-token-downsampling f1f1cba and sd-webui-freeu 7568492, which acts on a UNet of
SD's full width alone.
"""

import numpy as np
import pytest

from ..helpers import FACTOR_2, NOTHING_PREDICTED, Refused, assert_reduced, lengths, reduced, todo_keys
from .test_prediction import DEEP, planned, runs_of

SMALL = {"steps": 2, "hr_second_pass_steps": 2}
PREDICTS = {"factor_1": 2, "interval": 2, "start": 0, "end": 1}
WITH_PROMPT = {"factor_1": 2, "interval": 1, "start": 0, "end": 1, "target": "all", "crossattn": True}
UNIT = {"enabled": True, "model": "None", "processor_res": 64}  # of ControlNet; its model is any with canny in its name
REFERENCE, CANNY = {**UNIT, "module": "reference_only"}, {**UNIT, "module": "canny", "model": "canny"}
REGIONS = {0: True, 2: "Matrix", 6: "1,1"}  # of Regional Prompter, by position; 11 is the mode
BREAK = {"prompt": "a cat BREAK a dog"}
THREE = {"prompt": "a hill AND a cat AND a dog"}
STAGES = {"enable": True, "stage_infos": [{"backbone_factor": 1.5}] * 3}
# title of its script, values by position or all of them, the rest of the request
CASES = {
    "ControlNet, reference_only": ("ControlNet", [REFERENCE], {}),
    "ControlNet, canny": ("ControlNet", [CANNY], {}),
    "Latent Couple": ("Latent Couple extension", {0: True}, THREE),
    "Dynamic Thresholding": ("Dynamic Thresholding (CFG Scale Fix)", {0: True}, {}),
    "FreeU": ("FreeU", [STAGES], {}),
    "Kohya Hires.fix": ("Kohya Hires.fix", {0: True, 2: 2, 3: 2, 4: 0.5, 5: 0.5}, {}),
    "Tiled Diffusion": ("Tiled Diffusion", {0: True, 6: 16, 7: 16, 8: 4}, {"width": 256}),
    "Tiled VAE": ("Tiled VAE", {0: True, 1: 256, 2: 48}, {}),
    "Regional Prompter, Attention": ("Regional Prompter", REGIONS | {11: "Attention"}, BREAK),
    "Regional Prompter, Latent": ("Regional Prompter", REGIONS | {11: "Latent"}, BREAK),
}


def of_controlnets(events):
    """The different (queries, keys) in the ControlNets of these steps."""
    calls = (call for event in events for call in event["calls"] if call["class"] == "ControlNet")
    return {tuple(pair) for call in calls for pair in call["lengths"]}


def need(webui, title):
    """The script of another extension; skipped where it is not installed."""
    scripts = webui.get("/sdapi/v1/script-info") if webui.family == "a1111" else []
    found = [script for script in scripts if script["name"] == title.lower() and not script["is_img2img"]]
    return found[0] if found else pytest.skip(f"needs the extension {title}")


@pytest.fixture
def beside(webui):
    """A function from a case to a request with the other extension switched on."""

    def switched_on(case):
        title, values, more = CASES[case]
        info, args = need(webui, title), values
        if title == "ControlNet":
            models = webui.get("/controlnet/model_list")["model_list"]
            chosen = [next((model for model in models if unit["model"] in model), "None") for unit in values]
            image = webui.baseline(enable_hr=False).base64_images[0]
            args = [{**unit, "model": model, "image": image} for unit, model in zip(values, chosen, strict=True)]
        if isinstance(values, dict):
            args = [values.get(position, arg["value"]) for position, arg in enumerate(info["args"])]
        return {**SMALL, "hr_second_pass_steps": 8, "alwayson_scripts": {title: {"args": args}}, **more}

    return switched_on


@pytest.mark.parametrize("settings", [PREDICTS, WITH_PROMPT], ids=["predicts", "all"])
@pytest.mark.parametrize("case", CASES)
def test_the_image_the_first_pass_the_steps_the_line_and_the_infotext(webui, beside, case, settings):
    request = beside(case)
    alone = {name: value for name, value in request.items() if name != "alwayson_scripts"}
    before, plain = webui.baseline(**alone), webui.baseline(**request)
    if np.array_equal(plain.pixels, before.pixels) and case != "Tiled VAE":
        pytest.skip("the other extension changes nothing with this checkpoint")
    ours = assert_reduced(webui, settings, None, told=["ToDo reduced the hires pass"], **request)
    assert todo_keys(ours.infotext)
    assert ("ControlNet too" in ours.comments) == (of_controlnets(ours.hires) != of_controlnets(plain.hires))
    assert ("ControlNet too" in ours.comments) == ("canny" in str(request))
    for network in (name for name in ("UNet", "ControlNet") if name in str(ours.hires)):
        deep = [bool(count) for count in runs_of(ours.hires, network)[1]]
        assert deep == (planned(DEEP) if settings == PREDICTS else [True] * len(deep)), network
    assert np.array_equal(webui.txt2img(**alone).pixels, before.pixels)


@pytest.fixture
def style_align(webui):
    """ControlNet's StyleAlign switched on. It is no argument of the API: the page's event is sent as the page does."""
    need(webui, "ControlNet")
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
    plain, ours = webui.txt2img(**batch), webui.txt2img(FACTOR_2 | {"target": target, "passes": "all"}, **batch)
    assert not np.array_equal(plain.pixels, before.pixels)
    assert (128, 128) in lengths(plain.first)
    assert max(lengths(ours.first)) == seen
    assert ("ToDo reduced the first pass" in ours.comments) == (target == "keys/values")
    assert ours.pixels.std() > 5
    assert np.array_equal(webui.txt2img(**batch).pixels, plain.pixels)


def test_adetailer_keeps_the_infotext(webui):
    """Its model is the file yolo.pt in models/adetailer, of any weights; its boxes need not be found."""
    need(webui, "ADetailer")
    detail = {"ADetailer": {"args": [True, False, {"ad_model": "yolo.pt", "ad_confidence": 0.0}]}}
    ours = webui.txt2img(FACTOR_2, alwayson_scripts=detail, **SMALL)
    written = {"ToDo method": "downsample", "ToDo factor 1": "2", "ToDo start": "0", "ToDo end": "1"}
    assert todo_keys(ours.infotext) == written | NOTHING_PREDICTED
    assert "ToDo reduced the hires pass" in ours.comments
    inner = ours.first[2:]
    assert inner, "no box was found"
    assert reduced(inner) == set()


def test_sd_webui_token_downsampling_is_switched_off_for_the_image(webui):
    alone, baseline = webui.txt2img(FACTOR_2, **SMALL), webui.baseline(**SMALL)
    try:
        webui.post("/sdapi/v1/options", {"token_downsampling_factor": 2.0})  # the API lists no options of extensions
    except Refused:
        pytest.skip("needs the extension sd-webui-token-downsampling")
    try:
        plain, both, again = webui.txt2img(**SMALL), webui.txt2img(FACTOR_2, **SMALL), webui.txt2img(**SMALL)
    finally:
        webui.post("/sdapi/v1/options", {"token_downsampling_factor": 1.0})
    assert np.array_equal(both.pixels, alone.pixels)
    assert "ToDo switches it off for this image" in both.comments
    assert np.array_equal(again.pixels, plain.pixels)
    assert not np.array_equal(plain.pixels, baseline.pixels)
