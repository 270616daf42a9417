"""Whole UNet calls between their computed steps, beside a loop that stores and predicts, written on its own."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from tests.models import noise, snapshot, words
from tests.todo_core.patching import test_prediction as below_level_1
from tests.todo_core.patching.test_prediction import OFF, TIMES, chain, naive, predicted_in, run, session_of, weights_of
from tests.todo_core.test_pacing import naive_cost
from todo_core import Settings, patched
from todo_core.course import Course, Scale
from todo_core.hosts import detect
from todo_core.patching.driver import Driver
from todo_core.patching.facts import HELD, Pass
from todo_core.patching.session import Session
from todo_core.patching.steps import rows_of
from todo_core.patching.time.memory import CallMemory
from todo_core.patching.time.pacing import Budget
from todo_core.patching.time.prediction import Hold, Line, Moment
from todo_core.token_grid import TokenGrid

WHOLE = OFF | {"predict": "whole"}
GUIDANCE = 3.0


def by_a_loop(small, latents, gap, tolerance=None, times=TIMES):
    """The outputs of a UNet that are stored and predicted by hand, and the steps in which it ran."""
    runs, outputs, computed, budget = [], [], [], Budget()
    for step, (time, latent) in enumerate(zip(times, latents, strict=False)):
        predicted = naive(runs[-2:], time, latent).to(latent.dtype) - latent if len(runs) > 1 else None
        if len(computed) >= 3 and step - computed[-1] < gap and step < len(latents) - 1:
            outputs.append(predicted)
            budget.predict(step)
            continue
        outputs.append(small(latent, time))
        if tolerance and predicted is not None:
            error, output = ([y.numpy()] for y in (predicted - outputs[-1], outputs[-1]))
            spacings = [after - before for before, after in pairwise([*computed[-2:], step])]
            cost = naive_cost(error, output, (GUIDANCE, 1 - GUIDANCE), (1, *spacings)[-2:])
            gap = budget.gap(cost, tolerance, weights_of(times, len(latents)), [*computed, step], Line.growth)
        computed.append(step)
        runs.append((time, latent, latent + outputs[-1]))  # naive's have the sum
    return outputs, computed


FOUR, THREE = {"predict": "deep", "interval": 4}, {"predict": "whole", "interval": 3}
DEEP_2, WHOLE_2 = {"predict": "deep", "interval": 2}, {"predict": "whole", "interval": 2}
REDUCED = {"factor_1": 2, "phase": "fixed"}
MODELS = [f"{library}_{layout}" for library in ("ldm", "diffusers") for layout in ("sd1", "sdxl")]
CASES = [*((name, FOUR, {2, 3, 4, 6}) for name in MODELS), ("diffusers_sdxl", THREE, {3, 4, 6})]
CASES += [("ldm_sd1", DEEP_2, {2, 4, 6}), ("ldm_sd1", WHOLE_2, {3, 5})]
CASES += [("ldm_sd1", DEEP_2 | REDUCED, {2, 4, 6}), ("ldm_sd1", WHOLE_2 | REDUCED, {3, 5})]


@pytest.mark.parametrize(("name", "settings", "predicted"), CASES)
def test_a_pass_equals_the_loop(name, settings, predicted, request):
    small, latents = request.getfixturevalue(name), [latent[..., :8] for latent in chain(8)]
    session, before = session_of(small, **settings), snapshot(small.unet)
    ours = run(small, session, latents)
    assert snapshot(small.unet) == before
    with patched(small.unet, **(OFF | settings | {"interval": 1})):
        if settings["predict"] == "whole":
            theirs, _ = by_a_loop(small, latents, settings["interval"])
        else:
            transformers = detect(small.unet).deep_transformers
            theirs = below_level_1.by_a_loop(small, transformers, latents, settings["interval"])
    for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(mine, other, atol=2e-5, rtol=1e-4, msg=lambda m, step=step: f"step {step}: {m}")
    assert predicted_in(session) == predicted
    assert not torch.equal(ours[3], small(latents[3], TIMES[3])) or 3 not in predicted, "a prediction must show"


@pytest.mark.parametrize("way", ["line", "line, another prompt", "held, v", "held, noise"])
def test_the_next_computed_step_makes_up_what_predictions_have_missed(shallow, way):
    """Under noise the denoised image is held. Of v, it is alpha x - sigma v; of noise, (x - sigma e) / alpha."""
    levels, latents, runs, computed, missed = [1.5, 1.2, 0.9, 0.6, 0.4, 0.2, 0.1, 0.0], chain(7), [], [], []
    moves = torch.rand(8, 7, generator=torch.Generator().manual_seed(1)).tolist()
    holds, share, predicted = (True, 0.6, {2, 3, 5}) if "held" in way else (False, 1.0, {3, 4})
    lengths = [(1 + level**2) ** (-0.5 if "v" in way else 0.5) for level in levels]
    units = [level * (length if "v" in way else 1) for level, length in zip(levels, lengths, strict=True)]
    scales = tuple(Scale.of(level, predicts_v="v" in way) for level in levels[:-1])
    course = replace(Course.of_noise(levels, holds=holds), scales=scales, moves=tuple(map(tuple, moves)))
    driver = Driver("a pass", Settings(**WHOLE, interval=3))
    driver.use_model(detect(shallow.unet), (), Pass(TokenGrid(16, 16), 7, course))
    for step, (x, time, level) in enumerate(zip(latents, TIMES, levels, strict=False)):
        text = words(2, seed=9 if "prompt" in way and step == 5 else 0)
        driver.begin_step(step, 7, rows_of([1, 2]), time=level)
        ours = shallow(x, time, text)
        driver.end_step()
        guess = (lengths[step] * x - runs[-1]) / units[step] if holds and runs else None
        if not holds and len(runs) > 1:
            guess = (naive(runs[-2:], time, x) - x).float()
        if step in predicted:
            torch.testing.assert_close(ours, guess, atol=2e-5, rtol=1e-4)
            missed.append(step)
            continue
        own = output = shallow(x, time, text)
        if missed and "prompt" not in way:
            last, spacing = computed[-1], computed[-1] - computed[-2]
            shares = {}
            for each in [*missed, step]:
                after = each - last
                shares[each] = after**0.5 if holds else after * (after + spacing)
            factor = sum(moves[step + 1][each] * shares[each] / shares[step] for each in missed) / moves[step + 1][step]
            own = output - share * factor * (guess - output)
            assert (own - output).abs().max() > 0.01, "what is made up must show"
        torch.testing.assert_close(ours, own, atol=2e-5, rtol=1e-4, msg=lambda m, step=step: f"step {step}: {m}")
        runs.append(lengths[step] * x - units[step] * output if holds else (time, x, x + output))
        computed, missed = [*computed, step], []
    assert not driver.error
    assert driver.record.whole.predicted_in == predicted


@pytest.mark.parametrize(
    ("way", "layers", "is_made_up"), [(Line, False, True), (Line, True, False), (Hold, True, True)]
)
def test_beside_predicted_layers_nothing_is_made_up_after_a_line(way, layers, is_made_up):
    memory, module, (first, second, third) = CallMemory({}), torch.nn.Identity(), chain(3)
    memory.parts["whole"].way = way
    for time, x in ((900.0, first), (800.0, second)):
        memory.now = Moment(torch.tensor(time), Scale.of(1.0, predicts_v=True))
        assert memory.learn("whole", module, x, x, x) is None
    memory.parts["whole"].makes_up, memory.parts["deep"].predicts = 1.0, layers
    memory.now = Moment(torch.tensor(700.0), Scale.of(1.0, predicts_v=True))
    assert (memory.learn("whole", module, third, third, third) is not None) == is_made_up


def test_the_window_is_that_of_tokens(shallow):
    session = session_of(shallow, factor_1=2, interval=2, start=0.25, end=0.75)
    run(shallow, session, chain(8))
    assert session.record.ran_in.popitem()[1] == {2, 3, 4, 5}
    assert predicted_in(session) == {2, 4, 6}


@pytest.mark.parametrize(("predict", "step"), [("deep", 2), ("whole", 3)])
def test_an_error_in_a_prediction_costs_no_image(shallow, predict, step, monkeypatch):
    errors, latents = [], chain(5)
    monkeypatch.setattr(Line, "predict", lambda *_: 1 / 0)
    settings = Settings(**OFF, predict=predict, interval=2)
    ours = run(shallow, Session(detect(shallow.unet), settings, on_error=errors.append), latents)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert torch.equal(ours[step], shallow(latents[step], TIMES[step]))


@pytest.mark.parametrize(
    ("predict", "is_own", "predicted"), [("deep", False, {2}), ("whole", False, set()), ("whole", True, {3})]
)
def test_a_forward_of_somebody_else_stays_and_that_of_the_class_is_no_obstacle(shallow, predict, is_own, predicted):
    """sd-webui-controlnet leaves the class's on the instance after an image."""
    module = shallow.unet if predict == "whole" else detect(shallow.unet).deep_transformers[0]
    session, own = session_of(shallow, predict=predict, interval=2), module.forward
    theirs = module.forward = own if is_own else lambda *args, **kwargs: own(*args, **kwargs)
    try:
        run(shallow, session, chain(5))
        assert vars(module)["forward"] is theirs
    finally:
        del module.forward
    assert predicted_in(session) == predicted
    what = "the model" if predict == "whole" else "a deep transformer"
    note = f"{what} runs in every step: another {type(module).__name__}.forward is on it"
    assert session.record.notes == ([] if is_own else [note])


