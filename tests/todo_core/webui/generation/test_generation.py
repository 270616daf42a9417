"""Generations on the double: what is reduced, when, what the comments say, and that nothing stays behind."""

import json
import re
import sys
from copy import copy
from types import SimpleNamespace

import gradio as gr
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from modules import processing, sd_models, shared

from tests.models import LatentDiffusion, hook_count, shallow_ldm_unet
from tests.todo_core.contract.watch import Watch
from tests.todo_core.settings.test_settings import valid_settings
from tests.todo_core.webui.webui_double import SAMPLERS, CFGDenoiser, Processing, ProcessingImg2Img, WebUI, pasted
from todo_core import SETTINGS, Settings, __version__
from todo_core.patching.what_ran import Ran
from todo_core.reason import Reason, measured
from todo_core.webui import compat
from todo_core.webui.generation import asked
from todo_core.webui.generation.comments import tell
from todo_core.webui.generation.infotext import settings_of
from todo_core.webui.generation.request import override

WHOLE_AND_DEEP = {"interval": r"\d of 10 and \d of \d", "predict": "whole and deep"}
PREDICTS = {"enabled": True, "factor_1": 1, "interval": 2, "predict": "deep", "passes": "first"}
OURS = {"enabled": True, "factor_1": 2, "start": 0, "end": 1}


def lengths(webui, p, *args):
    """(tokens, keys) at level 1 in each call of the UNet, and the result."""
    unet = webui.unet if hasattr(webui, "unet") else webui.model.model.diffusion_model
    with Watch().on(type(unet)) as calls:
        done = webui.generate(p, *args)
    return [(call["tokens"], call["keys"]) for call in calls], done


def todo_of(done):
    """What the infotext says of ToDo, without the version, which always stands there."""
    params = dict(done.extra_generation_params)
    assert params.pop("ToDo version") == __version__
    return params


@pytest.mark.parametrize(
    ("chosen", "used"),
    [
        ({"factor_1": "auto", "interval": 1}, {"factor 1": "2", "start": "0.6", "end": "1"}),
        ({"tolerance": 0.1, "end": 0.9}, {"start": "0.5", **WHOLE_AND_DEEP}),
    ],
)
def test_what_auto_has_used_is_written_and_pasted_as_auto(webui, chosen, used, monkeypatch):
    monkeypatch.setattr("todo_core.patching.planning.WORTH_PREDICTING", 0)
    monkeypatch.setattr(webui.model, "image_size", 8)
    request = {"steps": 10, "sampler_function": SAMPLERS["euler"]}
    done = webui.generate(Processing(**request), {"factor_1": 2} | chosen)
    written = {key[5:]: text for key, text in todo_of(done).items() if text.startswith("auto")}
    assert [*written] == [*used]
    assert all(re.fullmatch(rf"auto \({text}\)", written[name]) for name, text in used.items()), written
    told = re.findall(r"(?:computed|level 1) in (\d+) of (?:these )?(\d+)", done.comments)
    assert told == re.findall(r"(\d+) of (\d+)", written.get("interval", ""))
    now = settings_of(done.extra_generation_params)
    assert now == Settings(**{"factor_1": 2} | chosen)
    again = webui.generate(Processing(**request), {n: v for n, v in now.to_dict().items() if n != "passes"})
    assert torch.equal(done.images[0], again.images[0])


def test_a_sampler_that_takes_more_steps_than_asked_for_is_told_by_its_calls(webui):
    """As DPM adaptive."""

    def more(model, x, sigmas, **options):
        return SAMPLERS["euler"](model, x, torch.linspace(2, 0, 10), **options)

    told = webui.generate(Processing(sampler_function=more), OURS | {"interval": 1}).comments
    assert told.endswith("in 9 of 9 model calls\n")


