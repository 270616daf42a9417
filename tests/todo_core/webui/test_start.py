"""What happens when the WebUI loads the script."""

from __future__ import annotations

from modules import script_callbacks

from tests.todo_core.webui.webui_double import load_script

CATEGORIES = ("cfg_denoiser", "before_ui", "infotext_pasted", "after_process")


def registered():
    return [len(getattr(script_callbacks, f"callbacks_{category}")) for category in CATEGORIES]


def test_each_callback_is_registered_once(module):
    assert registered() == [1, 1, 1, 0]


def test_sd_next_has_one_more(module, monkeypatch):
    register = script_callbacks.callbacks_after_process.append
    monkeypatch.setattr(script_callbacks, "on_after_process", register, raising=False)
    load_script()
    assert registered() == [2, 2, 2, 1]
