"""Generations on the double: what is reduced, when, what the comments say, and that nothing stays behind."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from copy import copy
from types import SimpleNamespace

import pytest
import torch
from modules import shared
from torch.nn import functional

from tests.models import LatentDiffusion, double, shallow_ldm_unet
from tests.todo_core.webui.webui_double import (
    NOTHING_PREDICTED,
    Processed,
    Processing,
    ProcessingImg2Img,
    Sampler,
    WebUI,
)
from todo_core import SETTINGS, Settings, __version__
from todo_core.hosts import detect
from todo_core.samplers import ADDS_NOISE
from todo_core.webui import compat
from todo_core.webui.generation.infotext import settings_of

OURS = {"enabled": True, "factor_1": 2}


@contextmanager
def lengths_of(model):
    """(tokens, keys) of an attn1 at level 1, one pair a call. A ControlNet has it at its beginning alone."""
    pairs, unet = [], model.model.diffusion_model
    block = (unet.output_blocks[-1] if hasattr(unet, "output_blocks") else unet.input_blocks[1])[1].transformer_blocks[
        0
    ]
    handles = [
        block.register_forward_pre_hook(lambda _, args: pairs.append((args[0].shape[1],))),
        block.attn1.to_k.register_forward_pre_hook(lambda _, args: pairs.append((*pairs.pop(), args[0].shape[1]))),
    ]
    yield pairs
    for handle in handles:
        handle.remove()


def hooks_of(model):
    unet = model.model.diffusion_model
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in unet.modules())


def lengths(webui, p, *args):
    with lengths_of(webui.model) as pairs:
        return pairs, webui.generate(p, *args)


def todo_of(done):
    """What the infotext says of ToDo, without the version, which always stands there."""
    params = dict(done.extra_generation_params)
    assert params.pop("ToDo version") == __version__
    return params


def test_the_window_follows_denoiser_steps_not_unet_calls(webui):
    pairs, _ = lengths(webui, Processing(steps=8, calls_per_step=2, split=True), OURS | {"start": 0.25, "end": 0.75})
    inside = [0.25 <= step / 16 < 0.75 for step in range(15)]
    assert pairs[30:] == [(256, 64 if on else 256) for on in inside for _ in range(2)]


def test_a_method_that_did_not_take_over_stays_out_of_the_infotext(webui):
    ours = OURS | {"end": 0.5, "afterwards": "similarity", "ratio_1": 0.25}
    done = webui.generate(Processing(interrupt_at=1), ours)
    assert todo_of(done) == {"ToDo method": "downsample", "ToDo factor 1": "2", "ToDo end": "0.5"} | NOTHING_PREDICTED


@pytest.mark.parametrize(("factor", "interval", "end"), [("auto", 1, 1), ("auto", "auto", 0.8), (2, "auto", 1)])
def test_what_auto_has_used_is_written_and_pasted_as_auto(webui, factor, interval, end, monkeypatch):
    monkeypatch.setattr("todo_core.patching.plan.WORTH_PREDICTING", 0)
    chosen = {"factor_1": factor, "factor_2": 1, "interval": interval, "tolerance": 1, "end": end}
    monkeypatch.setattr(webui.model, "image_size", 8)
    done = webui.generate(Processing(steps=6), chosen)
    params = todo_of(done)
    assert params["ToDo factor 1"] == ("auto (2)" if factor == "auto" else "2")
    if interval == "auto":
        assert re.fullmatch(r"auto \([345] of 6\)", params["ToDo interval"])
        assert f"below level 1 computed in {params['ToDo interval'][6:-1]} steps" in done.comments
    now = settings_of(done.extra_generation_params)
    assert (now.factor_1, now.interval) == (factor, interval)
    older = settings_of(done.extra_generation_params | {"ToDo version": "0.1.9"})
    assert (older.factor_1, older.interval) == (2, interval), "the error decides anew"
    again = webui.generate(Processing(steps=6), {n: v for n, v in older.to_dict().items() if n != "passes"})
    assert torch.equal(done.images[0], again.images[0])


def test_an_auto_that_predicted_nothing_is_pasted_as_auto(webui):
    """A pass of four steps is too short for it. In an image of an older version it stays 1."""
    done = webui.generate(Processing(steps=4), OURS)
    assert todo_of(done)["ToDo interval"] == "auto (1)"
    assert settings_of(done.extra_generation_params).interval == "auto"
    assert settings_of(done.extra_generation_params | {"ToDo version": "0.1.9"}).interval == 1


def test_an_older_image_has_no_version_and_pastes_as_ever():
    assert settings_of({"ToDo method": "downsample", "ToDo end": "0.7"}) == Settings(end=0.7, interval=1)
    assert settings_of({"ToDo method": "downsample", "ToDo factor 1": "auto"}) == Settings(interval=1)


def test_a_sampler_that_takes_more_steps_than_asked_for_is_told_by_its_calls(webui, monkeypatch):
    """As DPM adaptive."""
    monkeypatch.setattr(Sampler, "calls", lambda self, p: 9)
    assert "in 9 of 9 model calls\n" in webui.generate(Processing(), OURS).comments


def test_a_script_that_runs_the_sampler_by_itself_is_told(webui, monkeypatch):
    """As the img2img alternative test: no pass is announced."""
    monkeypatch.setattr(webui.script, "process_before_every_sampling", lambda *args, **kwargs: None)
    done = webui.generate(ProcessingImg2Img(), OURS)
    assert done.comments == "ToDo reduced nothing: a script runs the sampler by itself\n"
    assert settings_of(webui.params_txt) == Settings(factor_1=2)
    assert "ToDo" not in done.infotexts[0]


def test_the_upscale_button_runs_the_hires_pass_alone(webui):
    pairs, _ = lengths(webui, Processing(only_hires=True), OURS)
    assert pairs == [(256, 64)] * 4


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
            events, webui.events = webui.events, []
            face = ProcessingImg2Img(extra_generation_params=p.extra_generation_params)
            monkeypatch.setattr(webui, "_call", call)
            inner.append(lengths(webui, face, OURS)[0])
            monkeypatch.setattr(webui, "_call", detail)
            webui.script.before_process(copy(p), OURS)
            webui.script.postprocess(copy(p), Processed(p, [], []), OURS)
            webui.events = events
        call(method, p, *args, **kwargs)

    monkeypatch.setattr(webui, "_call", detail)
    monkeypatch.setattr(webui, "tab", tab)
    done = webui.generate(outer, OURS)
    assert inner == [[(64, 64)] * 4] * 2
    assert all("ToDo method: downsample, ToDo factor 1: 2" in text for text in done.infotexts)
    assert done.comments.count("ToDo reduced the") == 1
    assert hooks_of(webui.model) == 0


def test_after_a_failed_decoding_the_next_request_is_reduced(webui, monkeypatch):
    def fail(*args):
        raise MemoryError

    monkeypatch.setattr(webui.script, "postprocess_batch", fail, raising=False)
    with pytest.raises(AssertionError):
        webui.generate(Processing(), OURS)
    monkeypatch.undo()
    shared.state.time_start += 1
    assert lengths(webui, Processing(), OURS)[0][-1] == (256, 64)


def test_the_comment_names_what_was_not_reduced_too(script, monkeypatch):
    webui = WebUI(script, LatentDiffusion(shallow_ldm_unet(num_res_blocks=1), image_size=64))
    attention = webui.model.model.diffusion_model.output_blocks[-1][1].transformer_blocks[0].attn1
    monkeypatch.setattr(
        attention, "__webui_hypertile_params", SimpleNamespace(enabled=True, tile_size=128, depth=0), raising=False
    )
    done = webui.generate(Processing(width=128, height=128), OURS)
    assert "level 1 from 1,024 to 256 tokens (downsample) in 4 of 4 steps" in done.comments
    assert "level 1 is not reduced: HyperTile" in done.comments


def test_a_hires_checkpoint_is_reduced(webui):
    other = LatentDiffusion(shallow_ldm_unet(seed=6), image_size=64)
    with lengths_of(other) as pairs:
        webui.generate(Processing(hr_model=other), OURS)
    assert pairs == [(256, 64)] * 4
    assert hooks_of(other) == hooks_of(webui.model) == 0


def sample_euler(model, x, s_churn=0.0):
    """Named as k-diffusion's."""