def test_an_img2img_job_of_the_txt2img_tabs_scripts_stays_whole(webui, monkeypatch):
    """Upscalers and ADetailer run such jobs for an image of txt2img."""
    monkeypatch.setattr(webui, "tab", "txt2img")
    pairs, done = lengths(webui, ProcessingImg2Img(extra_generation_params={"ToDo method": "outer"}), OURS)
    assert pairs == [(64, 64)] * 4
    assert done.comments == ""
    assert done.extra_generation_params == {"ToDo method": "outer"}


@pytest.mark.parametrize("tab", ["txt2img", "img2img"])
def test_a_job_inside_a_job_stays_whole_and_leaves_the_outer_record(webui, monkeypatch, tab):
    """As ADetailer does after each image: an inner job, and before_process and postprocess on copies."""
    outer = Processing(seeds=[1, 2], n_iter=2) if tab == "txt2img" else ProcessingImg2Img(seeds=[1, 2], n_iter=2)
    inner, call = [], webui._call

    def detail(method, p, *args, **kwargs):
        if method == "postprocess_batch" and p is outer:
            face = ProcessingImg2Img(extra_generation_params=p.extra_generation_params)
            monkeypatch.setattr(webui, "_call", call)
            inner.append(lengths(webui, face, OURS)[0])
            monkeypatch.setattr(webui, "_call", detail)
            webui.script.before_process(copy(p), OURS)
            webui.script.postprocess(copy(p), None, OURS)
        call(method, p, *args, **kwargs)

    monkeypatch.setattr(webui, "_call", detail)
    monkeypatch.setattr(webui, "tab", tab)
    done = webui.generate(outer, OURS)
    assert inner == [[(64, 64)] * 4] * 2
    assert all("ToDo method: downsample, ToDo factor 1: 2" in text for text in done.infotexts)
    assert done.comments.count("ToDo reduced the") == 1
    assert hook_count(webui.model) == 0


def test_after_a_failed_decoding_the_next_request_is_reduced(webui, monkeypatch):
    """No event tells that the failed generation is over; its object may live on."""
    failed = Processing()

    def fails(p, samples, number):
        webui._call("post_sample", p, SimpleNamespace(samples=samples))
        raise MemoryError

    monkeypatch.setattr(webui, "_end_batch", fails)
    with pytest.raises(MemoryError):
        webui.generate(failed, OURS)
    monkeypatch.undo()
    shared.state.time_start += 1
    assert lengths(webui, Processing(), OURS)[0][-1] == (256, 64)


def test_an_adapter_of_the_forge_family_that_ends_begins_the_predictions_anew(webui, monkeypatch):
    monkeypatch.setattr(compat, "controls_at", lambda params, model: ["ControlNet" * (params.denoiser.step < 5)])
    p = Processing(steps=10, enable_hr=False)
    assert "layers below level 1 computed in 7 of 10 steps" in webui.generate(p, PREDICTS).comments


WHOLE = {"predict": "whole", "interval": 2, "factor_1": 1, "factor_2": 1}
NO_RATIO = {"method": "similarity", "ratio_1": 0}
DEEP_ALONE = {"ToDo factor 1": "1", "ToDo factor 2": "1", "ToDo interval": "2"}


