"""The X/Y/Z plot of the real WebUI, through its API: each cell has its own settings, and says so."""

import json

import numpy as np
import pytest

from ..helpers import Result

FEW = {"steps": 2, "hr_second_pass_steps": 8}


def arguments(webui):
    """The arguments of the plot of txt2img; those behind the axes differ between the WebUIs."""
    scripts = webui.get("/sdapi/v1/script-info")
    return next(s["args"] for s in scripts if s["name"] == "x/y/z plot" and not s["is_img2img"])


@pytest.fixture
def axes(webui):
    """The labels of the axes of txt2img, in the order of the API's numbers."""
    return next(arg["choices"] for arg in arguments(webui) if arg["label"] == "X type")


def plotted(webui, axes, x, y=("Nothing", [])):
    """[(image, infotext)] of the cells, the grid left out."""
    answer, info = plot(webui, axes, x, y)
    pixels = [Result([image], info, []).pixels[0] for image in answer["images"]]
    return list(zip(pixels, info["infotexts"], strict=True))[1:]


def plot(webui, axes, x, y):
    """The WebUI's answer and its info."""
    args = []
    for label, values in (x, y, ("Nothing", [])):
        args += [axes.index(label), ", ".join(values), list(values)]
    options = arguments(webui)[len(args) :]
    args += [option["label"] == "Include Sub Images" or option["value"] for option in options]  # beside the grid
    answer = webui.post("/sdapi/v1/txt2img", {**webui.request, **FEW, "script_name": "x/y/z plot", "script_args": args})
    return answer, json.loads(answer["info"])


def test_there_is_one_axis_for_each_setting(axes):
    from todo_core.settings import SETTINGS

    ours = [label for label in axes if label.startswith("[ToDo] ")]
    wanted = ["Preset", "Enabled", *(setting.label for setting in SETTINGS.values())]
    assert sorted(ours) == sorted(f"[ToDo] {label}" for label in wanted)


def test_presets(webui, axes):
    names = ["ToDo fast", "ToMe paper"]
    cells = plotted(webui, axes, ("[ToDo] Preset", names))
    for name, (pixels, text) in zip(names, cells, strict=True):
        alone = webui.txt2img({"preset": name}, steps=2, hr_second_pass_steps=8)
        assert np.array_equal(pixels, alone.pixels[0]), name
        assert "ToDo method: " in text
    assert "ToDo method: similarity" in cells[1][1]
    assert "ToDo factor 1: 3" in cells[0][1]


def test_two_axes_together(webui, axes):
    cells = plotted(webui, axes, ("[ToDo] Factor, level 1", ["2", "4"]), ("[ToDo] Enabled", ["True", "False"]))
    assert [("ToDo factor 1: 2" in text, "ToDo factor 1: 4" in text) for _, text in cells[:2]] == [
        (True, False),
        (False, True),
    ]
    assert all("ToDo" not in text for _, text in cells[2:])
    assert np.array_equal(cells[2][0], cells[3][0])


def test_the_status_of_each_cell_is_told(webui, axes):
    axis = "Factor, level 1"
    _, info = plot(webui, axes, (f"[ToDo] {axis}", ["1", "2"]), ("Nothing", []))
    first, second = (line for line in info["comments"].splitlines() if "ToDo" in line)
    assert first.startswith(f"ToDo with {axis} = 1: found nothing to reduce")
    assert second.startswith(f"ToDo with {axis} = 2: reduced the hires pass")
