"""The X/Y/Z plot of the real WebUI, through its API: each cell has its own settings, and says so."""

import numpy as np
import pytest

from todo_core.settings import SETTINGS

FEW = {"steps": 2, "hr_second_pass_steps": 8}


@pytest.fixture
def arguments(webui):
    """The arguments of the plot of txt2img; those behind the axes differ between the WebUIs."""
    scripts = webui.get("/sdapi/v1/script-info")
    return next(s["args"] for s in scripts if s["name"] == "x/y/z plot" and not s["is_img2img"])


@pytest.fixture
def axes(arguments):
    """The labels of the axes of txt2img, in the order of the API's numbers."""
    return next(arg["choices"] for arg in arguments if arg["label"] == "X type")


@pytest.fixture
def plotted(webui, arguments, axes):
    """A function from two axes to ([(image, infotext)] of the cells, the comments)."""

    def plot(x, y=("Nothing", [])):
        args = []
        for label, values in (x, y, ("Nothing", [])):
            args += [axes.index(label), ", ".join(values), list(values)]
        args += [each["label"] == "Include Sub Images" or each["value"] for each in arguments[len(args) :]]
        result = webui.txt2img(script_name="x/y/z plot", script_args=args, **FEW)
        cells = list(zip(result.pictures, result.info["infotexts"], strict=True))
        return cells[1:], result.comments  # without the grid

    return plot


def test_there_is_one_axis_for_each_setting(axes):
    ours = [label for label in axes if label.startswith("[ToDo] ")]
    wanted = ["Preset", "Enabled", *(setting.label for setting in SETTINGS.values())]
    assert sorted(ours) == sorted(f"[ToDo] {label}" for label in wanted)


def test_presets(webui, plotted):
    presets = {"ToDo fast": "ToDo factor 1: 3", "ToMe paper": "ToDo method: similarity"}
    cells, _ = plotted(("[ToDo] Preset", [*presets]))
    for (name, written), (pixels, text) in zip(presets.items(), cells, strict=True):
        assert np.array_equal(pixels, webui.txt2img({"preset": name}, **FEW).pixels[0]), name
        assert "ToDo method: " in text
        assert written in text


def test_two_axes_together(plotted):
    cells, _ = plotted(("[ToDo] Factor, level 1", ["2", "4"]), ("[ToDo] Enabled", ["True", "False"]))
    assert [[f"ToDo factor 1: {factor}" in text for factor in (2, 4)] for _, text in cells[:2]] == [[1, 0], [0, 1]]
    assert all("ToDo" not in text for _, text in cells[2:])
    assert np.array_equal(cells[2][0], cells[3][0])


def test_the_status_of_each_cell_is_told(plotted):
    axis = "Factor, level 1"
    _, comments = plotted((f"[ToDo] {axis}", ["1", "2"]))
    first, second = (line for line in comments.splitlines() if "ToDo" in line)
    assert first.startswith(f"ToDo with {axis} = 1: found nothing to reduce")
    assert second.startswith(f"ToDo with {axis} = 2: reduced the hires pass")