def ddim(model, x, eta=0.0):
    """Named as the WebUI's."""


WHOLE = {"predict": "whole", "interval": 2, "factor_1": 1, "factor_2": 1}
DEEP_ALONE = {"ToDo factor 1": "1", "ToDo factor 2": "1", "ToDo interval": "2"}


@pytest.mark.parametrize(
    ("ours", "told", "written"),
    [
        (WHOLE, "hires pass: whole model computed in 5 of 6 steps: 1.2x fewer", DEEP_ALONE | {"ToDo predict": "whole"}),
        (WHOLE | {"predict": "deep"}, "below level 1 computed in 4 of 6 steps: 1.5x fewer", DEEP_ALONE),
        ({"method": "similarity", "ratio_1": 0, "interval": 2}, "below level 1 computed in 4 of 6 steps", DEEP_ALONE),
    ],
    ids=["whole", "deep", "without its method"],
)
def test_what_only_predicted_is_told_and_its_infotext_repeats_the_image(webui, ours, told, written):
    request = {"sampler_function": sample_euler, "steps": 6}
    done = webui.generate(Processing(**request), ours)
    assert told in done.comments
    assert "level 1 from" not in done.comments
    assert todo_of(done) == written
    pasted = settings_of(done.extra_generation_params)
    again = webui.generate(Processing(**request), {k: v for k, v in pasted.to_dict().items() if k != "passes"})
    assert torch.equal(done.images[0], again.images[0])
    assert torch.equal(*webui.first_pass)


