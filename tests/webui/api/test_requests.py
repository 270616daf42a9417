"""The API: settings by name or by position, and what becomes of bad ones."""

import numpy as np
import pytest

from ..helpers import Refused, reduced

REDUCED = {(1024, 256)}


def script_info(webui, *, is_img2img=False):
    found = [script for script in webui.get("/sdapi/v1/script-info") if script["name"] == "todo"]
    return next(script for script in found if script["is_img2img"] == is_img2img)


@pytest.fixture
def args(webui):
    """The script's arguments as script-info lists them: the panel's defaults."""
    return [arg["value"] for arg in script_info(webui)["args"]]


@pytest.mark.parametrize("is_img2img", [False, True])
def test_script_info_lists_the_switch_and_every_setting(webui, is_img2img):
    from todo_core.settings import SETTINGS
    from todo_core.webui.panel.texts import TITLES

    info = script_info(webui, is_img2img=is_img2img)
    title = TITLES["img2img" if is_img2img else "txt2img"]
    assert info["is_alwayson"]
    assert [arg["label"] for arg in info["args"]] == [title, *(setting.label for setting in SETTINGS.values())]
    assert info["args"][0]["value"] is False


def test_the_panels_defaults_by_position_do_nothing(webui, args):
    assert np.array_equal(webui.txt2img(args=args).pixels, webui.baseline().pixels)


def test_a_positional_list_as_script_info_shows_it_works(webui, args):
    from todo_core.webui.generation.request import POSITIONS

    named = dict(zip(POSITIONS, args, strict=True)) | {"enabled": True, "factor_1": "2", "end": 0.5}
    result = webui.txt2img(args=list(named.values()))
    assert [reduced([step]) for step in result.hires] == [REDUCED, REDUCED, set(), set()]


def test_a_short_positional_list_takes_the_panels_defaults(webui):
    result = webui.txt2img(args=[True, "downsample", "keys/values", 2])
    assert reduced(result.hires) == REDUCED


@pytest.mark.parametrize("title", ["ToDo", "todo", "TODO"])
def test_the_script_is_found_in_any_case_of_letters(webui, title):
    result = webui.txt2img(alwayson_scripts={title: {"args": [{"factor_1": 2}]}})
    assert reduced(result.hires) == REDUCED


def test_an_empty_mapping_switches_on(webui):
    assert "found nothing to reduce at 256 x 256: this model was trained at" in webui.txt2img({}).comments


def test_a_mapping_can_switch_off(webui):
    assert reduced(webui.txt2img({"enabled": False, "factor_1": 2}).hires) == set()


def test_text_is_read_as_numbers_and_flags(webui):
    assert reduced(webui.txt2img({"enabled": "true", "factor_1": "2.0"}).hires) == REDUCED


BAD = {
    "an unknown name": (
        {"factor": 2},
        ["factor", "2", "the settings are: enabled, preset, method, target", "did you mean factor_1?"],
    ),
    "a wrong type": ({"factor_1": [2]}, ["factor_1", "[2]", "'auto' or a whole number from 1 to 8"]),
    "null": ({"method": None}, ["method", "null", "'downsample'"]),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_value_costs_no_image_and_is_named_with_what_is_allowed(webui, bad):
    settings, expected = BAD[bad]
    result = webui.txt2img(settings)
    assert np.array_equal(result.pixels, webui.baseline().pixels)
    assert "ToDo" not in result.infotext
    for words in expected:
        assert words in result.comments


def test_a_bad_value_by_position_is_named_too(webui, args):
    result = webui.txt2img(args=[True, "downsample", "keys/values", 0.25, *args[4:]])
    assert np.array_equal(result.pixels, webui.baseline().pixels)
    assert "Factor, level 1: 0.25 is not possible. Use auto or a whole number from 1 to 8." in result.comments


def test_a_bad_value_is_no_matter_while_the_switch_is_off(webui, args):
    result = webui.txt2img(args=[False, "tome", *args[2:]])
    assert reduced(result.hires) == set()
    assert not result.comments


def test_a_positional_list_that_is_too_long_is_cut_by_the_webui(webui, args):
    result = webui.txt2img(args=[True, "downsample", "keys/values", 2, *args[4:], "one", "two"])
    assert reduced(result.hires) == REDUCED


def test_something_behind_the_mapping_is_named(webui):
    result = webui.txt2img(args=[{"factor_1": 2}, "keys/values"])
    assert reduced(result.hires) == REDUCED


@pytest.fixture
def infotexts_are_read(webui):
    """Forge refuses each request that has an infotext, whatever is in it."""
    try:
        webui.txt2img(infotext="a cat\nSteps: 4", enable_hr=False)
    except Refused as error:
        pytest.skip(f"this WebUI reads no infotext of a request: {error}")


@pytest.mark.usefixtures("infotexts_are_read")
def test_an_infotext_in_the_request_sets_everything_and_a_fraction_of_an_older_version_is_rounded(webui):
    text = "a cat\nSteps: 4, ToDo method: downsample, ToDo factor 1: 1.5, ToDo end: 0.5"
    result = webui.txt2img(infotext=text, hr_sampler_name="Euler")  # else Classic takes "Use same sampler" for a name
    assert [len(reduced([step])) for step in result.hires] == [1, 1, 0, 0]
    assert reduced(result.hires) == {(1024, 256)}


def test_an_unknown_script_is_refused_by_the_webui(webui):
    with pytest.raises(Refused) as refused:
        webui.txt2img(alwayson_scripts={"ToDo 2": {"args": []}})
    assert refused.value.status == 422


def test_a_fault_tells_nothing_to_a_baseline_job(webui):
    assert not webui.txt2img().comments
