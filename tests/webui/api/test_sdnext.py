"""SD.Next: hires passes of its pipelines are reduced in the window alone, and nothing stays behind."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.webui.helpers import Refused, latents, lengths, level_1, reduced, todo_keys

EXTENSION = Path(__file__).parents[2] / "todo_core" / "webui"
OURS = {"factor_1": 2, "interval": 1}


@pytest.fixture
def webui(webui):
    if webui.family != "sdnext":
        pytest.skip("only SD.Next samples with pipelines")
    return webui


def acts(events):
    return [bool(reduced([event])) for event in events]


SETTINGS = {
    "from the first call on": (OURS, lambda i, n: True, "downsample"),
    "in the window": (OURS | {"start": 0.25, "end": 0.75}, lambda i, n: 0.25 <= i / n < 0.75, "downsample"),
    "predicted": ({"factor_1": 2, "interval": 2}, lambda i, n: True, "transformers below level 1 computed in"),
}


@pytest.mark.parametrize("layout", ["sd1", "sdxl"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_hires_pass_is_reduced_and_the_rest_is_as_without_todo(webui, request, name, layout):
    settings, inside, told = SETTINGS[name]
    chosen = {"sd_model_checkpoint": request.getfixturevalue("sdxl_checkpoint")} if layout == "sdxl" else {}
    steps = {"hr_second_pass_steps": 8, "override_settings": chosen}
    plain, ours = webui.baseline(**steps), webui.txt2img(settings, **steps)
    total = len(ours.hires)
    assert total >= 4
    assert acts(ours.hires) == [inside(i, total) for i in range(total)]
    whole = level_1(plain.hires)
    assert name == "predicted" or reduced(ours.hires) == {(whole, whole // 4)}
    assert (latents(ours.first), lengths(ours.first)) == (latents(plain.first), lengths(plain.first))
    assert latents(ours.hires[:1]) == latents(plain.hires[:1])
    assert not np.array_equal(plain.pixels, ours.pixels)
    assert told in ours.comments
    assert todo_keys(ours.infotext)["ToDo factor 1"] == "2"
    assert ours.hooks_left <= 1  # the one that finds the passes out; none is on a model after the generation
    again = webui.txt2img(**steps)
    assert np.array_equal(plain.pixels, again.pixels)
    assert not todo_keys(again.infotext)


@pytest.mark.parametrize("passes", ["first", "all"])
def test_passes(webui, passes):
    ours = webui.txt2img(OURS | {"passes": passes})
    assert ({*acts(ours.first)}, {*acts(ours.hires)}) == ({True}, {passes == "all"})


@pytest.mark.parametrize("sampler", ["Euler a", "UniPC", "Heun", "LCM"])
def test_samplers(webui, sampler):
    plain, ours = (webui.txt2img(todo, sampler_name=sampler) for todo in (None, OURS | {"end": 0.5}))
    assert {*acts(ours.hires)} == {True, False}
    assert acts(ours.hires) == sorted(acts(ours.hires), reverse=True)
    assert np.array_equal(webui.txt2img(sampler_name=sampler).pixels, plain.pixels)


@pytest.mark.parametrize("event", ["cancel", "fail", "ours"])
def test_an_end_in_the_hires_pass_leaves_nothing(webui, event):
    plain = webui.baseline()
    try:
        ours = webui.txt2img(OURS, happens={5: event})
    except Refused:
        assert event == "fail"
    else:
        assert event != "cancel" or len(ours.hires) < len(plain.hires)
        assert ("ToDo stopped in the hires pass" in ours.comments) == (event == "ours")
    assert webui.left() == [0, 0, 0]
    assert np.array_equal(webui.txt2img().pixels, plain.pixels)


@pytest.mark.parametrize("request_", [{}, {"enable_hr": False}, {"n_iter": 2}, {"batch_size": 2}])
def test_the_double_calls_a_script_in_its_order(webui, monkeypatch, request_):
    webui.txt2img(**request_)
    real = webui.get("/todo-probe/order")
    monkeypatch.syspath_prepend(EXTENSION / "double")
    from tests.models import diffusers_unet
    from tests.todo_core.webui.sdnext_double import PipelineProcessing, SDNext

    assert Path(sys.modules["modules"].__file__).is_relative_to(EXTENSION)
    silent = type("Silent", (), {"__getattr__": lambda self, event: lambda *args, **kwargs: None})()
    p = PipelineProcessing(steps=1, seeds=[1, 2] if len(request_) and "enable_hr" not in request_ else [1])
    for name, value in request_.items():
        setattr(p, name, value)
    simulated = SDNext(silent, diffusers_unet(), monkeypatch)
    simulated.generate(p)
    assert simulated.events == real


@pytest.mark.parametrize("key", ["ToDo method", "ToDo"])  # the second is that of version 0.1, and of SD.Next's own ToDo
def test_an_infotext_is_pasted(webui, key):
    page = webui.get("/config")
    names = {part["id"]: part["props"].get("elem_id") for part in page["components"]}
    events = enumerate(page["dependencies"])
    number, event = next(e for e in events if e[1]["backend_fn"] and "txt2img_paste" in map(names.get, e[1]["targets"]))
    text = f"a dog\nSteps: 5, Size: 128x128, {key}: downsample, ToDo factor 1: 3, ToDo end: 0.6"
    answer = webui.post("/run/predict", {"fn_index": number, "data": [text], "session_hash": "paste"})
    pasted = {names[part]: new.get("value") for part, new in zip(event["outputs"], answer["data"], strict=True)}
    ours = {"todo_txt2img-checkbox": True, "todo_txt2img_factor_1": "3", "todo_txt2img_end": 0.6}
    assert pasted.items() >= {"txt2img_steps": 5, **ours}.items()
