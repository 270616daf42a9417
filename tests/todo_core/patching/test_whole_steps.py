"""Whole UNet calls between their computed steps, beside a loop that stores and predicts, written on its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.models import full_layout, noise, snapshot, words
from tests.todo_core.patching import test_prediction as below_level_1
from tests.todo_core.patching.test_prediction import OFF, TIMES, chain, deep, naive, run, session_of
from todo_core import Settings, patched
from todo_core.estimate import Estimate
from todo_core.hosts import detect
from todo_core.patching import memory
from todo_core.patching.plan import HELD, Pass, make_plan
from todo_core.patching.session import Session
from todo_core.prediction import History
from todo_core.samplers import ADDS_NOISE
from todo_core.token_grid import TokenGrid

WHOLE = OFF | {"predict": "whole"}


def by_a_loop(small, latents, interval):
    """The pass of a UNet whose outputs are stored and predicted by hand."""
    runs, outputs, computed = [], [], []
    for step, (time, latent) in enumerate(zip(TIMES, latents, strict=False)):
        if len(computed) < 3 or step - computed[-1] >= interval or step == len(latents) - 1:
            computed.append(step)
            outputs.append(small(latent, time))
            runs.append((time, latent, latent + outputs[-1]))  # naive's have the sum
        else:
            outputs.append(naive(runs[-2:], time, latent).to(latent.dtype) - latent)
    return outputs


# both kinds -----------------------------------------------------------------------------------------------------------

EACH_KIND = [("deep", 4, {2, 3, 4, 6}), ("whole", 3, {3, 4, 6})]


@pytest.mark.parametrize(
    ("name", "predict", "interval", "predicted"),
    [(name, *kind) for name in below_level_1.TRANSFORMER for kind in EACH_KIND]
    + [("ldm_sd1", "deep", 2, {2, 4, 6}), ("ldm_sd1", "whole", 2, {3, 5})],
)
def test_a_pass_equals_the_loop(name, predict, interval, predicted, request):
    small, latents = request.getfixturevalue(name), chain(8)
    session, before = session_of(small, predict=predict, interval=interval), snapshot(small.unet)
    ours = run(small, session, latents)
    assert snapshot(small.unet) == before
    if predict == "whole":
        theirs = by_a_loop(small, latents, interval)
    else:
        theirs = below_level_1.by_a_loop(small, deep(small, name), latents, interval)
    for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(mine, other, atol=2e-5, rtol=1e-4, msg=lambda m, step=step: f"step {step}: {m}")
    assert session.record.predicted_in == predicted
    assert not torch.equal(ours[3], small(latents[3], TIMES[3])) or 3 not in predicted, "a prediction must show"


@pytest.mark.parametrize("name", ["ldm_sd1", "diffusers_sdxl"])
@pytest.mark.parametrize(("predict", "runs"), [("deep", [1, 1, 0, 1, 0, 1]), ("whole", [1, 1, 1, 0, 1, 1])])
def test_what_is_predicted_does_not_run(name, predict, runs, request):
    small, ran, counts = request.getfixturevalue(name), [], []
    roots = deep(small, name) if predict == "deep" else [small.unet]
    inside = [module for root in roots for module in root.modules() if module is not root]
    handles = [m.register_forward_hook(lambda *_: ran.append(1)) for m in inside]
    session = session_of(small, predict=predict, interval=2)
    for step, latent in enumerate(chain(6)):
        ran.clear()
        session.attach().begin_step(step, 6, (0, 0))
        small(latent, TIMES[step])
        session.detach()
        counts.append(len(ran))
    for handle in handles:
        handle.remove()
    assert counts[0] > len(roots)
    assert counts == [counts[0] * runs_in_step for runs_in_step in runs]


@pytest.mark.parametrize(("predict", "step"), [("deep", 2), ("whole", 3)])
def test_an_error_in_a_prediction_costs_no_image(ldm_sd1, predict, step, monkeypatch):
    errors, latents = [], chain(5)
    monkeypatch.setattr(History, "predict", lambda *_: 1 / 0)
    settings = Settings(**OFF, predict=predict, interval=2)
    ours = run(ldm_sd1, Session(detect(ldm_sd1.unet), settings, on_error=errors.append), latents)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert torch.equal(ours[step], ldm_sd1(latents[step], TIMES[step]))


@pytest.mark.parametrize(("predict", "others"), [("deep", {2}), ("whole", set())])
def test_a_forward_of_somebody_else_is_left_alone(ldm_sd1, predict, others):
    module = ldm_sd1.unet if predict == "whole" else deep(ldm_sd1, "ldm_sd1")[0]
    session, ran = session_of(ldm_sd1, predict=predict, interval=2), []

    def theirs(*args, **kwargs):
        ran.append(1)
        return type(module).forward(module, *args, **kwargs)

    module.forward = theirs
    try:
        run(ldm_sd1, session, chain(5))
        assert vars(module)["forward"] is theirs
    finally:
        del module.forward
    assert len(ran) == 5
    assert session.record.predicted_in == others
    what = "the model" if predict == "whole" else "a deep transformer"
    assert session.record.notes == [f"{what} runs in every step: another {type(module).__name__}.forward is on it"]


# whole steps ----------------------------------------------------------------------------------------------------------


def test_the_line_of_the_record_says_whole_model(ldm_sd1):
    session = session_of(ldm_sd1, predict="whole", interval=2)
    run(ldm_sd1, session, chain(6))
    assert session.record.summary(6) == "whole model computed in 5 of 6 steps: 1.2x fewer"
    assert "whole model predicted in 1 steps" in repr(session.record)


@pytest.mark.parametrize("kind", ["object", "tuple"])
def test_diffusers_gets_the_kind_of_output_that_it_asks_for(diffusers_sd1, kind):
    unet, outputs = diffusers_sd1.unet, []
    with torch.no_grad(), patched(unet, **WHOLE, interval=2) as session:
        for time, latent in zip(TIMES[:5], chain(5), strict=True):
            outputs.append(unet(latent, time, words(2), return_dict=kind == "object"))
    assert session.record.predicted_in
    assert {type(output) for output in outputs} == {type(outputs[0])}
    assert all((o.sample if kind == "object" else o[0]).shape == (2, 4, 16, 16) for o in outputs)


class Inpainting(torch.nn.Module):
    """Reads nine channels: the noisy latent, a mask and the masked image."""

    def __init__(self, unet):
        super().__init__()
        self.unet = unet

    def forward(self, latent, *args):
        return self.unet(latent[:, :4], *args) * latent[:, 4:5].sigmoid()


def test_an_inpainting_model_is_predicted_from_its_noisy_channels(ldm_sd1):
    """Mask and masked image, which never change, say nothing of the output's line."""
    model, latents = Inpainting(ldm_sd1.unet).eval(), chain(6)
    host = replace(detect(ldm_sd1.unet), unet=model)
    session, rest, outputs = Session(host, Settings(**WHOLE, interval=2)), noise(2, 5, 16, 16, seed=7), []

    def call(latent, time):
        return model(torch.cat([latent, rest], 1), torch.full((2,), float(time)), words(2))

    with torch.no_grad():
        for step, latent in enumerate(latents):
            session.attach().begin_step(step, 6, (0, 0))
            outputs.append(call(latent, TIMES[step]))
            session.remove() if step == 5 else session.detach()
        runs = [(TIMES[i], latents[i], latents[i] + call(latents[i], TIMES[i])) for i in (1, 2)]
    assert session.record.predicted_in == {3}
    expected = naive(runs, TIMES[3], latents[3]).float() - latents[3]
    torch.testing.assert_close(outputs[3], expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("predict", ["deep", "whole"])
def test_a_cache_inside_the_model_s_call_is_neither_counted_nor_learned(ldm_sd1, predict, monkeypatch):
    """EasyCache of ComfyUI 0.33 answers in the place of the UNet's own code, inside its forward: here in step 4."""
    unet, session, cached = ldm_sd1.unet, session_of(ldm_sd1, predict=predict, interval=2), [False]
    own = type(unet).forward
    monkeypatch.setattr(type(unet), "forward", lambda self, *a, **k: a[0] * 50 if cached[0] else own(self, *a, **k))
    outputs, latents = [], chain(9)
    for step, latent in enumerate(latents):
        cached[0] = step == 4
        session.attach().begin_step(step, 9, (0, 0))
        outputs.append(ldm_sd1(latent, TIMES[step]))
        session.detach()
    record = session.record
    session.remove()
    assert torch.equal(outputs[4], latents[4] * 50)
    assert 4 not in record.predicted_calls | record.computed_calls
    assert not record.notes
    assert record.predicted_in
    for step in record.predicted_in:
        assert outputs[step].abs().max() < 3 * outputs[0].abs().max(), "its answer was learned"


class WithVariance(torch.nn.Module):
    """Predicts the noise and, as guided diffusion's UNets, its variance."""

    def __init__(self, unet):
        super().__init__()
        self.unet = unet

    def forward(self, latent, *args):
        made = self.unet(latent, *args)
        return torch.cat([made, made.square()], 1)


def test_an_output_may_have_more_channels_than_the_latent(ldm_sd1):
    model, latents = WithVariance(ldm_sd1.unet).eval(), chain(6)
    session, outputs = Session(replace(detect(ldm_sd1.unet), unet=model), Settings(**WHOLE, interval=2)), []
    with torch.no_grad():
        for step, latent in enumerate(latents):
            session.attach().begin_step(step, 6, (0, 0))
            outputs.append(model(latent, torch.full((2,), float(TIMES[step])), words(2)))
            session.detach()
    session.remove()
    assert session.record.predicted_in == {3}
    runs = [(TIMES[i], latents[i], latents[i] + outputs[i][:, :4]) for i in (1, 2)]
    expected = naive(runs, TIMES[3], latents[3]).float() - latents[3]
    torch.testing.assert_close(outputs[3][:, :4], expected, atol=2e-5, rtol=1e-4)
    assert outputs[3].shape == (2, 8, 16, 16)


def test_a_controlnet_that_runs_in_predicted_steps_is_told(diffusers_sd1):
    session = session_of(diffusers_sd1, predict="whole", interval=2)
    with torch.no_grad():
        for step, latent in enumerate(chain(6)):
            session.attach().begin_step(step, 6, (0, 0))
            more = {"mid_block_additional_residual": torch.ones(1), "down_block_additional_residuals": None}
            diffusers_sd1.unet(latent, TIMES[step], words(2), **more)
            session.detach()
    session.remove()
    assert session.record.predicted_in == {3}
    assert session.record.notes == ["a ControlNet runs in predicted steps too"]


def test_what_a_controlnet_adds_begins_anew_where_it_begins_and_ends(diffusers_sd1):
    """Residuals in steps 4 to 7 alone: a step is predicted only after three alike."""
    unet, session, ran = diffusers_sd1.unet, session_of(diffusers_sd1, predict="whole", interval=4), []
    handle = unet.conv_in.register_forward_hook(lambda *_: ran.append(session._step.number))
    try:
        with torch.no_grad():
            for step, latent in enumerate(chain(10)):
                session.attach().begin_step(step, 10, (0, 0))
                more = {"mid_block_additional_residual": torch.zeros(1)} if 4 <= step <= 7 else {}
                unet(latent, TIMES[step], words(2), **more)
                session.detach()
    finally:
        handle.remove()
        session.remove()
    assert ran == [0, 1, 2, 4, 5, 6, 8, 9]


def test_with_a_forward_of_somebody_else_deep_transformers_are_predicted(ldm_sd1):
    unet = ldm_sd1.unet
    theirs = unet.forward = lambda *args, **kwargs: type(unet).forward(unet, *args, **kwargs)
    try:
        session = Session(detect(unet), Settings(**WHOLE, interval=2))
        run(ldm_sd1, session, chain(6))
        assert vars(unet)["forward"] is theirs
        assert session.record.summary(6) == (
            "transformers below level 1 computed in 4 of 6 steps: 1.5x fewer; "
            "another forward is on the model: layers below level 1 are predicted"
        )
    finally:
        del unet.forward


def test_the_class_s_forward_on_the_instance_is_no_obstacle_and_stays(ldm_sd1):
    """As sd-webui-controlnet leaves it there after an image."""
    unet = ldm_sd1.unet
    left = unet.forward = unet.forward
    try:
        session = session_of(ldm_sd1, predict="whole", interval=2)
        run(ldm_sd1, session, chain(5))
        assert session.record.predicted_in == {3}
        assert vars(unet)["forward"] == left
        assert not session.record.notes
    finally:
        del unet.forward


def test_an_output_of_an_unknown_kind_is_an_error_of_ours_alone(ldm_sd1, monkeypatch):
    own, errors = type(ldm_sd1.unet).forward, []
    monkeypatch.setattr(type(ldm_sd1.unet), "forward", lambda *args, **kwargs: {"y": own(*args, **kwargs)})
    session = Session(detect(ldm_sd1.unet), Settings(**WHOLE, interval=2), on_error=errors.append)
    output, *_ = run(ldm_sd1, session, chain(5))
    assert set(output) == {"y"}
    assert {type(error) for error in errors} == {KeyError}


def test_an_interrupt_inside_the_model_leaves_nothing(ldm_sd1):
    class Interrupted(BaseException):
        pass

    def stop(*_):
        raise Interrupted

    before, latents = snapshot(ldm_sd1.unet), chain(5)
    plain = ldm_sd1(latents[4], TIMES[4])
    session = session_of(ldm_sd1, predict="whole", interval=2)
    for step in range(4):
        session.attach().begin_step(step, 6, (0, 0))
        ldm_sd1(latents[step], TIMES[step])
        session.detach()
    handle = ldm_sd1.unet.out.register_forward_pre_hook(stop)
    session.attach().begin_step(4, 6, (0, 0))
    with pytest.raises(Interrupted):
        ldm_sd1(latents[4], TIMES[4])
    handle.remove()
    session.remove()
    assert snapshot(ldm_sd1.unet) == before
    assert torch.equal(ldm_sd1(latents[4], TIMES[4]), plain)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(ldm_sd1, dtype):
    """The output's dtype is kept where the latent's is another, as under autocast."""
    session, latents, kinds = session_of(ldm_sd1, predict="whole", interval=2), chain(5), set()
    cast = ldm_sd1.unet.out.register_forward_hook(lambda _, args, output: output.to(dtype))
    try:
        exact = by_a_loop(ldm_sd1, latents, 2)[3]
        made = run(ldm_sd1, session, latents)
        kinds = {each.dtype for each in made}
    finally:
        cast.remove()
    assert kinds == {dtype}
    assert (made[3].float() - exact.float()).norm() < 0.05 * exact.float().norm()


@pytest.mark.parametrize(("factor", "tokens"), [("auto", 64), (1, 256), (4, 16)])
def test_factors_act_in_the_computed_steps_as_they_are_set(ldm_sd1, factor, tokens):
    """16 x 16 tokens, twice as many a side as this model was trained at."""
    host, seen = replace(detect(ldm_sd1.unet), trained_side=8), []
    session = Session(host, Settings(predict="whole", interval=2, factor_1=factor))
    hook = next(iter(ldm_sd1.attentions(1).values())).to_k.register_forward_hook(
        lambda _, args, keys: seen.append((session._step.number, keys.shape[1]))
    )
    try:
        run(ldm_sd1, session, chain(6))
    finally:
        hook.remove()
    assert seen == [(step, tokens) for step in (0, 1, 2, 4, 5)]


def test_the_estimate_counts_a_predicted_step_as_nothing(ldm_sd1):
    host = detect(ldm_sd1.unet)
    found = Estimate.of(host, make_plan(Settings(**WHOLE, interval=2), host, Pass(TokenGrid(32, 32), 10)))
    assert found.saved == pytest.approx(0.3)
    assert len(found.computed) == 7


def test_a_controlnet_is_not_predicted(ldm_sd1):
    """It has a session of its own, with the UNet's settings."""
    host = replace(detect(ldm_sd1.unet), network="ControlNet")
    plan = make_plan(Settings(**WHOLE, interval=2), host, Pass(TokenGrid(32, 32), 10))
    assert plan.deep.why == "whole steps of the UNet are predicted"


def test_it_needs_no_room_for_deep_layers(ldm_sd1, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda _: 0.0)
    session = session_of(ldm_sd1, predict="whole", interval=2)
    run(ldm_sd1, session, chain(5))
    assert session.record.predicted_in == {3}
    assert not session.record.notes


TOO_SHORT = "whole steps need {} or more steps"
NO_STEP = "too few steps are between Start and End to predict one"


@pytest.mark.parametrize(
    ("settings", "steps", "facts", "kind", "note"),
    [
        ({}, 16, {}, "whole", ""),
        ({"interval": 4}, 5, {}, "whole", ""),
        ({"factor_1": 2}, 16, {}, "whole", ""),
        ({"method": "similarity"}, 16, {}, "whole", ""),
        ({"end": 0.25}, 16, {}, "whole", ""),
        ({"end": 0.15}, 16, {}, "deep", NO_STEP),
        ({}, 5, {}, "deep", TOO_SHORT.format(6)),
        ({"interval": 4}, 4, {}, "deep", TOO_SHORT.format(5)),
        ({}, 16, {"adds_noise": True}, "deep", ADDS_NOISE),
        ({"interval": 2}, None, {}, "whole", ""),
        ({"interval": 2}, None, {"adds_noise": True, "holder": "pipeline"}, "deep", HELD["pipeline"]),
        ({"interval": 1}, 16, {"adds_noise": True}, "deep", ""),
    ],
)
def test_where_whole_steps_cannot_be_deep_transformers_are_predicted_and_a_note_says_why(
    settings, steps, facts, kind, note
):
    settings = Settings(**{"predict": "whole"} | settings)
    plan = make_plan(settings, detect(full_layout("SDXL")), Pass(TokenGrid(256, 256), steps, **facts))
    assert plan.settings is settings
    assert plan.deep.kind == kind
    assert plan.levels[0].reduces == (settings.method != "none")
    instead = "layers below level 1 are predicted" if plan.deep.predicts else "nothing is predicted"
    assert plan.deep.note == (f"{note}: {instead}" if note else None)


def test_the_note_says_so_where_deep_transformers_are_not_predicted_either():
    """In SD 1.5 they do little of the work. The tokens are reduced all the same."""
    facts = Pass(TokenGrid(128, 128), 20, adds_noise=True)
    plan = make_plan(Settings(predict="whole"), detect(full_layout("SD 1.5")), facts)
    assert plan.deep.note == f"{ADDS_NOISE}: nothing is predicted"
    assert plan.levels[0].reduces