@pytest.mark.parametrize(
    "request_",
    [{"sampler_function": ddim, "eta": 0.5}, {"sampler_function": sample_euler, "s_churn": 5.0}, {}],
    ids=["eta", "churn", "unknown"],
)
def test_a_known_sampler_may_add_noise_by_its_options(webui, request_):
    assert webui.generate(Processing(steps=6, **request_), WHOLE).comments.count(ADDS_NOISE) == 1


def test_whole_steps_with_split_prompts(webui):
    done = webui.generate(Processing(sampler_function=sample_euler, steps=6, split=True), WHOLE)
    assert "whole model computed in 5 of 6 steps" in done.comments


def test_in_a_short_pass_nothing_is_predicted_and_factors_act(webui):
    request = {"sampler_function": sample_euler, "steps": 3}
    done = webui.generate(Processing(**request), {"predict": "whole", "factor_1": 2})
    assert todo_of(done) == {"ToDo method": "downsample", "ToDo factor 1": "2"} | NOTHING_PREDICTED
    assert "whole steps need 6 or more steps: nothing is predicted" in done.comments


def test_between_steps_no_hook_is_on_the_model(webui):
    p, hook_counts = Processing(), []
    p.after_step = lambda _: hook_counts.append(hooks_of(webui.model))
    webui.generate(p, OURS | {"passes": "all"})
    assert hook_counts == [0] * 8


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([{"enabled": True, "factor": 2}], ["factor", "2", "factor_1"]),
        ([{"ratio_1": 0.8, "method": "similarity"}], ["ratio_1", "0.8", "0.75"]),
        ([{"factor_1": float("nan")}], ["factor_1", "nan", "from 1 to 8"]),
        ([{"enabled": "perhaps"}], ["enabled", "perhaps", "true or false"]),
        ([True, "upsample"], ["Method: 'upsample' is not possible. Use downsample, similarity, cluster, none."]),
        ([True] * 40, ["args", "40 values", f"at most {len(SETTINGS) + 1}"]),
        # by position it is answered with labels, by name with names
        ([True, "downsample", "keys/values", "x"], ["ToDo is off for this image. Factor, level 1: 'x' is not"]),
        ([{"factor_1": "x"}], ["ToDo is off for this image. factor_1 = 'x' is not possible; allowed: 'auto' or a"]),
    ],
)
def test_invalid_values_are_reported_and_the_image_is_not_reduced(webui, args, words):
    plain = webui.generate(Processing())
    done = webui.generate(Processing(), *args)
    assert torch.equal(plain.images[0], done.images[0])
    assert all(word in done.comments for word in words), done.comments
    assert "ToDo" not in done.infotexts[0]


