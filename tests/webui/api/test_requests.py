"""The API: settings by name or by position, and what becomes of bad ones."""

import numpy as np
import pytest

from todo_core.settings import SETTINGS
from todo_core.webui.panel.texts import TITLES

from ..helpers import REDUCED, Refused, reduced


@pytest.mark.parametrize("is_img2img", [False, True])
def test_script_info_lists_the_switch_and_every_setting_and_these_defaults_reduce_nothing(webui, is_img2img):
    found = [script for script in webui.get("/sdapi/v1/script-info") if script["name"] == "todo"]
    info = next(script for script in found if script["is_img2img"] == is_img2img)
    title = TITLES["img2img" if is_img2img else "txt2img"]
    assert info["is_alwayson"]
    assert [arg["label"] for arg in info["args"]] == [title, *(setting.label for setting in SETTINGS.values())]
    result = webui.txt2img(args=[arg["value"] for arg in info["args"]])
    assert np.array_equal(result.pixels, webui.baseline().pixels)
    assert not result.comments


FIRST = [True, "downsample", "keys/values", 2]
DEFAULTS = [setting.default for setting in SETTINGS.values()]
SENT = {
    "a short list": FIRST,
    "too long a list, cut by the WebUI": [*FIRST, *DEFAULTS[3:], "one", "two"],
    "text in a mapping and something behind it": [{"enabled": "true", "factor_1": "2.0"}, "keys/values"],
}


@pytest.mark.parametrize("name", SENT)
def test_arguments(webui, name):
    result = webui.txt2img(alwayson_scripts={"TODO": {"args": SENT[name]}})  # in any case of letters
    assert reduced(result.hires) == REDUCED, result.comments


def test_an_infotext_in_the_request_sets_everything(webui):
    """Forge refuses each request that has an infotext, whatever is in it."""
    try:
        webui.txt2img(infotext="a cat\nSteps: 4", enable_hr=False)
    except Refused as error:
        pytest.skip(f"this WebUI reads no infotext of a request: {error}")
    text = "a cat\nSteps: 4, ToDo method: downsample, ToDo factor 1: 2, ToDo start: 0, ToDo end: 0.5"
    result = webui.txt2img(infotext=text, hr_sampler_name="Euler")  # else Classic takes "Use same sampler" for a name
    assert [len(reduced([step])) for step in result.hires] == [1, 1, 0, 0]
    assert reduced(result.hires) == REDUCED
