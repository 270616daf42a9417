"""Deep transformers between their computed steps, beside a loop that stores and predicts, written on its own."""

import copy
import math
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

import todo_core.patching.planning
from tests.controlnet_double import ControlNet
from tests.models import noise, shallow_ldm_unet, words
from tests.naive import examples
from tests.todo_core.test_pacing import ALPHA_BARS
from todo_core import Settings, patched
from todo_core.course import Course, Scale
from todo_core.hosts import detect
from todo_core.hosts.conditions import conditions_of
from todo_core.patching.driver import Driver
from todo_core.patching.facts import Pass
from todo_core.patching.session import Session
from todo_core.patching.steps import Row, rows_of
from todo_core.patching.time import room
from todo_core.patching.time.prediction import Hold, Line, Moment, fit_numbers
from todo_core.patching.time.room import bytes_needed
from todo_core.reason import Reason
from todo_core.token_grid import TokenGrid

OFF = {"factor_1": 1, "factor_2": 1, "start": 0, "end": 1}
TIMES = (900, 780, 650, 540, 410, 290, 160, 90, 60, 30)


def chain(steps, seed=3, rows=2, drift=0.2):
    """Latents of a pass: each is the last one, a little changed."""
    latents = [noise(rows, 4, 16, 16, seed=seed)]
    for i in range(1, steps):
        latents.append((1 - drift) * latents[-1] + drift * noise(rows, 4, 16, 16, seed=seed + i))
    return latents


def naive(runs, time, x):
    """The formula of the module's docstring in numpy, row by row, with one row of a matrix a token.

    A run is (time, x, y).
    """
    (t_a, x_a, y_a), (t_b, x_b, y_b) = ((t, tokens(x), tokens(y)) for t, x, y in runs)
    now, s, rows = tokens(x), (time - t_b) / (t_b - t_a), []
    for row in range(len(now)):
        dx, dr = x_b[row] - x_a[row], (y_b - x_b)[row] - (y_a - x_a)[row]
        mean_dx, mean_dr = (pair_means(change, x.shape[3]) for change in (dx, dr))
        gram = mean_dx.T @ mean_dx
        weights = np.linalg.solve(gram + 0.3 * gram.trace() / len(gram) * np.eye(len(gram)), mean_dx.T @ mean_dr)
        rows.append(now[row] + (y_b - x_b)[row] + s * dr + (now[row] - x_b[row] - s * dx) @ weights)
    return torch.from_numpy(np.stack(rows)).transpose(1, 2).reshape(x.shape)


def pair_means(change, width):
    """(h*w, c) to the means of pairs of tokens, side by side; the last one of an odd row stays alone."""
    means = []
    for first in range(0, len(change), width):
        row = change[first : first + width]
        means += [row[i : i + 2].mean(0) for i in range(0, width, 2)]
    return np.stack(means)


def tokens(x):
    """(b, c, h, w) to (b, h*w, c) in numpy."""
    return x.double().flatten(2).transpose(1, 2).numpy()


def at(time):
    return Moment(torch.tensor(float(time)))


# the formula --------------------------------------------------------------------------------------------------------


@examples(40)
@given(
    st.integers(1, 3), st.integers(1, 5), st.integers(1, 7), st.integers(1, 7), st.floats(0.1, 3), st.integers(0, 10**6)
)
def test_a_prediction_equals_the_naive_formula(rows, channels, height, width, span, seed):
    """Of two modules, whose weights are found at once."""
    shape, histories, expected = (rows, channels, height, width), (Line(), Line()), []
    times = (10.0, torch.tensor(10 - span).item(), torch.tensor(10 - 1.7 * span).item())
    x = noise(*shape, seed=seed).double()
    for number, history in enumerate(histories):
        x_a, x_b, y_a, y_b = (noise(*shape, seed=seed + 4 * number + i).double() for i in range(1, 5))
        history.add(at(times[0]), x_a, y_a - x_a)
        assert not history.can_predict(x)
        history.add(at(times[1]), x_b, y_b - x_b)
        assert history.can_predict(x)
        expected.append(naive([(times[0], x_a, y_a), (times[1], x_b, y_b)], times[2], x))
    Line.fit(histories)
    for history, output in zip(histories, expected, strict=True):
        torch.testing.assert_close(x + history.predict(at(times[2]), x), output, rtol=1e-5, atol=1e-5)