def test_the_comments_are_in_the_api_answer_too(webui):
    done = webui.generate(Processing(), {"factor_1": 0})
    assert "factor_1" in json.loads(done.js())["comments"]
    assert "comments" not in json.loads(webui.generate(Processing()).js())


def test_an_unsupported_model_gives_the_image_and_a_message(script, caplog):
    unet = shallow_ldm_unet(use_spatial_transformer=False, context_dim=None)
    webui = WebUI(script, LatentDiffusion(unet, image_size=64))
    plain, done = webui.generate(Processing()), webui.generate(Processing(), OURS)
    assert torch.equal(plain.images[0], done.images[0])
    assert "ToDo cannot reduce UNetModel: " in done.comments
    assert "ToDo" not in done.infotexts[0]
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("WARNING", None)]


def test_a_pass_that_is_announced_twice_counts_once(webui, monkeypatch):
    """As Forge does before the hires pass."""
    once = webui.generate(Processing(), OURS)
    call = webui._call

    def twice(method, p, *args, **kwargs):
        for _ in range(1 + (method == "process_before_every_sampling" and p.is_hr_pass)):
            call(method, p, *args, **kwargs)

    monkeypatch.setattr(webui, "_call", twice)
    done = webui.generate(Processing(), OURS)
    assert done.comments == once.comments
    assert done.infotexts == once.infotexts
    assert torch.equal(done.images[0], once.images[0])


@pytest.mark.parametrize("passes", ["hires", "all"])
def test_one_sampler_may_serve_all_passes_and_batches(webui, passes):
    """As with Tiled Diffusion."""
    ours = OURS | {"passes": passes}
    apart = webui.generate(Processing(seeds=[1, 2], n_iter=2), ours)
    done = webui.generate(Processing(one_sampler=True, seeds=[1, 2], n_iter=2), ours)
    assert all(map(torch.equal, done.images, apart.images))
    assert done.infotexts == apart.infotexts
    assert done.comments == apart.comments
    assert not webui.sampler.model_wrap_cfg._forward_hooks


def test_a_placeholder_is_no_loaded_model(webui, monkeypatch):
    from modules import sd_models

    monkeypatch.setattr(sd_models.model_data, "sd_model", webui.model)
    assert compat.loaded_model() is webui.model
    monkeypatch.setattr(sd_models.model_data, "sd_model", object())  # Forge's before its first generation
    assert compat.loaded_model() is None


def test_a_unet_that_never_calls_its_attention_is_reported(webui, monkeypatch):
    unet = webui.model.model.diffusion_model
    monkeypatch.setitem(vars(unet), "forward", lambda x, timesteps, context: x)  # setattr's undo would leave a method
    done = webui.generate(Processing(), OURS)
    assert "its self-attention was not called" in done.comments
    assert "ToDo" not in done.infotexts[0]


def test_a_grid_that_another_extension_makes_too_small_is_told(script):
    """As Kohya's hires fix, which shrinks the tokens inside the UNet."""
    model = LatentDiffusion(shallow_ldm_unet(), image_size=8)
    for transformer in {site.transformer for site in detect(model).sites if site.level == 1}:
        transformer.register_forward_pre_hook(lambda _, args: (functional.avg_pool2d(args[0], 4), *args[1:]))
        transformer.register_forward_hook(lambda _, args, out: functional.interpolate(out, scale_factor=4.0))
    done = WebUI(script, model).generate(Processing(), {"factor_2": 1})
    assert done.comments == (
        "ToDo reduced nothing in the hires pass: a call that was to be reduced has reduced nothing: "
        "this model was trained at 64 x 64\n"
    )


