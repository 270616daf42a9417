"""Compare on the real WebUI, through its API."""

import numpy as np

STEPS = {"steps": 2, "hr_second_pass_steps": 8}  # with random weights four steps are too unlike to predict one


def test_variants_are_those_of_single_requests_and_are_told(webui):
    result = webui.txt2img(script_name="ToDo compare", script_args=[["ToDo fast"], True, 2, False], **STEPS)
    grid, baseline, fast = result.pictures
    assert np.array_equal(baseline, webui.txt2img(**STEPS).pixels[0])
    assert np.array_equal(fast, webui.txt2img({"preset": "ToDo fast"}, **STEPS).pixels[0])
    assert grid.shape[1] >= 2 * baseline.shape[1]
    assert ["ToDo method: downsample" in text for text in result.info["infotexts"][1:]] == [False, True]
    assert "ToDo fast: reduced the hires pass" in result.comments
    told = result.info["todo_compare"]
    assert told["passes"] == ["hires"]
    assert all(row["seconds"] > 0 and row["spread"] >= 0 for row in told["rows"])
    assert told["rows"][1]["mse"] > 0