def test_autocast_does_not_reach_the_solution():
    runs, plain, cast = [noise(1, 8, 5, 5, seed=i) for i in range(5)], Line(), Line()
    for i in range(2):
        plain.add(at(i), runs[i], runs[i + 2])
        with torch.autocast("cpu", torch.bfloat16):
            cast.add(at(i), runs[i], runs[i + 2])
    assert torch.equal(cast._weights, plain._weights)
    with torch.autocast("cpu", torch.bfloat16):
        made = cast.predict(at(2.0), runs[4])
    assert made.dtype == torch.float32
    torch.testing.assert_close(made, plain.predict(at(2.0), runs[4]), rtol=0.05, atol=0.05)


def test_equal_times_and_equal_inputs_give_the_last_residual():
    x, history = noise(1, 3, 4, 4), Line()
    history.add(at(5.0), x, x + 1)
    history.add(at(5.0), x, x + 2)
    assert torch.equal(history.predict(at(4.0), x), x + 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_hold_the_solution_of_large_values(dtype):
    """Products of such inputs are beyond float16."""
    inputs = [600 * noise(1, 4, 16, 16, seed=i) for i in range(3)]
    history, exact = Line(), Line()
    for time, x in enumerate(inputs[:2]):
        for each, kind in ((history, dtype), (exact, torch.float64)):
            each.add(at(time), x.to(kind), 1.5 * x.to(kind))
    predicted = history.predict(at(2.0), inputs[2].to(dtype))
    assert predicted.dtype == dtype
    expected = exact.predict(at(2.0), inputs[2].double())
    error = (predicted.double() - expected).norm() / expected.norm()
    assert error < {torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]


def test_other_shapes_begin_a_new_history():
    history = Line()
    for size in (4, 5, 5):
        assert not history.can_predict(noise(1, 2, size, size))
        history.add(at(size), noise(1, 2, size, size), noise(1, 2, size, size, seed=2))
    assert history.can_predict(noise(1, 2, 5, 5))
    assert not history.can_predict(noise(1, 2, 4, 4))
    assert not history.can_predict(noise(1, 2, 5, 5).double())
    with pytest.raises(ValueError, match="two computed runs"):
        Line().predict(at(0.0), noise(1, 2, 5, 5))


@pytest.mark.parametrize(("spacing", "after"), [(1, 1), (1, 4), (3, 2)])
def test_the_error_of_a_line_grows_with_both_its_runs(spacing, after):
    """Of a parabola, t squared, it is the product of how far both are."""
    line, x = Line(), noise(1, 2, 3, 3)
    for time in (0, spacing):
        line.add(at(time), x, torch.full_like(x, time**2))
    missed = (spacing + after) ** 2 - line.predict(at(spacing + after), x)
    torch.testing.assert_close(missed, torch.full_like(x, Line.growth(after, spacing)))


@examples(40)
@given(st.floats(0.03, 14), st.floats(0.03, 14), st.sampled_from(["noise", "v", "image"]), st.integers(0, 10**6))
def test_a_held_image_is_that_of_the_new_output(before, after, kind, seed):
    hold, (x_a, x_b, image, drawn) = Hold(), (noise(2, 3, 5, 4, seed=seed + i) for i in range(4))

    def output(x, sigma):
        """Of a UNet that sees this image in alpha image + sigma noise = x."""
        alpha = 1 / math.hypot(1, sigma)
        drawn = (x - alpha * image) / (alpha * sigma)
        return {"noise": drawn, "v": alpha * drawn - alpha * sigma * image, "image": image}[kind]

    def moment(sigma):
        scale = Scale(sigma, -1.0, kept=0.0) if kind == "image" else Scale.of(sigma, predicts_v=kind == "v")
        return Moment(torch.zeros(()), scale)

    assert not hold.can_predict(x_b)
    hold.add(moment(before), x_a, output(x_a, before))
    assert hold.can_predict(x_b)
    assert not hold.can_predict(drawn[:1])
    torch.testing.assert_close(hold.predict(moment(after), x_b), output(x_b, after), rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="a computed call must come"):
        Hold().predict(moment(after), x_b)


# in a model ---------------------------------------------------------------------------------------------------------


def by_a_loop(small, transformers, latents, interval):
    """The pass of a UNet whose transformers store and predict by hand."""
    runs = {m: [] for m in transformers}
    outputs, computed = [], []
    for step, (time, latent) in enumerate(zip(TIMES, latents, strict=False)):
        computes = len(computed) < 2 or step - computed[-1] >= interval or step == len(latents) - 1
        computed += [step] if computes else []
        for module in transformers:

            def forward(x, *args, module=module, computes=computes, time=time, **kwargs):
                if not computes:
                    y = naive(runs[module][-2:], time, x).to(x.dtype)
                    return (y,) if kwargs.get("return_dict") is False else y
                output = type(module).forward(module, x, *args, **kwargs)
                runs[module].append((time, x, output[0] if isinstance(output, tuple) else output))
                return output

            module.forward = forward
        try:
            outputs.append(small(latent, time))
        finally:
            for module in transformers:
                del module.forward
    return outputs


def weights_of(times, steps):
    """By Euler's method, with the noise of Stable Diffusion at these times, and none after the last one."""
    return course_of(times, steps).weights


def course_of(times, steps):
    return Course.of_noise([*(math.sqrt(1 / ALPHA_BARS[time] - 1) for time in times[:steps]), 0.0])


def run(small, session, latents, call=None, *, steps=None, times=TIMES, guidance=None):
    """The outputs of a pass. ``call`` makes that of a step, from its number and latent."""
    outputs, parts = [], (None, None) if guidance is None else (guidance, 1 - guidance)
    session._facts = replace(session._facts, course=course_of(times, len(latents)))
    for step, latent in enumerate(latents):
        session.attach().begin_step(step, steps or len(latents), rows_of((0,), parts))
        outputs.append(call(step, latent) if call else small(latent, times[step]))
        session.detach()
    if not steps:
        session.remove()
    return outputs


def predicted_in(session):
    """The steps in which anything was predicted."""
    return session.record.whole.predicted_in | session.record.deep.predicted_in


def session_of(small, size=16, **settings):
    return Session(detect(small.unet), Settings(**(OFF | settings)), Pass(TokenGrid(size, size)))


def test_a_call_of_a_step_that_begins_anew_leaves_the_others_their_gaps(shallow):
    """A prompt that changes in mid-pass, of one of two calls."""
    errors, settings = [], Settings(**OFF, predict="whole", tolerance=1)
    session = Session(detect(shallow.unet), settings, Pass(TokenGrid(16, 16), 10), on_error=errors.append)

    def call(step, latent):
        for place in (0, 1):
            shallow(latent[:1], TIMES[step], words(1, seed=5 if place and step > 3 else place))

    run(shallow, session, chain(10), call, guidance=3.0)
    assert not errors
    assert session.record.begun_anew is Reason.CONDITIONING


def test_with_auto_all_calls_of_a_step_skip_the_same_steps(shallow, monkeypatch):
    """By the worst of their errors: a long negative prompt makes two calls of each step."""
    monkeypatch.setattr(todo_core.patching.planning, "WORTH_PREDICTING", 0)
    known, predict = [], Line.predict

    def computed(*drifts, is_split=False):
        monkeypatch.setattr(Line, "predict", lambda *args: known.append(step) or predict(*args))
        session, ran = session_of(shallow, interval="auto", predict="deep", tolerance=0.05), []
        session._facts = replace(session._facts, course=Course.of_noise([0.1 * i for i in range(14, -1, -1)]))
        rows = [Row(image=image, weight=weight) for image in range(len(drifts)) for weight in (3.0, -2.0)]
        first = detect(shallow.unet).deep_transformers[0].transformer_blocks[0]
        with first.register_forward_hook(lambda *_: ran.append(step)):
            for step, latents in enumerate(zip(*(chain(14, drift=drift) for drift in drifts), strict=True)):
                session.attach().begin_step(step, 14, rows)
                for place, latent in enumerate(latents):
                    for row in (slice(0, 1), slice(1, 2)) if is_split else (slice(0, 2),):
                        shallow(latent[row], 900 * (1 - step / 15), words(2, seed=place)[row])
                session.detach()
        session.remove()
        return ran, session.record

    (few, _), (many, _), (both, record) = computed(0.02), computed(0.1), computed(0.1, 0.02)
    assert few != many, "each alone skips other steps"
    assert both == sorted(2 * sorted(set(both))), "two runs in each computed step"
    assert len(set(both)) >= max(len(few), len(many))
    assert record.deep.predicted_in == set(range(14)) - set(both)
    assert set(record.deep.predicted_calls) == record.deep.predicted_in
    assert computed(0.1, is_split=True)[0] == sorted(2 * many), "the errors of both halves of the guidance are joined"
    assert max(known) == 12, "what nothing comes after is not measured"


A, B = words(2), words(2, seed=9)


@pytest.mark.parametrize(
    ("latents", "texts", "predicted", "why"),
    [
        (chain(10), [A] * 4 + [B] * 6, {2, 6, 8}, Reason.CONDITIONING),  # another prompt, in a predicted step
        (chain(10), [A] * 5 + [B] * 5, {2, 4, 8}, Reason.CONDITIONING),  # in a computed step
        (chain(10), [A] * 5 + [words(2)[:, 1:]] * 5, {2, 4, 7}, Reason.CONDITIONING),  # a shorter one
        ([*chain(5), *chain(10, rows=3)[5:]], [A] * 5 + [words(3)] * 5, {2, 4, 7}, Reason.ROWS),
        ([*chain(5), *(latent[..., 8:] for latent in chain(10)[5:])], [A] * 10, {2, 4, 7}, Reason.SIZE),
        # a second generation on one patch, in the same step: its latent is no small change of the last one
        *(
            ([*chain(2), *(by * latent for latent in chain(2, seed=50))], [A] * 4, set(), Reason.IMAGE)
            for by in (0.5, 1, 2)
        ),
        # as in the first step of DPM++ 2M SDE with few steps, on a model with random weights
        *(([growth**i * latent for i, latent in enumerate(chain(6))], [A] * 6, {2, 4}, None) for growth in (0.4, 2.5)),
    ],
)
def test_what_changes_begins_anew_and_an_image_that_grows_does_not(shallow, latents, texts, predicted, why):
    session = session_of(shallow, interval=2)
    run(shallow, session, latents, lambda step, latent: shallow(latent, TIMES[step], texts[step].clone()))
    assert predicted_in(session) == predicted
    assert session.record.begun_anew == why


def test_a_caller_may_go_on_with_its_latent_in_place(shallow):
    """As EasyCache of ComfyUI does."""
    session = session_of(shallow, interval=2)
    run(shallow, session, chain(10), lambda step, latent: (shallow(latent, TIMES[step]), latent.neg_()))
    assert predicted_in(session) == {2, 4, 6, 8}


@pytest.mark.parametrize("calls", [8, 9])
def test_of_a_steps_calls_the_first_eight_are_predicted_and_a_note_says_so(shallow, calls):
    """As with tiles, which are alike from step to step."""
    session, ran = session_of(shallow, interval=2), []
    first = session.host.deep_transformers[0].transformer_blocks[0]
    with first.register_forward_hook(lambda *_: ran.append(session._step.number)):
        run(shallow, session, chain(4), lambda step, latent: [shallow(latent, TIMES[step]) for _ in range(calls)])
    assert ran.count(2) == calls - 8
    assert session.record.notes == ["of a step's calls, the first 8 are predicted"] * (calls - 8)


def histories(session):
    """Those that a session remembers, of all calls of a step."""
    parts = [part for call in session._memory._calls.values() for part in call.parts.values()]
    return [history for part in parts for history in part.histories.values()]


def test_memory_is_freed_at_the_end_of_a_pass_an_error_and_removal(shallow):
    latents, session = chain(4), session_of(shallow, interval=2)
    run(shallow, session, latents, steps=4)
    assert not histories(session), "the last step has run"
    run(shallow, session, latents[:2], steps=9)
    assert len(histories(session)) == 2
    session.remove()
    assert not histories(session)
    run(shallow, session, latents[:1], steps=9)
    assert histories(session)
    fails = session.attach().host.unet.out.register_forward_pre_hook(lambda *_: 1 / 0)
    with fails, pytest.raises(ZeroDivisionError):
        shallow(latents[1], TIMES[1])
    assert not histories(session)
    session.remove()


# what may not be replaced -------------------------------------------------------------------------------------------


def test_a_forward_put_over_ours_predicts_no_more_and_goes_on_after_removal(shallow):
    """As DeepCache's helper does, which leaves out runs of its own."""
    first, ran = detect(shallow.unet).deep_transformers[0], []
    plain, session = shallow(chain(1)[0]), session_of(shallow, interval=2).attach()
    below = first.forward
    first.forward = lambda *args, **kwargs: below(*args, **kwargs)
    with first.transformer_blocks[0].register_forward_hook(lambda *_: ran.append(1)):
        for step, latent in enumerate(chain(5)):
            session.begin_step(step, 5, rows_of((0, 0)))
            shallow(latent, TIMES[step])
        session.remove()
        after = shallow(chain(1)[0])
    del first.forward
    assert len(ran) == 6
    assert torch.equal(after, plain)
    assert predicted_in(session), "the others are predicted"
    assert ["another SpatialTransformer.forward is on it" in note for note in session.record.notes] == [True]


@pytest.mark.parametrize(("predict", "broken"), [("deep", 1), ("deep", 3), ("whole", 1), ("whole", 2), ("whole", 4)])
def test_a_number_that_is_not_finite_does_not_reach_later_steps(shallow, predict, broken):
    """One NaN inside the model in one computed step. The loop around it goes on with good latents."""
    (norm, *_), now = [m for m in shallow.unet.modules() if isinstance(m, torch.nn.LayerNorm)], []
    session = session_of(shallow, interval=2, predict=predict)
    call = lambda step, latent: now.append(step) or shallow(latent, TIMES[step])  # noqa: E731
    with norm.register_forward_hook(lambda m, a, y: y * math.nan if len(now) == broken + 1 else None):
        outputs = run(shallow, session, chain(10), call)
    assert [i for i, output in enumerate(outputs) if not output.isfinite().all()] == [broken]
    assert predicted_in(session), "it goes on later"
    assert session.record.begun_anew == Reason.SPOILT


@pytest.mark.parametrize("by", [math.nan, 0])
def test_where_the_error_is_no_number_nothing_is_predicted_and_a_note_says_so(shallow, by):
    """The error of an output of zeros, beside that output, is none either."""
    session = session_of(shallow, interval="auto", predict="whole", tolerance=1)
    with shallow.unet.out.register_forward_hook(lambda module, args, output: output * by):
        run(shallow, session, chain(10), guidance=1)
    assert not predicted_in(session)
    assert session.record.notes == ["the model's output is not a number (NaN)"]


LORA = {"_active_adapter": ["a"], "_disable_adapters": False, "scaling": {"a": 1.0}}


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (LORA, lambda layer: setattr(layer, "_disable_adapters", True)),
        (LORA, lambda layer: setattr(layer, "_active_adapter", ["b"])),
        (LORA, lambda layer: layer.scaling.update(a=0.5)),
        ({"scale": [1.0]}, lambda layer: layer.scale.__setitem__(0, 0.5)),
    ],
    ids=["off", "another", "scale", "IP-Adapter"],
)
@pytest.mark.parametrize("loads_at", [0, 3])
def test_an_adapter_that_changes_in_mid_pass_begins_anew(shallow, before, change, loads_at):
    """As peft's LoRAs, of which some act in few layers, and the processors of diffusers' IP-Adapters."""
    small = shallow.copy()
    layer = detect(small.unet).deep_transformers[0].transformer_blocks[0].attn2.to_k

    def switch(step, latent):
        if step == loads_at:
            vars(layer).update(copy.deepcopy(before))
            small.unet.peft_config = {"a": None}
        if step == 6:
            change(layer)
        return small(latent, TIMES[step])

    session = session_of(small, interval=2)
    run(small, session, chain(10), switch)
    assert predicted_in(session) == ({2, 4, 8} if loads_at == 0 else {2, 5, 8})
    assert session.record.begun_anew == Reason.OTHERS