@pytest.mark.parametrize(
    ("ours", "told", "predict"),
    [
        (WHOLE, "hires pass: 17 % less work; whole model computed in 5 of 6 steps", "whole"),
        (WHOLE | {"predict": "deep"}, "layers below level 1 computed in 4 of 6 steps", "deep"),
        (NO_RATIO | {"interval": 2}, "layers below level 1 computed in 4 of 6 steps", "auto (deep)"),
    ],
    ids=["whole", "deep", "without its method"],
)
def test_what_only_predicted_is_told_and_its_infotext_repeats_the_image(webui, ours, told, predict):
    request = {"sampler_function": SAMPLERS["euler"], "steps": 6}
    done = webui.generate(Processing(**request), ours)
    assert told in done.comments
    assert "level 1 from" not in done.comments
    assert todo_of(done) == DEEP_ALONE | {"ToDo predict": predict}
    pasted = settings_of(done.extra_generation_params)
    again = webui.generate(Processing(**request), {k: v for k, v in pasted.to_dict().items() if k != "passes"})
    assert torch.equal(done.images[0], again.images[0])
    assert torch.equal(*webui.first_pass)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"sampler_function": SAMPLERS["ddim"]}, "computed in 5 of 6 steps"),
        ({"sampler_function": SAMPLERS["ddim"], "eta": 0.5}, "computed in 4 of 6 steps"),
        ({"sampler_function": SAMPLERS["ddim"], "steps": 5}, "5 or more steps, and the sampler makes 4"),
        ({"sampler_function": SAMPLERS["euler"], "s_churn": 5.0}, "computed in 5 of 7 steps"),
        ({}, str(Reason.UNKNOWN)),  # another extension's is not asked
    ],
    ids=["ddim", "eta", "short", "churn", "not asked"],
)
def test_the_sampler_is_asked_what_it_does(webui, request_, told):
    """Under noise an image is held from the second step on."""
    assert webui.generate(Processing(**{"steps": 7} | request_), WHOLE).comments.count(told) == 1


def test_in_the_forge_family_ddim_is_asked_too(webui, monkeypatch):
    """There the model around the UNet does not know the noise, and we are told that of each timestep."""
    monkeypatch.setattr(compat, "around_unet", lambda _: SimpleNamespace())
    monkeypatch.setattr(CFGDenoiser, "classic_ddim_eps_estimation", True)
    done = webui.generate(Processing(steps=7, sampler_function=SAMPLERS["ddim"]), WHOLE)
    assert "computed in 5 of 6 steps" in done.comments


@pytest.mark.parametrize("sampler", ["euler", "ancestral"])
def test_at_cfg_1_a_negative_prompt_in_a_call_of_its_own_has_no_part_in_the_error(webui, sampler):
    """As in AUTOMATIC1111 with a longer negative prompt: 0 / 0 was told as an output that is not a number."""
    request = {"sampler_function": SAMPLERS[sampler], "eta": 0.3, "steps": 10, "cfg_scale": 1.0}
    one, other = (webui.generate(Processing(split=split, **request), {"tolerance": 0.4}) for split in (True, False))
    assert "whole model computed in" in one.comments
    assert one.comments == other.comments


def test_to_ask_takes_none_of_the_images_noise(webui, monkeypatch):
    """The WebUI gives k-diffusion a torch of its own, which draws the noise of each image's seed."""
    drawing = SimpleNamespace(torch=SimpleNamespace(randn_like=None))
    monkeypatch.setitem(sys.modules, "k_diffusion.sampling", drawing)
    own, state = drawing.torch, torch.random.get_rng_state()
    webui.generate(Processing(steps=6, sampler_function=SAMPLERS["euler"]), WHOLE)
    assert drawing.torch is own
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("wrong", ["zeros", "doubled", "reversed", "shifted"])
def test_a_schedule_that_the_calls_do_not_keep_to_is_not_believed(webui, monkeypatch, wrong):
    lists = {"zeros": lambda s: 0 * s, "doubled": lambda s: s.repeat_interleave(2), "reversed": lambda s: s.flip(0)}
    lists["shifted"] = lambda s: 1.5 * s
    own = asked.variable
    changed = lambda name: {**own(name), "sigmas": lists[wrong](own(name)["sigmas"])}  # noqa: E731
    monkeypatch.setattr(asked, "variable", changed)
    told = webui.generate(Processing(steps=6, sampler_function=SAMPLERS["euler"]), WHOLE).comments
    assert str(Reason.DISAGREES if wrong == "shifted" else Reason.UNKNOWN) in told
    assert "computed in" not in told.replace("layers below level 1 computed in", "")


NGMS = "Negative Guidance minimum sigma leaves out the negative prompt in some steps"


