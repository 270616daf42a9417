"""Compare on the real WebUI, through its API."""

import json

import numpy as np

from ..helpers import Result

STEPS = {"steps": 2, "hr_second_pass_steps": 8}  # with random weights four steps are too unlike to predict one
FEW = {**STEPS, "script_name": "ToDo compare"}


def compared(webui, route="txt2img", args=(["ToDo fast"], True, 1), **changes):
    """(images, info) of a comparison."""
    answer = webui.post(f"/sdapi/v1/{route}", {**webui.request, **FEW, "script_args": list(args), **changes})
    info = json.loads(answer["info"])
    return [Result([image], info, []).pixels[0] for image in answer["images"]], info


def test_variants_are_those_of_single_requests(webui):
    (grid, baseline, fast), info = compared(webui)
    assert np.array_equal(baseline, webui.txt2img(**STEPS).pixels[0])
    assert np.array_equal(fast, webui.txt2img({"preset": "ToDo fast"}, **STEPS).pixels[0])
    assert grid.shape[1] >= 2 * baseline.shape[1]
    assert "ToDo method: downsample" in info["infotexts"][2]
    assert "ToDo method:" not in info["infotexts"][1]


def test_times_and_differences_are_in_the_answer(webui):
    _, info = compared(webui, seed=-1)
    baseline, fast = info["todo_compare"]["rows"]
    assert info["todo_compare"]["passes"] == ["hires"]
    assert baseline["seconds"] > 0
    assert fast["mse"] > 0
    assert len(set(info["all_seeds"])) == 1
    assert "ToDo fast: reduced the hires pass" in info["comments"]


def test_without_hires_fix_it_says_so(webui):
    (_, baseline, fast), info = compared(webui, enable_hr=False)
    assert np.array_equal(baseline, fast)
    assert "nothing was reduced in any variant" in info["comments"]


def test_img2img(webui):
    image = webui.txt2img(steps=2).base64_images[0]
    (_, baseline, fast), _ = compared(webui, "img2img", (["ToDo fast"], False, 1), init_images=[image], steps=8)
    assert not np.array_equal(baseline, fast)


def test_repeats_have_a_spread_and_the_same_images(webui):
    (_, baseline, fast), info = compared(webui, args=(["ToDo fast"], True, 2))
    assert all(row["spread"] >= 0 for row in info["todo_compare"]["rows"])
    (_, again, fast_again), _ = compared(webui)
    assert np.array_equal(baseline, again)
    assert np.array_equal(fast, fast_again)


def test_a_wrong_preset_is_a_message(webui):
    answer = webui.post("/sdapi/v1/txt2img", {**webui.request, **FEW, "script_args": [["no such"], True, 1]})
    assert "'no such' is not possible" in json.loads(answer["info"])["comments"]