@pytest.mark.parametrize(
    ("runs", "predict"), [("before", "deep"), ("inside", "deep"), ("", "deep"), ("", "whole"), ("before", "whole")]
)
def test_a_controlnet_that_ends_beside_another_begins_anew(runs, predict):
    """They run inside the UNet's call in AUTOMATIC1111. Other programs tell which of them act."""
    unet, nets = shallow_ldm_unet(), [ControlNet(shallow_ldm_unet(seed, num_res_blocks=1)) for seed in (3, 4)]
    driver = Driver("a pass", Settings(**(OFF | {"interval": 2, "predict": predict})))
    driver.use_model(detect(unet), nets, Pass(TokenGrid(16, 16), 10, Course.of_noise([*range(10, -1, -1)])))
    ran, first = [], driver.host.deep_transformers[0].transformer_blocks[0]
    first.register_forward_hook(lambda *_: ran.append(step))

    def run_nets(*_):
        for net in nets[: 1 + (step < 5)]:
            net(x=noise(2, 4, 16, 16), hint=None, timesteps=torch.full((2,), 500.0), context=words(2))

    unet.time_embed.register_forward_hook(lambda *_: run_nets() if runs == "inside" else None)
    for step, latent in enumerate(chain(10)):
        driver.controls = () if runs and predict == "deep" else (True, step < 5)
        driver.begin_step(step, 10, rows_of((0,), (None, None)))
        if runs == "before":
            run_nets()
        unet(latent, torch.full((2,), float(TIMES[step])), [words(2)] * 2)
    assert {*range(10)} - {*ran} == ({2, 4, 7} if predict == "deep" else {3, 8})
    assert bool(driver.record.deep.predicted_calls) == (predict == "deep"), "also those of the ControlNets"
    assert driver.record.notes == []