@pytest.mark.parametrize(("numbers", "predicted"), [({"calls": 0}, set()), ({"parent": None}, {3})])
@pytest.mark.parametrize("is_patched", [True, False])
def test_where_another_program_s_layers_count_their_calls_each_runs(shallow, is_patched, numbers, predicted):
    """As HiDiffusion's, which change the image by that count. Those of tomesd have no numbers."""
    layer = shallow.unet.input_blocks[0]
    own = type(layer)

    def replace_class():
        class Other(own):
            vars().update(numbers)

        layer.__class__ = Other

    settings = OFF | {"predict": "whole", "interval": 2}
    try:
        if not is_patched:
            replace_class()
        with patched(shallow.unet, **settings) as session:
            if is_patched:
                replace_class()
            for time, latent in zip(TIMES, chain(5), strict=False):
                shallow(latent, time)
    finally:
        layer.__class__ = own
    assert session.record.whole.predicted_in == predicted
    assert bool(predicted) != (f"{HELD['counter']}: layers below level 1 are predicted" in session.record.notes)


AUTO_TIMES = range(950, 10, -47)  # 20 steps
CALM, ROUGH = 0.02, 0.3  # how much of a latent is new in a step


@pytest.mark.parametrize(
    ("drifts", "tolerance"),
    [([CALM] * 8 + [ROUGH] * 5 + [CALM] * 6, 0.5), ([ROUGH] * 5 + [CALM] * 8 + [0.2] * 6, 1.0)],
)
def test_auto_computes_the_steps_that_the_measured_errors_ask_for(shallow, drifts, tolerance):
    latents = [noise(2, 4, 8, 8, seed=3)]
    for i, drift in enumerate(drifts, 1):
        latents.append((1 - drift) * latents[-1] + drift * noise(2, 4, 8, 8, seed=3 + i))
    session = session_of(shallow, 8, predict="whole", interval="auto", tolerance=tolerance)
    theirs, computed = by_a_loop(shallow, latents, 1, tolerance, AUTO_TIMES)
    ours = run(shallow, session, latents, times=AUTO_TIMES, guidance=GUIDANCE)
    assert len({after - before for before, after in pairwise(computed[2:])}) > 2
    assert sorted(session.record.whole.computed_calls) == computed
    assert predicted_in(session) == set(range(20)) - set(computed)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("predict", ["deep", "whole"])
