"""SD.Next: hires passes of its pipelines are reduced in the window alone, and nothing stays behind."""

import numpy as np
import pytest

from tests.webui.helpers import latents, lengths, level_1, reduced, todo_keys

OURS = {"factor_1": 2, "interval": 1, "start": 0, "end": 1}


@pytest.fixture
def webui(webui):
    if webui.family != "sdnext":
        pytest.skip("only SD.Next samples with pipelines")
    return webui


def acts(events):
    return [bool(reduced([event])) for event in events]


@pytest.mark.parametrize("layout", ["sd1", "sdxl"])
@pytest.mark.parametrize("window", [(0.25, 0.75), (0.0, 1.0)], ids=["window", "predicted"])
def test_the_hires_pass_is_reduced_and_the_rest_is_as_without_todo(webui, request, window, layout):
    start, end = window
    settings = OURS | {"start": start, "end": end, "interval": 1 if start else 2}
    chosen = {"sd_model_checkpoint": request.getfixturevalue("sdxl_checkpoint")} if layout == "sdxl" else {}
    steps = {"hr_second_pass_steps": 8, "override_settings": chosen}
    plain, ours = webui.baseline(**steps), webui.txt2img(settings, **steps)
    total, whole = len(ours.hires), level_1(plain.hires)
    assert total >= 4
    assert acts(ours.hires) == [start <= i / total < end for i in range(total)]
    assert not start or reduced(ours.hires) == {(whole, whole // 4)}
    assert (latents(ours.first), lengths(ours.first)) == (latents(plain.first), lengths(plain.first))
    assert latents(ours.hires[:1]) == latents(plain.hires[:1])
    assert not np.array_equal(plain.pixels, ours.pixels)
    assert ("downsample" if start else "layers below level 1 computed in") in ours.comments
    assert todo_keys(ours.infotext)["ToDo factor 1"] == "2"
    assert ours.hooks_left <= 1  # the one that finds the passes out; none is on a model after the generation
    again = webui.txt2img(**steps)
    assert np.array_equal(plain.pixels, again.pixels)
    assert not todo_keys(again.infotext)


@pytest.mark.parametrize("sampler", ["Euler a", "UniPC", "Heun", "LCM"])
def test_samplers(webui, sampler):
    ours = webui.txt2img(OURS | {"end": 0.5}, sampler_name=sampler)
    assert {*acts(ours.hires)} == {True, False}
    assert acts(ours.hires) == sorted(acts(ours.hires), reverse=True)


def test_an_infotext_is_pasted(webui):
    page = webui.get("/config")
    names = {part["id"]: part["props"].get("elem_id") for part in page["components"]}
    events = enumerate(page["dependencies"])
    number, event = next(e for e in events if e[1]["backend_fn"] and "txt2img_paste" in map(names.get, e[1]["targets"]))
    text = "a dog\nSteps: 5, Size: 128x128, ToDo method: downsample, ToDo factor 1: 3, ToDo end: 0.6"
    answer = webui.post("/run/predict", {"fn_index": number, "data": [text], "session_hash": "paste"})
    pasted = {names[part]: new.get("value") for part, new in zip(event["outputs"], answer["data"], strict=True)}
    ours = {"todo_txt2img-checkbox": True, "todo_txt2img_factor_1": "3", "todo_txt2img_end": "0.6"}
    assert pasted.items() >= {"txt2img_steps": 5, **ours}.items()