@pytest.mark.parametrize("entry", ["input", "middle", "output"])
def test_what_is_added_to_the_layers_is_a_condition(entry):
    """In ComfyUI and the Forge family: one of two ControlNets may add to other layers."""
    control = {"input": [None], "middle": [noise(1)], "output": [noise(1), None]}
    other = control | {entry: [noise(1), noise(1)]}
    (_, one), (_, same), (_, more) = (conditions_of(words(1), {"control": each}) for each in (control, control, other))
    assert one == same != more


def test_calls_that_ask_for_gradients_are_computed(diffusers_sd1):
    latents = chain(4)
    with patched(diffusers_sd1.unet, **OFF, interval=2) as session:
        for latent, time in zip(latents, TIMES, strict=False):
            leaf = latent.clone().requires_grad_()
            made = diffusers_sd1.unet(leaf, time, encoder_hidden_states=words(2)).sample
            made.square().sum().backward()
    plain = latents[3].clone().requires_grad_()
    diffusers_sd1.unet(plain, TIMES[3], encoder_hidden_states=words(2)).sample.square().sum().backward()
    assert torch.equal(plain.grad, leaf.grad)
    assert predicted_in(session) == set()
    assert any("asks for gradients" in note for note in session.record.notes)


# memory -------------------------------------------------------------------------------------------------------------