@pytest.mark.parametrize(
    ("ngms", "split", "told"),
    [
        ((3, 5), False, f"computed in 5 of 6 steps; predictions began anew: {NGMS}\n"),
        ((1, 3, 5), False, f"nothing predicted: {NGMS}\n"),
        (range(6), False, "computed in 4 of 6 steps\n"),
        ((4, 5), True, "computed in 4 of 6 steps\n"),  # each half has a history of its own
    ],
)
def test_steps_without_the_negative_prompt_are_told_where_predictions_begin_anew(webui, ngms, split, told):
    request = {"sampler_function": SAMPLERS["euler"], "steps": 6, "enable_hr": False, "split": split}
    done = webui.generate(Processing(ngms=ngms, **request), OURS | {"interval": 2, "passes": "first"})
    assert re.sub(r"\d+ % less work; ", "", done.comments).endswith(told)
    assert NGMS in done.comments or "anew" not in done.comments


def test_a_placeholder_is_no_loaded_model(webui, monkeypatch):
    monkeypatch.setattr(sd_models.model_data, "sd_model", webui.model)
    assert compat.loaded_model() is webui.model
    monkeypatch.setattr(sd_models.model_data, "sd_model", object())  # Forge's before its first generation
    assert compat.loaded_model() is None


def test_every_row_of_an_and_prompt_belongs_to_its_image_and_the_weights_of_an_image_make_1():
    parts = [[SimpleNamespace(weight=weight) for weight in each] for each in ((0.5, 1), (1,), (1, 1, 1))]
    sampler = SimpleNamespace(sampler_extra_args={"cond": SimpleNamespace(batch=parts)})
    denoiser = SimpleNamespace(p=SimpleNamespace(seeds=[7, 8, 9], cfg_scale=2), sampler=sampler)
    rows = compat.rows_of(SimpleNamespace(x=torch.zeros(9, 4, 1, 1), denoiser=denoiser))
    assert [row.seed for row in rows] == [7, 7, 8, 9, 9, 9, 7, 8, 9]
    assert [row.weight for row in rows] == [1, 2, 2, 2, 2, 2, -2, -1, -5]


def test_which_adapters_act_is_told_in_the_forge_family_by_the_noise():
    first = SimpleNamespace(timestep_range=(14.0, 2.0), previous_controlnet=None, t2i_model=None)
    last = SimpleNamespace(timestep_range=(8.0, 1.0), previous_controlnet=first)
    model = SimpleNamespace(forge_objects=SimpleNamespace(unet=SimpleNamespace(controlnet_linked_list=last)))
    found = [compat.controls_at(SimpleNamespace(sigma=torch.tensor([each])), model) for each in (9.0, 8.0, 1.0, 0.9)]
    assert found == [["", "T2I-Adapter"], ["ControlNet", "T2I-Adapter"], ["ControlNet", ""], ["", ""]]
    assert compat.controls_at(None, SimpleNamespace()) == []