@pytest.mark.parametrize(
    ("p", "ours", "why"),
    [
        (Processing(enable_hr=False), OURS, "hires fix is off"),
        (Processing(), {"method": "none"}, "the method is none"),
        (Processing(), {"factor_1": 1, "factor_2": 1, "interval": 1}, "ToDo found nothing to reduce at 128 x 128: "),
        (Processing(only_hires=True), OURS | {"passes": "first"}, "the first pass did not run"),
    ],
)
def test_a_setting_without_effect_says_why_and_stays_out_of_the_infotext(webui, p, ours, why):
    done = webui.generate(p, ours)
    assert why in done.comments, done.comments
    assert "ToDo" not in done.infotexts[0]


def test_a_level_that_was_not_reduced_stays_out_of_the_infotext(script):
    shallow = LatentDiffusion(shallow_ldm_unet(attention_resolutions=[1], channel_mult=[1, 1, 2]), image_size=64)
    done = WebUI(script, shallow).generate(Processing(), OURS | {"factor_2": 2})
    assert "ToDo factor 1" in done.extra_generation_params
    assert "ToDo factor 2" not in done.extra_generation_params


@pytest.mark.parametrize("method", ["downsample", "similarity", "cluster"])
@pytest.mark.parametrize("more", [{"target": "all"}, {"interval": 2}], ids=["all", "interval"])
def test_an_image_is_the_same_alone_and_in_any_batch(script, method, more, monkeypatch):
    # in double precision: kernels round by batch size, and in single precision that can put a token in another group
    monkeypatch.setattr("ldm.modules.attention._ATTN_PRECISION", "as it comes")
    webui = WebUI(script, LatentDiffusion(double(shallow_ldm_unet()), image_size=64))
    ours = OURS | {"method": method, **more}
    small = {"width": 32, "height": 64, "steps": 4 if "interval" in more else 2}
    batch = webui.generate(Processing(seeds=[1, 2, 3, 4], batch_size=2, n_iter=2, **small), ours).images
    split = webui.generate(Processing(seeds=[1, 2, 3, 4], batch_size=4, split=True, **small), ours).images
    for seed in (2, 3):  # the last of a batch and the first of the next
        alone = webui.generate(Processing(seeds=[seed], **small), ours).images[0]
        for images in (batch, split):
            torch.testing.assert_close(images[seed - 1], alone, atol=1e-6, rtol=1e-6)


def test_every_row_of_an_and_prompt_belongs_to_its_image():
    parts = [[1, 1], [1], [1, 1, 1]]
    sampler = SimpleNamespace(sampler_extra_args={"cond": SimpleNamespace(batch=parts)})
    denoiser = SimpleNamespace(p=SimpleNamespace(seeds=[7, 8, 9]), sampler=sampler)
    params = SimpleNamespace(x=torch.zeros(9, 4, 1, 1), denoiser=denoiser)
    assert compat.row_seeds(params) == [7, 7, 8, 9, 9, 9, 7, 8, 9]


def test_and_prompts_are_reduced_alike_in_any_batch(webui):
    ours = OURS | {"method": "similarity"}
    both = webui.generate(Processing(seeds=[1, 2], batch_size=2, subprompts=2), ours).images
    alone = webui.generate(Processing(seeds=[2], subprompts=2), ours).images[0]
    torch.testing.assert_close(both[1], alone, atol=2e-4, rtol=1e-3)


def test_the_second_batch_does_not_inherit_the_infotext_of_the_first(webui):
    p, texts = Processing(seeds=[1, 2], n_iter=2), []
    p.after_step = lambda step: texts.append(dict(p.extra_generation_params))
    webui.generate(p, OURS)
    assert texts[0] == texts[8] == {}


@pytest.mark.parametrize(
    ("sampler", "steps", "total", "calls"),
    [("sample_euler", 8, 8, 8), ("sample_heun", 8, 16, 15), ("unipc", 8, 8, 7), ("ddim", 8, 8, 6), ("ddim", 1, 1, 1)],
)
def test_calls_that_a_sampler_leaves_out_are_not_expected(sampler, steps, total, calls):
    """Else the last call, which must be computed, could be predicted. Counted on the real WebUI."""
    func = SimpleNamespace(__name__=sampler)
    denoiser = SimpleNamespace(steps=steps, total_steps=total, sampler=SimpleNamespace(func=func))
    assert compat.calls_of(SimpleNamespace(denoiser=denoiser)) == calls
