"""Errors on the page use the page's labels; those of an API request with names keep the names."""

from __future__ import annotations

import pytest

from todo_core import SETTINGS, Settings, SettingsError
from todo_core.webui.generation import request
from todo_core.webui.panel.error_text import api_text, page_text
from todo_core.webui.presets import Presets


def text_of(call, worded=page_text):
    with pytest.raises(SettingsError) as raised:
        call()
    return worded(raised.value)


FACTOR, RATIO = "Use auto or a whole number from 1 to 8.", "Use a number from 0 to 0.99."
START, NAMES = {"start": 0.8, "end": 0.2}, ", ".join(SETTINGS)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"factor_1": "x"}, f"Factor, level 1: 'x' is not possible. {FACTOR}"),
        ({"factor_1": "2.5"}, f"Factor, level 1: 2.5 is not possible. {FACTOR}"),
        ({"factor_1": None}, f"Factor, level 1 is empty. {FACTOR}"),
        ({"factor_1": ""}, f"Factor, level 1 is empty. {FACTOR}"),
        ({"factor_1": "x" * 1000}, f"Factor, level 1: '{'x' * 96}... is not possible. {FACTOR}"),
        ({"ratio_2": True}, f"Ratio, level 2: true is not possible. {RATIO}"),
        ({"ratio_2": {}}, f"Ratio, level 2: {{}} is not possible. {RATIO}"),
        (
            {"seed": "x"},
            "Destination seed: 'x' is not possible. Use -1 (each image's own seed) or a whole number >= 0.",
        ),
        ({"method": "tome"}, "Method: 'tome' is not possible. Use downsample, similarity, cluster, none."),
        (START, "Start: 0.8 is not possible. Use a value below the end, 0.2."),
        ({"bogus": 1}, f"'bogus' is not a setting; the settings are: {NAMES}."),
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
        ({"factor1": 2}, f"'factor1' is not a setting (did you mean factor_1?); the settings are: {NAMES}"),
    ],
)
def test_the_api_gets_names_and_json(values, text):
    assert text_of(lambda: Settings.parse(values), api_text) == text


def test_values_that_are_no_settings_have_labels_too(tmp_path):
    presets = Presets(tmp_path / "presets.json")
    assert text_of(lambda: request.parse_enabled("perhaps")) == "ToDo: 'perhaps' is not possible. Use True or False."
    assert text_of(lambda: presets.get("x")).startswith("Preset: 'x' is not possible. Use 'Balanced', ")
    assert text_of(lambda: presets.save("custom", Settings())).startswith("Preset name: 'custom' is not possible. ")
    assert text_of(lambda: presets.delete("x")).startswith("Preset: 'x' is not possible. Use one of your own ")
