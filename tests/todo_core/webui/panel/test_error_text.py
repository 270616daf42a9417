"""Errors on the page use the page's labels; those of an API request with names keep the names."""

from __future__ import annotations

import math

import pytest

from todo_core import SETTINGS, Settings, SettingsError
from todo_core.webui.compare.request import CompareRequest
from todo_core.webui.generation import request
from todo_core.webui.panel.error_text import PanelError, api_text, page_text
from todo_core.webui.presets import Presets


def text_of(call):
    with pytest.raises(SettingsError) as raised:
        call()
    return page_text(raised.value)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"factor_1": "x"}, "Factor, level 1: 'x' is not possible. Use auto or a whole number from 1 to 8."),
        ({"factor_1": 0.5}, "Factor, level 1: 0.5 is not possible. Use auto or a whole number from 1 to 8."),
        (
            {"factor_1": math.nan},
            "Factor, level 1: nan is not possible. Use auto or a whole number from 1 to 8.",
        ),
        ({"factor_1": 9}, "Factor, level 1: 9 is not possible. Use auto or a whole number from 1 to 8."),
        ({"ratio_2": "much"}, "Ratio, level 2: 'much' is not possible. Use a number from 0 to 0.99."),
        ({"ratio_2": True}, "Ratio, level 2: true is not possible. Use a number from 0 to 0.99."),
        ({"factor_1": None}, "Factor, level 1 is empty. Use auto or a whole number from 1 to 8."),
        ({"factor_1": "2.5"}, "Factor, level 1: 2.5 is not possible. Use auto or a whole number from 1 to 8."),
        ({"bogus": 1}, "'bogus' is not a setting; the settings are: " + ", ".join(SETTINGS) + "."),
        ({"sx": 2.5}, "Cell width: 2.5 is not possible. Use a whole number from 1 to 16."),
        ({"sx": 0}, "Cell width: 0 is not possible. Use a whole number from 1 to 16."),
        (
            {"seed": "x"},
            "Destination seed: 'x' is not possible. Use -1 (each image's own seed) or a whole number >= 0.",
        ),
        ({"method": "tome"}, "Method: 'tome' is not possible. Use downsample, similarity, cluster, none."),
        ({"random": "perhaps"}, "Random destinations: 'perhaps' is not possible. Use True or False."),
        ({"start": 0.8, "end": 0.2}, "Start: 0.8 is not possible. Use a value below the end, 0.2."),
        (
            {"method": "similarity", "ratio_1": 0.8},
            "Ratio, level 1: 0.8 is not possible. Use at most 0.75: one token of each 2 x 2 cell stays.",
        ),
    ],
)
def test_a_setting_is_named_by_its_label(values, text):
    assert text_of(lambda: Settings.parse(values)) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"factor_1": None}, "factor_1 = null is not possible; allowed: 'auto' or a whole number from 1 to 8"),
        ({"random": None}, "random = null is not possible; allowed: true or false"),
        ({"end": True}, "end = true is not possible; allowed: a number from 0 to 1"),
        ({"seed": []}, "seed = [] is not possible; allowed: null or -1 (each image's own seed) or a whole number >= 0"),
        (
            {"factor1": 2},
            "'factor1' is not a setting (did you mean factor_1?); the settings are: " + ", ".join(SETTINGS),
        ),
    ],
)
def test_the_api_gets_names_and_json(values, text):
    with pytest.raises(SettingsError) as raised:
        Settings.parse(values)
    assert api_text(raised.value) == text


def test_values_that_are_no_settings_have_labels_too(tmp_path):
    presets = Presets(tmp_path / "presets.json")
    assert text_of(lambda: request.parse_enabled("perhaps")) == "ToDo: 'perhaps' is not possible. Use True or False."
    assert text_of(lambda: presets.get("x")).startswith("Preset: 'x' is not possible. Use 'ToDo balanced', ")
    assert text_of(lambda: presets.save("custom", Settings())).startswith("Preset name: 'custom' is not possible. ")
    assert text_of(lambda: presets.delete("x")).startswith("Preset: 'x' is not possible. Use one of your own ")


def test_a_long_value_is_shortened():
    assert len(text_of(lambda: Settings.parse({"factor_1": "x" * 1000}))) < 200


@pytest.mark.parametrize("names", [[], ["no such"]])
def test_an_exception_for_the_page_has_the_same_text(tmp_path, names):
    with pytest.raises(PanelError) as raised:
        CompareRequest.of(names, True, True, Presets(tmp_path / "presets.json"))
    assert str(raised.value) == page_text(raised.value)
    assert str(raised.value).startswith("Preset")
