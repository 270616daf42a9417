"""Whole UNet calls between their computed steps, beside a loop that stores and predicts, written on its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.models import noise, snapshot, words
from tests.todo_core.patching.test_prediction import OFF, TIMES, chain, naive, run, runs_by_step, session_of
from todo_core import Settings, patched
from todo_core.estimate import Estimate, Layout
from todo_core.hosts import detect
from todo_core.patching import streams
from todo_core.patching.plan import make_plan, settings_of_pass
from todo_core.patching.session import Session
from todo_core.patching.token_grid import TokenGrid
from todo_core.prediction import History

WHOLE = OFF | {"predict": "whole"}
MODELS = ["ldm_sd1", "ldm_sdxl", "diffusers_sd1", "diffusers_sdxl"]


def by_a_loop(small, latents, interval, first=0):
    """The pass of a UNet whose outputs are stored and predicted by hand."""
    runs, outputs, computed = [], [], []
    for step, (time, latent) in enumerate(zip(TIMES, latents, strict=False)):
        if step < first:
            outputs.append(small(latent, time))
        elif len(computed) < 2 or step - computed[-1] >= interval or step == len(latents) - 1:
            computed.append(step)
            outputs.append(small(latent, time))
            runs.append((time, latent, latent + outputs[-1]))  # naive's have the sum
        else:
            outputs.append(naive(runs[-2:], time, latent).to(latent.dtype) - latent)
    return outputs


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("interval", [2, 3])
def test_a_pass_equals_the_loop(name, interval, request):
    small, latents = request.getfixturevalue(name), chain(8)
    session, before = session_of(small, predict="whole", interval=interval), snapshot(small.unet)
    ours = run(small, session, latents)
    assert snapshot(small.unet) == before
    for mine, theirs in zip(ours, by_a_loop(small, latents, interval), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)
    assert session.record.predicted_in == {step for step in range(2, 7) if (step - 1) % interval}
    assert not torch.equal(ours[2], small(latents[2], TIMES[2])), "a prediction must show"


@pytest.mark.parametrize("name", ["ldm_sd1", "diffusers_sdxl"])
def test_no_module_of_the_model_runs_in_a_predicted_step(name, request):
    small = request.getfixturevalue(name)
    inside = [module for module in small.unet.modules() if module is not small.unet]
    counts = runs_by_step(small, session_of(small, predict="whole", interval=2), inside)
    assert [bool(count) for count in counts] == [True, True, False, True, False, True]


def test_the_line_of_the_record_says_whole_model(ldm_sd1):
    session = session_of(ldm_sd1, predict="whole", interval=2)
    run(ldm_sd1, session, chain(6))
    assert session.record.summary(6) == "whole model computed in 4 of 6 steps"
    assert "whole model predicted in 2 steps" in repr(session.record)


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
        runs = [(TIMES[i], latents[i], latents[i] + call(latents[i], TIMES[i])) for i in (0, 1)]
    assert session.record.predicted_in == {2, 4}
    expected = naive(runs, TIMES[2], latents[2]).float() - latents[2]
    torch.testing.assert_close(outputs[2], expected, atol=2e-5, rtol=1e-4)


def test_what_a_controlnet_adds_begins_anew_where_it_begins_and_ends(diffusers_sd1):
    """Residuals in steps 3 to 5 alone: a step is predicted only after two alike."""
    unet, session, ran = diffusers_sd1.unet, session_of(diffusers_sd1, predict="whole", interval=4), []
    handle = unet.conv_in.register_forward_hook(lambda *_: ran.append(session._step.number))
    try:
        with torch.no_grad():
            for step, latent in enumerate(chain(9)):
                session.attach().begin_step(step, 9, (0, 0))
                more = {"mid_block_additional_residual": torch.zeros(1)} if 3 <= step <= 5 else {}
                unet(latent, TIMES[step], words(2), **more)
                session.detach()
    finally:
        handle.remove()
        session.remove()
    assert ran == [0, 1, 3, 4, 6, 7, 8]


def test_a_forward_of_somebody_else_is_left_alone(ldm_sd1):
    unet = ldm_sd1.unet
    theirs = unet.forward = lambda *args, **kwargs: type(unet).forward(unet, *args, **kwargs)
    try:
        session = session_of(ldm_sd1, predict="whole", interval=2)
        latents = chain(5)
        ours = run(ldm_sd1, session, latents)
        assert vars(unet)["forward"] is theirs
        assert all(torch.equal(a, ldm_sd1(b, t)) for a, b, t in zip(ours, latents, TIMES, strict=False))
        assert session.record.notes == [f"the model runs in every step: another {type(unet).__name__}.forward is on it"]
    finally:
        del unet.forward


def test_the_class_s_forward_on_the_instance_is_no_obstacle_and_stays(ldm_sd1):
    """As sd-webui-controlnet leaves it there after an image."""
    unet = ldm_sd1.unet
    left = unet.forward = unet.forward
    try:
        session = session_of(ldm_sd1, predict="whole", interval=2)
        run(ldm_sd1, session, chain(4))
        assert session.record.predicted_in == {2}
        assert vars(unet)["forward"] == left
        assert not session.record.notes
    finally:
        del unet.forward


def test_an_error_of_ours_leaves_the_call_whole(ldm_sd1, monkeypatch):
    monkeypatch.setattr(History, "predict", lambda *_: 1 / 0)
    errors, latents = [], chain(4)
    session = Session(detect(ldm_sd1.unet), Settings(**WHOLE, interval=2), on_error=errors.append)
    ours = run(ldm_sd1, session, latents)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert torch.equal(ours[2], ldm_sd1(latents[2], TIMES[2]))


def test_an_output_of_an_unknown_kind_is_an_error_of_ours_alone(ldm_sd1, monkeypatch):
    own, errors = type(ldm_sd1.unet).forward, []
    monkeypatch.setattr(type(ldm_sd1.unet), "forward", lambda *args, **kwargs: {"y": own(*args, **kwargs)})
    session = Session(detect(ldm_sd1.unet), Settings(**WHOLE, interval=2), on_error=errors.append)
    (output,) = run(ldm_sd1, session, chain(1))
    assert set(output) == {"y"}
    assert [type(error) for error in errors] == [KeyError]


def test_an_interrupt_inside_the_model_leaves_nothing(ldm_sd1):
    class Interrupted(BaseException):
        pass

    def stop(*_):
        raise Interrupted

    before, latents = snapshot(ldm_sd1.unet), chain(4)
    plain = ldm_sd1(latents[3], TIMES[3])
    session = session_of(ldm_sd1, predict="whole", interval=2)
    for step in range(3):
        session.attach().begin_step(step, 6, (0, 0))
        ldm_sd1(latents[step], TIMES[step])
        session.detach()
    handle = ldm_sd1.unet.out.register_forward_pre_hook(stop)
    session.attach().begin_step(3, 6, (0, 0))
    with pytest.raises(Interrupted):
        ldm_sd1(latents[3], TIMES[3])
    handle.remove()
    session.remove()
    assert snapshot(ldm_sd1.unet) == before
    assert torch.equal(ldm_sd1(latents[3], TIMES[3]), plain)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(ldm_sd1, dtype):
    """The output's dtype is kept where the latent's is another, as under autocast."""
    session, latents, kinds = session_of(ldm_sd1, predict="whole", interval=2), chain(4), set()
    cast = ldm_sd1.unet.out.register_forward_hook(lambda _, args, output: output.to(dtype))
    try:
        exact = by_a_loop(ldm_sd1, latents, 2)[2]
        made = run(ldm_sd1, session, latents)
        kinds = {each.dtype for each in made}
    finally:
        cast.remove()
    assert kinds == {dtype}
    assert (made[2].float() - exact.float()).norm() < 0.05 * exact.float().norm()


def test_auto_keeps_all_tokens_and_a_factor_does_not(ldm_sd1):
    host, size = detect(ldm_sd1.unet), TokenGrid(128, 128)
    auto = make_plan(Settings(predict="whole"), host, size)
    assert auto.levels[0].why == "auto keeps all tokens where whole steps are predicted"
    assert not any(level.reduces for level in auto.levels)
    small = make_plan(Settings(predict="whole"), host, TokenGrid(32, 32))
    assert not small.reduces
    assert "this model was trained at" in small.reason
    assert auto.reduces
    assert auto.deep.is_whole
    assert "whole model, computed in 1 of 2 from 6 steps on, in 1 of 3 from 16 steps on" in str(auto)
    chosen = make_plan(Settings(predict="whole", factor_1=2), host, size)
    assert chosen.levels[0].reduces
    unpredicted = make_plan(Settings(predict="whole", interval=1), host, size)
    assert unpredicted.levels[0].reduces, "auto reduces where nothing is predicted"


def test_the_estimate_counts_a_predicted_step_as_nothing(ldm_sd1):
    host = detect(ldm_sd1.unet)
    found = Estimate.of(Layout.of(host), make_plan(Settings(**WHOLE, interval=2), host, TokenGrid(32, 32)))
    assert found.saved == pytest.approx(0.4)
    assert str(found) == "whole model in 6 of 10 steps, 40 % less work"


def test_auto_predicts_deep_transformers_where_no_pass_is_known(ldm_sd1):
    session = session_of(ldm_sd1, interval=2, predict="auto")
    run(ldm_sd1, session, chain(6))
    assert session.record.summary(6) == "transformers below level 1 computed in 4 of 6 steps"


def test_a_controlnet_is_not_predicted(ldm_sd1):
    """It has a session of its own, with the UNet's settings."""
    host = replace(detect(ldm_sd1.unet), network="ControlNet")
    plan = make_plan(Settings(**WHOLE, interval=2), host, TokenGrid(32, 32))
    assert plan.deep.why == "whole steps of the UNet are predicted"


