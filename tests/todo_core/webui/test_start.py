"""What happens when the WebUI loads the script."""

from __future__ import annotations

import pytest
from modules import script_callbacks

from tests.todo_core.webui.webui_double import load_script

CATEGORIES = ("cfg_denoiser", "before_ui", "infotext_pasted")


def registered():
    return [len(getattr(script_callbacks, f"callbacks_{category}")) for category in CATEGORIES]


def test_each_callback_is_registered_once_with_the_scripts_file(module):
    assert registered() == [1, 1, 1]
    assert script_callbacks.callbacks_files == [module.__file__] * 3


@pytest.mark.parametrize("lacks", ["add_callback", "callback_map"])
def test_a_webui_without_the_quick_way_is_asked_the_usual_way(module, monkeypatch, lacks):
    monkeypatch.delattr(script_callbacks, lacks)
    load_script()
    assert registered() == [2, 2, 2]


def test_an_older_webuis_way_of_adding_takes_no_file(module, monkeypatch):
    monkeypatch.setattr(script_callbacks, "add_callback", lambda callbacks, fun: callbacks.append(fun))
    load_script()
    assert registered() == [2, 2, 2]
