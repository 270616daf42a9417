"""Compare on the real WebUI, through its API."""

import numpy as np

STEPS = {"steps": 2, "hr_second_pass_steps": 8}  # with random weights four steps are too unlike to predict one


def compared(presets=("ToDo fast",), repeats=1):
    """The fields of a request: names of presets, whether a grid is made, repeats."""
    return {**STEPS, "script_name": "ToDo compare", "script_args": [[*presets], True, repeats]}


def test_variants_are_those_of_single_requests_and_are_told(webui):
    result = webui.txt2img(**compared())
    grid, baseline, fast = result.pictures
    assert np.array_equal(baseline, webui.txt2img(**STEPS).pixels[0])
    assert np.array_equal(fast, webui.txt2img({"preset": "ToDo fast"}, **STEPS).pixels[0])
    assert grid.shape[1] >= 2 * baseline.shape[1]
    assert ["ToDo method: downsample" in text for text in result.info["infotexts"][1:]] == [False, True]
    assert "ToDo fast: reduced the hires pass" in result.comments
    again = webui.txt2img(**compared(repeats=2))
    assert all(row["spread"] >= 0 for row in again.info["todo_compare"]["rows"])
    assert all(map(np.array_equal, again.pictures[1:], (baseline, fast)))


def test_times_and_differences_are_in_the_answer(webui):
    info = webui.txt2img(**compared(), seed=-1).info
    baseline, fast = info["todo_compare"]["rows"]
    assert info["todo_compare"]["passes"] == ["hires"]
    assert baseline["seconds"] > 0
    assert fast["mse"] > 0
    assert len(set(info["all_seeds"])) == 1


def test_without_hires_fix_it_says_so(webui):
    result = webui.txt2img(**compared(), enable_hr=False)
    assert np.array_equal(*result.pictures[1:])
    assert "nothing was reduced in any variant" in result.comments


def test_img2img(webui):
    image = webui.txt2img(steps=2).base64_images[0]
    result = webui.img2img(image, **compared() | {"steps": 8})
    assert not np.array_equal(*result.pictures[1:])


def test_a_wrong_preset_is_a_message(webui):
    assert "'no such' is not possible" in webui.txt2img(**compared(["no such"])).comments