def test_it_needs_no_room_for_deep_layers(ldm_sd1, monkeypatch):
    monkeypatch.setattr(streams, "free_bytes", lambda _: 0.0)
    session = session_of(ldm_sd1, predict="whole", interval=2)
    run(ldm_sd1, session, chain(4))
    assert session.record.predicted_in == {2}
    assert not session.record.notes


WHY_NOT = "the sampler adds noise"


@pytest.mark.parametrize(
    ("settings", "size", "steps", "why_not", "predict", "has_note"),
    [
        ({}, 128, 8, "", "whole", False),
        ({"interval": 4}, 128, 4, "", "whole", False),
        ({"interval": 4}, 128, 3, "", "deep", False),  # the first two and the last are computed
        ({"end": 0.7}, 128, 8, "", "whole", False),
        ({}, 128, 8, WHY_NOT, "deep", False),
        ({}, 128, 5, "", "deep", False),  # auto predicts nothing
        ({}, 64, 8, "", "deep", False),  # the trained size
        ({}, 160, 8, "", "whole", False),  # 2.5 times as large: factor 2
        ({}, 161, 15, "", "deep", False),  # factor 3, and interval 2
        ({}, 224, 16, "", "whole", False),  # factor 3, and interval 3
        ({"interval": 3}, 224, 8, "", "whole", False),
        ({}, 225, 30, "", "deep", False),  # factor 4
        ({"factor_1": 2}, 128, 8, "", "deep", False),
        ({"factor_2": 1}, 128, 8, "", "deep", False),
        ({"method": "similarity"}, 128, 8, "", "deep", False),
        ({"predict": "deep"}, 128, 8, "", "deep", False),
        ({"predict": "whole", "factor_1": 2}, 256, 8, "", "whole", False),
        ({"predict": "whole"}, 128, 8, WHY_NOT, "deep", True),
        ({"predict": "whole"}, 128, 5, WHY_NOT, "deep", False),
        ({"interval": 1}, 128, 8, "", "deep", False),
        ({"method": "none"}, 128, 8, "", "deep", False),
    ],
)
def test_what_a_pass_predicts(ldm_sd1, settings, size, steps, why_not, predict, has_note):
    host, settings = replace(detect(ldm_sd1.unet), trained_side=64), Settings(**settings)
    chosen, note = settings_of_pass(settings, host, TokenGrid(size, size), steps, why_not)
    assert chosen == replace(settings, predict=predict)
    assert note == (f"{WHY_NOT}: layers below level 1 are predicted" if has_note else "")
