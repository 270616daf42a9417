"""SD.Next: passes of its pipelines are reduced in the window alone, and nothing stays behind."""

import sys
from pathlib import Path

import pytest

from tests.webui.helpers import Refused, difference, lengths, level_1, reduced, todo_keys

EXTENSION = Path(__file__).parents[2] / "todo_core" / "webui"
OURS = {"factor_1": 2, "interval": 1}
# SD.Next's names, and at least four steps that run at this strength
HIRES = {"hr_upscaler": "Latent Bilinear", "hr_force": True, "hr_resize_mode": 1, "hr_denoising_strength": 0.7}


@pytest.fixture
def webui(webui):
    if webui.family != "sdnext":
        pytest.skip("only SD.Next samples with pipelines")
    return webui


def txt2img(webui, todo=None, **request):
    return webui.txt2img(todo, **HIRES, **request)


def baseline(webui, **request):
    return webui.baseline(**HIRES, **request)


def test_the_hires_pass_is_reduced_from_its_first_call_on(webui):
    plain, ours = baseline(webui), txt2img(webui, OURS)
    assert lengths(ours.first) == lengths(plain.first)
    whole = level_1(ours.hires)
    assert {(whole, whole // 4) in reduced([event]) for event in ours.hires} == {True}
    assert [event["latent"] for event in ours.first] == [event["latent"] for event in plain.first]
    assert ours.hires[0]["latent"] == plain.hires[0]["latent"]
    assert difference(plain, ours) > 0
    steps = len(ours.hires)
    assert f"in {steps} of {steps} steps" in ours.comments
    assert todo_keys(ours.infotext) == {"ToDo method": "downsample", "ToDo factor 1": "2"}


def test_only_steps_between_start_and_end_are_reduced(webui):
    ours = txt2img(webui, OURS | {"start": 0.25, "end": 0.75}, hr_second_pass_steps=8)
    total = len(ours.hires)
    assert total >= 4
    assert [bool(reduced([event])) for event in ours.hires] == [0.25 <= i / total < 0.75 for i in range(total)]


@pytest.mark.parametrize("passes", ["first", "all"])
def test_passes(webui, passes):
    ours = txt2img(webui, OURS | {"passes": passes})
    assert {bool(reduced([event])) for event in ours.first} == {True}
    assert {bool(reduced([event])) for event in ours.hires} == {passes == "all"}


def test_steps_below_level_1_are_predicted(webui):
    plain, ours = baseline(webui, hr_second_pass_steps=8), txt2img(webui, {"interval": 2}, hr_second_pass_steps=8)
    calls = [len(event["calls"][0]["lengths"]) for event in ours.hires]
    whole = len(plain.hires[0]["calls"][0]["lengths"])
    computed = calls.count(whole)
    assert 0 < computed < len(calls)
    assert f"computed in {computed} of {len(calls)} steps" in ours.comments


def test_target_all_and_similarity(webui):
    ours = txt2img(webui, {"method": "similarity", "target": "all", "ratio_1": 0.5})
    assert {level_1([event]) for event in ours.hires} == {level_1(baseline(webui).hires) // 2}
    assert "(similarity)" in ours.comments


@pytest.mark.parametrize("sampler", ["Euler a", "UniPC", "Heun", "LCM"])
def test_samplers(webui, sampler):
    before = txt2img(webui, sampler_name=sampler)
    ours = txt2img(webui, OURS | {"end": 0.5}, sampler_name=sampler)
    acts = [bool(reduced([event])) for event in ours.hires]
    assert any(acts)
    assert not all(acts)
    assert acts == sorted(acts, reverse=True)
    after = txt2img(webui, sampler_name=sampler)
    assert (before.pixels == after.pixels).all()


def test_a_batch(webui):
    ours = txt2img(webui, OURS, batch_size=2)
    alone = txt2img(webui, OURS)
    assert {bool(reduced([event])) for event in ours.hires} == {True}
    assert abs(ours.pixels[0] - alone.pixels[0]).mean() < 1


def test_img2img(webui):
    image = baseline(webui).base64_images[0]
    ours = webui.img2img(image, OURS, width=256, height=256, enable_hr=False)
    assert {bool(reduced([event])) for event in ours.events} == {True}
    assert "the img2img pass" in ours.comments


@pytest.mark.parametrize("todo", [OURS, {"interval": 2}, OURS | {"target": "all", "passes": "all"}])
def test_the_next_baseline_is_bit_identical(webui, todo):
    plain = baseline(webui, hr_second_pass_steps=6)
    ours = txt2img(webui, todo, hr_second_pass_steps=6)
    assert ours.hooks_left <= 1  # the one that finds the passes out; none is on a model after the generation
    again = txt2img(webui, hr_second_pass_steps=6)
    assert (plain.pixels == again.pixels).all()
    assert not todo_keys(again.infotext)


def test_an_interrupt_leaves_nothing(webui):
    plain = baseline(webui)
    stopped = webui.interrupted_at(5, OURS, **HIRES)
    assert len(stopped.hires) < len(plain.hires)
    assert webui.hooks() == 0
    again = txt2img(webui)
    assert (plain.pixels == again.pixels).all()


@pytest.mark.parametrize("kind", ["attention", "reduction"])
def test_an_error_leaves_nothing(webui, kind):
    plain = baseline(webui)
    webui.fault(kind, 5)
    try:
        ours = txt2img(webui, OURS)
    except Refused:
        assert kind == "attention"
    else:
        if kind == "reduction":
            assert "ToDo stopped in the hires pass" in ours.comments
            assert (plain.pixels.shape) == ours.pixels.shape
    assert webui.hooks() == 0
    again = txt2img(webui)
    assert (plain.pixels == again.pixels).all()


def test_the_sdxl_layout(webui, sdxl_checkpoint):
    before = webui.get("/sdapi/v1/options")["sd_model_checkpoint"]
    webui.post("/sdapi/v1/options", {"sd_model_checkpoint": sdxl_checkpoint})
    try:
        plain = txt2img(webui, hr_second_pass_steps=8)
        ours = txt2img(webui, OURS | {"interval": 2}, hr_second_pass_steps=8)
        again = txt2img(webui, hr_second_pass_steps=8)
    finally:
        webui.post("/sdapi/v1/options", {"sd_model_checkpoint": before})
    assert plain.pixels.std() > 5
    assert any(reduced([event]) for event in ours.hires)
    assert "transformers below level 1 computed in" in ours.comments
    assert (plain.pixels == again.pixels).all()


@pytest.mark.parametrize("request_", [{}, {"enable_hr": False}, {"n_iter": 2}, {"batch_size": 2}])
def test_the_double_calls_a_script_in_its_order(webui, monkeypatch, request_):
    txt2img(webui, **request_)
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
