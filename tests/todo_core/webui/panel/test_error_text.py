"""Errors on the page use the page's labels; those of an API request with names keep the names."""

import pytest

from todo_core import SETTINGS, Settings, SettingsError
from todo_core.webui.generation import request
from todo_core.webui.panel.error_text import api_text, page_text
from todo_core.webui.presets import Presets


def text_of(call, worded=page_text):
    with pytest.raises(SettingsError) as raised:
        call()
    return worded(raised.value)


ON_PAGE = {"factor_1": "auto or a whole number from 1 to 8", "random": "True or False"}
ON_PAGE |= {"ratio_2": "a number from 0 to 0.99", "seed": "-1 (each image's own seed) or a whole number >= 0"}
IN_API = ON_PAGE | {"factor_1": "'auto' or a whole number from 1 to 8", "random": "true or false"}
IN_API |= {"seed": f"null or {ON_PAGE['seed']}"}


@pytest.mark.parametrize(
    ("name", "value", "on_page", "in_api"),
    [
        ("factor_1", "2.5", ": 2.5 is not possible", "2.5"),
        ("factor_1", None, " is empty", "null"),
        ("factor_1", "x" * 1000, f": '{'x' * 96}... is not possible", f"'{'x' * 96}..."),
        ("ratio_2", True, ": true is not possible", "true"),
        ("seed", "x", ": 'x' is not possible", "'x'"),
        ("random", "", " is empty", "''"),
    ],
)
def test_a_value_is_told_by_label_on_the_page_and_by_name_and_in_json_to_the_api(name, value, on_page, in_api):
    parse = lambda: Settings.parse({name: value})  # noqa: E731
    assert text_of(parse) == f"{SETTINGS[name].label}{on_page}. Use {ON_PAGE[name]}."
    assert text_of(parse, api_text) == f"{name} = {in_api} is not possible; allowed: {IN_API[name]}"


def test_values_that_are_no_settings_have_labels_too(tmp_path):
    presets = Presets(tmp_path / "presets.json")
    assert text_of(lambda: request.ENABLED.parse("perhaps")) == "ToDo: 'perhaps' is not possible. Use True or False."
    assert text_of(lambda: presets.get("x")).startswith("Preset: 'x' is not possible. Use 'Balanced', ")
    assert text_of(lambda: presets.save("custom", Settings())).startswith("Preset name: 'custom' is not possible. ")
    assert text_of(lambda: presets.delete("x")).startswith("Preset: 'x' is not possible. Use one of your own ")
    window, unknown = (lambda: Settings.parse({"start": 0.8, "end": 0.2})), lambda: Settings.parse({"bogus": 1})
    assert text_of(window) == "Start: 0.8 is not possible. Use a value below the end, 0.2."
    names = ", ".join(SETTINGS)
    assert text_of(unknown) == f"'bogus' is not a setting; the settings are: {names}."
    assert text_of(unknown, api_text) == f"'bogus' is not a setting; the settings are: {names}"