def remembered(session):
    """Bytes of all tensors in the histories, but for the 0-dimensional ones."""
    runs = [vars(history) | vars(history._last) for history in histories(session)]
    kept = {id(t): t for run in runs for t in tree_leaves([*run.values()]) if isinstance(t, torch.Tensor) and t.ndim}
    return sum(t.numel() * t.element_size() for t in kept.values())


@pytest.mark.parametrize("latent", [noise(2, 4, 16, 8), noise(3, 4, 8, 24)], ids=["2 rows", "3 rows"])
def test_the_memory_that_is_asked_for_is_that_of_the_histories(any_model, latent):
    """Four tensors a transformer until it is first predicted; then three, and a matrix."""
    held = []
    with patched(any_model.unet, **OFF, interval=3) as session:
        for step in range(3):
            session.begin_step(step, 6, rows_of([1] * len(latent)))
            any_model(latent + step, TIMES[step])
            held.append(remembered(session))
        _, waiting, fitted = held
        assert bytes_needed(session.host, latent)[0] == fitted + waiting / 4 > 0


@pytest.mark.parametrize("shape", [(64, 8, 16), (64, 4, 7), (128, 4, 4), (64, 16, 16), (32, 32, 32)])
def test_the_memory_of_the_fit_is_that_which_torch_allocates(shape):
    histories = [Line() for _ in range(3)]
    for seed, history in enumerate(histories):
        for time in (0.0, 1.0):
            history.add(at(time), noise(2, *shape, seed=seed), noise(2, *shape, seed=int(time)))
    with torch.profiler.profile(profile_memory=True) as profile:
        Line.fit(histories)
    events = sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    peak = max(accumulate(event.nbytes() for event in events if event.name() == "[memory]"))
    assert 4 * 2 * 3 * fit_numbers(shape[0], shape[1] * -(-shape[2] // 2)) == pytest.approx(peak, rel=0.06)


@pytest.mark.parametrize(
    ("predict", "share", "free", "predicted"),
    [
        ("deep", room.SHARE, lambda kept, fit: kept / room.SHARE, {2, 4}),
        ("deep", room.SHARE, lambda kept, fit: 0.99 * kept / room.SHARE, set()),
        ("deep", 1, lambda kept, fit: kept + fit, {2, 4}),
        ("deep", 1, lambda kept, fit: kept + 0.99 * fit, set()),
        ("whole", room.SHARE, lambda kept, fit: 0, {3}),
    ],
)
def test_without_room_on_the_gpu_deep_transformers_are_computed(shallow, monkeypatch, predict, share, free, predicted):
    latent, looked = noise(2, 4, 16, 8), []

    def free_bytes(device):
        looked.append(device)
        return free(*bytes_needed(detect(shallow.unet), latent))

    monkeypatch.setattr(room, "free_bytes", free_bytes)
    monkeypatch.setattr(room, "SHARE", share)
    with patched(shallow.unet, **OFF, predict=predict, interval=2) as session:
        for step in range(6):
            session.begin_step(step, 6, rows_of((1, 1)))
            shallow(latent + 0.01 * step, TIMES[0] - step)
    assert predicted_in(session) == predicted
    assert ("MiB free: nothing is predicted" in "".join(session.record.notes)) == (not predicted)
    assert len(looked) == (predict == "deep")  # a GPU may take its time


# copies, replicas and compilers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [(5, 5), (5, 6)])
def test_replicas_run_in_every_step_and_images_of_their_own_seeds_may_swap_these(diffusers_sd1, seeds):
    """torch.nn.DataParallel copies the attributes of modules: a forward on an instance would run the original."""
    latents, notes = chain(4), ["nothing is predicted"]
    with patched(diffusers_sd1.unet, **OFF, interval=2) as session, torch.no_grad():
        for step, latent in enumerate(latents):
            session.begin_step(step, 9, rows_of(seeds))
            made = replica(diffusers_sd1.unet)(latent, TIMES[step], encoder_hidden_states=words(2)).sample
    assert torch.equal(made, diffusers_sd1(latents[3], TIMES[3]))
    assert predicted_in(session) == set()
    if seeds == (5, 6):
        notes = ["images may swap their seeds", *notes]
    assert session.record.notes == [f"replicas of this model run side by side: {note}" for note in notes]


def replica(module):
    made = copy.copy(module)
    made._modules = {name: part if part is None else replica(part) for name, part in module._modules.items()}
    return made


@pytest.mark.slow
def test_a_compiled_model_is_predicted_too(diffusers_sd1):
    small, latents = diffusers_sd1.copy(), chain(4)
    with patched(small.unet, **OFF, interval=2):
        expected = [small(latent, time) for latent, time in zip(latents, TIMES, strict=False)]
    small.unet.compile(backend="eager")
    with patched(small.unet, **OFF, interval=2) as session:
        made = [small(latent, time) for latent, time in zip(latents, TIMES, strict=False)]
    assert predicted_in(session) == {2}
    for a, b in zip(made, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("left_out", [True, False])
def test_where_the_negative_prompt_is_left_out_the_error_is_that_without_guidance(shallow, monkeypatch, left_out):
    """As by NGMS. A row of the prompt alone beside both, as ComfyUI has for an area, counts several times."""
    monkeypatch.setattr(todo_core.patching.planning, "WORTH_PREDICTING", 0)

    def least_error(weight):
        session, both = (
            session_of(shallow, interval="auto", predict="deep", tolerance=0),
            () if left_out else (7.0, -6.0),
        )
        rows = [Row(weight=each) for each in (*both, weight) * len(TIMES)]
        monkeypatch.setattr(session, "_rows_of", lambda count, *_: tuple(rows.pop(0) for _ in range(count)))

        def call(step, latent):
            output = shallow(latent[: len(both)], TIMES[step]) if both else None
            alone = shallow(latent[:1, :, :8], TIMES[step])
            return alone if output is None else output

        run(shallow, session, chain(10), call)
        return session.record.deep.least_error

    with_guidance, without = least_error(7.0), least_error(1.0)
    assert with_guidance == pytest.approx(without) if left_out else with_guidance > 3 * without