# what is claimed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "changes", "why"),
    [
        ([OURS], {"enable_hr": False}, "ToDo reduced nothing: hires fix is off\n"),
        ([{"method": "none"}, 2], {}, "ToDo reduced nothing: the method is none\n"),
        ([OURS | {"passes": "first"}], {"only_hires": True}, "ToDo reduced nothing: the first pass did not run\n"),
        # what is not possible is answered with labels by position, with names by name
        ([True, "downsample", "keys/values", "x"], {}, "ToDo is off for this image. Factor, level 1: 'x' is not"),
        ([True] * 40, {}, f"args: '40 values' is not possible. Use at most {len(SETTINGS) + 1} values"),
        ([{"factor_1": "x"}], {}, "ToDo is off for this image. factor_1 = 'x' is not possible; allowed: 'auto' or a"),
        ([{"enabled": True, "factor": 2}], {}, "'factor' is not a setting (did you mean factor_1?)"),
    ],
)
def test_where_nothing_is_reduced_the_comment_says_why_and_nothing_is_claimed(webui, args, changes, why):
    p = Processing(**changes)
    plain, done = webui.generate(Processing(**changes)), webui.generate(p, *args)
    assert torch.equal(plain.images[0], done.images[0])
    assert why in done.comments
    for result in (done, processing.Processed(p, [])):  # a script's own result too, as loopback's
        assert why in json.loads(result.js())["comments"], "the answer of the API"
    assert "comments" not in json.loads(plain.js())
    assert "ToDo" not in done.infotexts[0]


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.lists(st.none(), max_size=1)
ODD |= st.sampled_from(["auto", "nan", "1e999", "Fast", 10**400, "a" * 4000])
NAMES = st.sampled_from([*SETTINGS, "enabled", "preset", "factor", ""])
SENT = st.tuples(st.dictionaries(NAMES, ODD, max_size=4)) | st.lists(ODD, max_size=len(SETTINGS) + 3)
POSSIBLE = valid_settings().map(lambda wanted: ({"enabled": True, **wanted.to_dict(), "factor_1": 2},))


@given(SENT | POSSIBLE, st.integers(1, 6), st.sampled_from([64, 80, 112]))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_sent_an_image_comes_out_and_what_is_told_is_written(webui, sent, steps, width):
    """``generate`` lets no error of the script pass. An image that is not finite or flat would be a fault too."""
    done = webui.generate(Processing(steps=steps, width=width), *sent)
    assert done.images[0].isfinite().all()
    assert done.images[0].std() > 0.1
    assert hook_count(webui.model) == 0
    assert "stopped in" not in json.loads(done.js()).get("comments", "")
    assert ("ToDo reduced the" in done.comments) == ("ToDo version" in done.infotexts[0])


@pytest.mark.parametrize("kind", [Processing, ProcessingImg2Img])
def test_where_a_script_runs_the_sampler_by_itself_it_is_told_and_nothing_is_claimed(webui, monkeypatch, kind):
    """As the img2img alternative test: no pass is announced."""
    monkeypatch.setattr(webui.script, "process_before_every_sampling", lambda *args, **kwargs: None)
    done = webui.generate(kind(), OURS)
    assert done.comments == "ToDo reduced nothing: a script runs the sampler by itself\n"
    assert settings_of(webui.params_txt) == Settings(factor_1=2, start=0, end=1)
    assert "ToDo" not in done.infotexts[0]


def test_an_unsupported_model_is_told_without_a_traceback(script, caplog):
    unet = shallow_ldm_unet(use_spatial_transformer=False, context_dim=None)
    done = WebUI(script, LatentDiffusion(unet, image_size=64)).generate(Processing(), OURS)
    assert "ToDo cannot reduce UNetModel: " in done.comments
    assert "ToDo" not in done.infotexts[0]
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("WARNING", None)]


def test_the_button_for_the_last_generation_restores_the_panel_where_nothing_was_reduced_too(webui):
    """The WebUI keeps the infotext before it samples."""
    with gr.Blocks():
        inputs = webui.script.ui(False)
    webui.generate(Processing(enable_hr=False), OURS | {"end": 0.7})
    values = pasted(webui.script.infotext_fields, webui.params_txt)
    assert [values[control] for control in inputs[:2]] == [True, "downsample"]
    assert settings_of(webui.params_txt) == Settings(factor_1=2, start=0, end=0.7)
    assert webui.params_txt["ToDo version"] == __version__
    webui.generate(ProcessingImg2Img(), OURS | {"passes": "all"})
    assert "ToDo passes" not in webui.params_txt


@pytest.mark.parametrize("args", [[], [{"enabled": False}], [{"factor_1": "x"}]])
def test_nothing_is_kept_for_the_button_where_todo_is_off(webui, args):
    webui.generate(Processing(), *args)
    assert webui.params_txt == {}


