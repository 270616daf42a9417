"""The WebUI keeps the infotext of a generation before it samples, for the button that restores the last generation."""

from __future__ import annotations

import gradio as gr
import pytest
from modules import shared

from tests.todo_core.webui.webui_double import Processing, ProcessingImg2Img, pasted
from todo_core import Settings, __version__
from todo_core.webui.generation.infotext import settings_of

OURS = {"factor_1": 2, "end": 0.7}


def test_the_settings_in_use_are_kept(webui):
    webui.generate(Processing(), OURS)
    assert settings_of(webui.params_txt) == Settings(**OURS)
    assert webui.params_txt["ToDo version"] == __version__


def test_the_button_restores_the_panel(webui):
    with gr.Blocks():
        inputs = webui.script.ui(False)
    webui.generate(Processing(), OURS)
    values = pasted(webui.script.infotext_fields, webui.params_txt)
    assert [values[control] for control in inputs[:2]] == [True, "downsample"]
    assert values[next(c for c in inputs if c.label == "End")] == 0.7


def test_settings_that_do_nothing_here_are_kept_too(webui):
    done = webui.generate(Processing(enable_hr=False), OURS)
    assert settings_of(webui.params_txt) == Settings(**OURS)
    assert "ToDo" not in done.infotexts[0]


def test_settings_of_txt2img_alone_are_left_out_in_img2img(webui):
    webui.generate(ProcessingImg2Img(), OURS | {"passes": "all"})
    assert "ToDo passes" not in webui.params_txt


@pytest.mark.parametrize("args", [[], [{"enabled": False}], [{"factor_1": "x"}]])
def test_nothing_is_kept_where_todo_is_off(webui, args):
    webui.generate(Processing(), *args)
    assert webui.params_txt == {}


def test_every_batch_ends_with_what_ran_in_it(webui):
    """The second batch is interrupted before its hires pass."""
    p = Processing(seeds=[1, 2], n_iter=2)

    def interrupt(step):
        shared.state.interrupted = p.seeds == [2]

    p.after_step = interrupt
    done = webui.generate(p, OURS)
    assert "ToDo method" in done.infotexts[0]
    assert "ToDo" not in done.infotexts[1]


@pytest.mark.parametrize("passes", ["hires", "all"])
def test_an_image_saved_before_the_hires_pass_claims_what_was_reduced_until_then(webui, passes):
    p, claims = Processing(), []
    p.after_step = lambda step: claims.append("ToDo method" in p.extra_generation_params)
    webui.generate(p, OURS | {"passes": passes})
    assert claims[3::4] == [passes == "all", True]


def test_where_a_script_samples_by_itself_nothing_is_claimed(webui, monkeypatch):
    monkeypatch.setattr(webui.script, "process_before_every_sampling", lambda *args, **kwargs: None)
    done = webui.generate(Processing(), OURS)
    assert settings_of(webui.params_txt) == Settings(**OURS)
    assert "ToDo" not in done.infotexts[0]
