"""The API: settings by name or by position, and what becomes of bad ones."""

import numpy as np
import pytest

from todo_core.settings import SETTINGS
from todo_core.webui.generation.request import POSITIONS
from todo_core.webui.panel.texts import TITLES

from ..helpers import FACTOR_2, REDUCED, Refused, reduced

FIRST = [True, "downsample", "keys/values"]  # then factor_1


def script_info(webui, *, is_img2img=False):
    found = [script for script in webui.get("/sdapi/v1/script-info") if script["name"] == "todo"]
    return next(script for script in found if script["is_img2img"] == is_img2img)


@pytest.fixture
def args(webui):
    """The script's arguments as script-info lists them: the panel's defaults."""
    return [arg["value"] for arg in script_info(webui)["args"]]


@pytest.mark.parametrize("is_img2img", [False, True])
def test_script_info_lists_the_switch_and_every_setting(webui, is_img2img):
    info = script_info(webui, is_img2img=is_img2img)
    title = TITLES["img2img" if is_img2img else "txt2img"]
    assert info["is_alwayson"]
    assert [arg["label"] for arg in info["args"]] == [title, *(setting.label for setting in SETTINGS.values())]
    assert info["args"][0]["value"] is False


POSITIONAL = {
    "the panel's defaults": (lambda args: args, [0, 0, 0, 0]),
    "values of another type": (
        lambda args: [
            *(dict(zip(POSITIONS, args, strict=True)) | {"enabled": True, "factor_1": "2", "end": 0.5}).values()
        ],
        [1, 1, 0, 0],
    ),
    "a short list": (lambda args: [*FIRST, 2], [1, 1, 1, 1]),
    "too long a list, cut by the WebUI": (lambda args: [*FIRST, 2, *args[4:], "one", "two"], [1, 1, 1, 1]),
    "something behind a mapping": (lambda args: [FACTOR_2, "keys/values"], [1, 1, 1, 1]),
    "a bad value while the switch is off": (lambda args: [False, "tome", *args[2:]], [0, 0, 0, 0]),
    "text in a mapping": (lambda args: [{"enabled": "true", "factor_1": "2.0"}], [1, 1, 1, 1]),
    "a mapping that switches off": (lambda args: [FACTOR_2 | {"enabled": False}], [0, 0, 0, 0]),
}


@pytest.mark.parametrize("name", POSITIONAL)
def test_arguments(webui, args, name):
    sent, expected = POSITIONAL[name]
    result = webui.txt2img(args=sent(args))
    assert [len(reduced([step])) for step in result.hires] == expected
    assert reduced(result.hires) <= REDUCED
    assert any(expected) or (np.array_equal(result.pixels, webui.baseline().pixels) and not result.comments)


@pytest.mark.parametrize("title", ["ToDo", "todo", "TODO"])
def test_the_script_is_found_in_any_case_of_letters(webui, title):
    assert reduced(webui.txt2img(alwayson_scripts={title: {"args": [FACTOR_2]}}).hires) == REDUCED


BAD = {
    "an unknown name": (
        [{"factor": 2}],
        ["factor", "2", "the settings are: enabled, preset, method, target", "did you mean factor_1?"],
    ),
    "a wrong type": ([{"factor_1": [2]}], ["factor_1", "[2]", "'auto' or a whole number from 1 to 8"]),
    "null": ([{"method": None}], ["method", "null", "'downsample'"]),
    "by position": ([*FIRST, 0.25], ["Factor, level 1: 0.25 is not possible. Use auto or a whole number from 1 to 8."]),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_value_costs_no_image_and_is_named_with_what_is_allowed(webui, bad):
    sent, expected = BAD[bad]
    result = webui.txt2img(args=sent)
    assert np.array_equal(result.pixels, webui.baseline().pixels)
    assert "ToDo" not in result.infotext
    assert [words for words in expected if words not in result.comments] == []


def test_an_infotext_in_the_request_sets_everything_and_a_fraction_of_an_older_version_is_rounded(webui):
    """Forge refuses each request that has an infotext, whatever is in it."""
    try:
        webui.txt2img(infotext="a cat\nSteps: 4", enable_hr=False)
    except Refused as error:
        pytest.skip(f"this WebUI reads no infotext of a request: {error}")
    text = "a cat\nSteps: 4, ToDo method: downsample, ToDo factor 1: 1.5, ToDo end: 0.5"
    result = webui.txt2img(infotext=text, hr_sampler_name="Euler")  # else Classic takes "Use same sampler" for a name
    assert [len(reduced([step])) for step in result.hires] == [1, 1, 0, 0]
    assert reduced(result.hires) == REDUCED


def test_an_unknown_script_is_refused_by_the_webui(webui):
    with pytest.raises(Refused) as refused:
        webui.txt2img(alwayson_scripts={"ToDo 2": {"args": []}})
    assert refused.value.status == 422