@pytest.mark.parametrize("passes", ["hires", "all"])
def test_between_steps_nothing_is_on_the_model_and_what_was_reduced_until_then_is_claimed(webui, passes):
    """Live previews run there, and the WebUI may save an image before the hires pass."""
    p, seen = Processing(seeds=[1, 2], n_iter=2), []
    p.after_step = lambda _: seen.append((hook_count(webui.model), "ToDo method" in p.extra_generation_params))
    webui.generate(p, OURS | {"passes": passes})
    assert seen == [(0, step >= (3 if passes == "all" else 7)) for step in range(8)] * 2


@pytest.mark.parametrize("passes", ["hires", "all"])
@pytest.mark.parametrize("one_sampler", [True, False])
def test_a_pass_that_is_announced_twice_or_shares_its_sampler_counts_once(webui, monkeypatch, one_sampler, passes):
    """As Forge does before the hires pass, and as with Tiled Diffusion."""
    job, ours, call = {"seeds": [1, 2], "n_iter": 2}, OURS | {"passes": passes}, webui._call
    apart = webui.generate(Processing(**job), ours)

    def twice(method, p, *args, **kwargs):
        for _ in range(1 + (method == "process_before_every_sampling" and p.is_hr_pass)):
            call(method, p, *args, **kwargs)

    monkeypatch.setattr(webui, "_call", twice)
    done = webui.generate(Processing(one_sampler=one_sampler, **job), ours)
    assert all(map(torch.equal, done.images, apart.images))
    assert (done.comments, done.infotexts) == (apart.comments, apart.infotexts)
    assert not (one_sampler and webui.sampler.model_wrap_cfg._forward_hooks)


def computed(whole, deep, percent):
    first = Ran.COMPUTED("whole model", measured(whole), "10 steps")
    both = Ran.OF_THESE(first, "layers below level 1", measured(deep), measured(whole))
    return Ran.REDUCED("it", (Ran.LESS("", measured(percent)), both))


def above(error):
    return Ran.NO_PASS(Reason.ABOVE(measured(error), 0.16))


COMPUTED = "ToDo reduced it: {2} % less work; whole model computed in {0} of 10 steps"
COMPUTED += ", layers below level 1 in {1} of these {0}"
A, FIRST, HIRES = (Ran.FOUND(name) for name in ("a", "first", "hires"))
TOLD = [
    ([A, A, A], ["ToDo found a. (3 times)"]),
    (
        [computed(7, 4, 45), computed(10, 6, 20), computed(9, 5, 32)],
        [f"{COMPUTED.format('7 to 10', '4 to 6', '20 to 45')} (3 times)"],
    ),
    ([above(0.25), above(4.1)], ["ToDo reduced nothing: error 0.25 to 4.1, tolerance 0.16 (2 times)"]),
]


@pytest.mark.parametrize(("lines", "told"), TOLD)
def test_equal_lines_of_a_request_are_told_once(lines, told):
    p = Processing(comments={"of the WebUI": 1})
    for line in lines:
        tell(p, line)
    assert [*p.comments] == ["of the WebUI", *told]


@pytest.mark.parametrize("cells", [("",), ("1", "2")])
def test_the_tiles_of_sd_upscale_are_counted_and_cells_of_a_plot_are_kept_apart(webui, cells):
    """SD upscale runs one ``p`` tile after tile; the cells of an X/Y/Z plot are copies that share its comments."""
    p = ProcessingImg2Img(width=128, height=128)
    for cell in cells:
        of_cell = copy(p)
        override(of_cell, "factor_2", 1, f"Seed {cell}" if cell else "")
        for seed in (1, 2, 3):
            of_cell.seeds = [seed]
            done = webui.generate(of_cell, OURS | {"interval": 1})
    lines = done.comments.splitlines()
    assert len(lines) == len(cells)
    assert all(re.search(r": \d+ % less work; .* \(3 times\)$", line) for line in lines)