def test_a_cache_inside_the_model_s_call_is_neither_counted_nor_learned(shallow, predict, monkeypatch):
    """EasyCache of ComfyUI 0.33 answers in the place of the UNet's own code, inside its forward: here in step 4."""
    unet, session, cached = shallow.unet, session_of(shallow, predict=predict, interval=2), [False]
    own = type(unet).forward
    monkeypatch.setattr(type(unet), "forward", lambda self, *a, **k: a[0] * 50 if cached[0] else own(self, *a, **k))
    latents, record = chain(9), session.record.parts[predict]

    def call(step, latent):
        cached[0] = step == 4
        return shallow(latent, TIMES[step])

    outputs = run(shallow, session, latents, call)
    assert torch.equal(outputs[4], latents[4] * 50)
    assert 4 not in record.predicted_calls | record.computed_calls
    assert not session.record.notes
    assert record.predicted_in
    for step in record.predicted_in:
        assert outputs[step].abs().max() < 3 * outputs[0].abs().max(), "its answer was learned"


@pytest.mark.parametrize(
    ("interval", "added", "computed", "controls"),
    [
        (2, {}, [0, 1, 2, 4, 5], ["ControlNet", "T2I-Adapter"]),
        (2, {}, [0, 1, 2, 4, 5], ["", "T2I-Adapter"]),
        (4, {4, 5, 6, 7}, [0, 1, 2, 4, 5, 6, 8, 9], []),
        ("auto", {}, [*range(8)], []),
    ],
    ids=["in each step", "an adapter runs once", "in steps 4 to 7", "the error is too large"],
)
def test_what_a_controlnet_adds_is_told_and_begins_anew_where_it_comes_and_goes(
    diffusers_sd1, interval, added, computed, controls
):
    """A step is predicted only after three alike."""
    unet, ran = diffusers_sd1.unet, []
    session = session_of(diffusers_sd1, predict="whole", interval=interval, tolerance=0)
    session.controls = controls

    @torch.no_grad()
    def call(step, latent):
        more = {"mid_block_additional_residual": torch.ones(1) if not added else torch.zeros(1)}
        return unet(latent, TIMES[step], words(2), **(more if not added or step in added else {}))

    with unet.conv_in.register_forward_hook(lambda *_: ran.append(1)):
        run(diffusers_sd1, session, chain(computed[-1] + 1), call)
    assert sorted(session.record.whole.computed_calls) == computed
    assert len(ran) == len(computed)
    told = interval != "auto" and (not controls or "ControlNet" in controls)
    assert session.record.notes == (["ControlNets run in predicted steps too"] if told else [])


class Inpainting(torch.nn.Module):
    """Reads nine channels: the noisy latent, a mask and the masked image."""

    def __init__(self, unet):
        super().__init__()
        self.unet = unet

    def forward(self, latent, *args):
        return self.unet(latent[:, :4], *args) * latent[:, 4:5].sigmoid()


class WithVariance(Inpainting):
    """Predicts the noise and, as guided diffusion's UNets, its variance."""

    def forward(self, latent, *args):
        made = self.unet(latent, *args)
        return torch.cat([made, made.square()], 1)


@pytest.mark.parametrize("kind", [Inpainting, WithVariance])
def test_input_and_output_may_have_more_channels_than_the_latent(shallow, kind):
    """Mask and masked image, which never change, say nothing of the output's line."""
    model, latents = kind(shallow.unet).eval(), chain(6)
    rest = noise(2, 5 if kind is Inpainting else 0, 16, 16, seed=7)
    session = Session(replace(detect(shallow.unet), unet=model), Settings(**WHOLE, interval=2))

    @torch.no_grad()
    def call(step, latent):
        return model(torch.cat([latent, rest], 1), torch.full((2,), float(TIMES[step])), words(2))

    outputs = run(shallow, session, latents, call)
    assert predicted_in(session) == {3}
    runs = [(TIMES[i], latents[i], latents[i] + outputs[i][:, :4]) for i in (1, 2)]
    expected = naive(runs, TIMES[3], latents[3]).float() - latents[3]
    torch.testing.assert_close(outputs[3][:, :4], expected, atol=2e-5, rtol=1e-4)
    assert {len(output[0]) for output in outputs} == {8 if kind is WithVariance else 4}


def test_an_output_of_an_unknown_kind_is_an_error_of_ours_alone(shallow, monkeypatch):
    own, errors = type(shallow.unet).forward, []
    monkeypatch.setattr(type(shallow.unet), "forward", lambda *args, **kwargs: {"y": own(*args, **kwargs)})
    session = Session(detect(shallow.unet), Settings(**WHOLE, interval=2), on_error=errors.append)
    output, *_ = run(shallow, session, chain(5))
    assert set(output) == {"y"}
    assert {type(error) for error in errors} == {KeyError}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(shallow, dtype):
    """The output's dtype is kept where the latent's is another, as under autocast."""
    session, latents = session_of(shallow, predict="whole", interval=2), chain(5)
    with shallow.unet.out.register_forward_hook(lambda _, args, output: output.to(dtype)):
        exact = by_a_loop(shallow, latents, 2)[0][3]
        made = run(shallow, session, latents)
    assert {each.dtype for each in made} == {dtype}
    assert (made[3].float() - exact.float()).norm() < 0.05 * exact.float().norm()
