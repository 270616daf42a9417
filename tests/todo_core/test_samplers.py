"""What samplers answer, beside what an error in one call of the model really does."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests import samplers_double
from tests.todo_core.test_pacing import ALPHA_BARS
from todo_core.course import Course, Scale, noise_gone
from todo_core.reason import Reason
from todo_core.samplers import StandIn, ask

CPU = torch.device("cpu")
KARRAS = [1.6, 1.1, 0.7, 0.4, 0.2, 0.08, 0.03, 0.0]
FINE = [*((1.07 - 0.05 * step) ** 7 for step in range(10)), 0.0]
UNIFORM = [1.5, 1.2, 0.9, 0.6, 0.36, 0.23, 0.029, 0.0]  # as A1111's Automatic and ComfyUI's normal end


def asked(function, sigmas, scale=None, steps=None, **options):
    scale = scale or (lambda sigma: Scale(sigma, sigma))

    def reply(x, error, sigma, _):
        return x + scale(sigma).error * error

    def run(model, x):
        return function(model, x, torch.tensor(sigmas), callback=model.report, disable=True, **options)

    stand_in, steps_of = partial(StandIn, None, reply), lambda times, _: steps or range(len(times))
    return ask(run, stand_in, lambda times: [*map(scale, times)], CPU, steps_of)


def effects(function, sigmas, call):
    """What an error of 1 in the noise that is predicted at one call moves the latent by at each call and at the end."""

    def run(error):
        calls, latents = 0, []

        def model(x, sigma):
            nonlocal calls
            latents.append(float(x))
            calls += 1
            return x + (error * sigma if calls == call + 1 else 0 * sigma).reshape(-1, 1, 1, 1)

        torch.manual_seed(5)
        last = function(model, torch.zeros(1, 1, 1, 1), torch.tensor(sigmas))
        return np.array([*latents, float(last)])

    return run(1.0) - run(0.0)


@pytest.mark.parametrize("sigmas", [KARRAS, UNIFORM])
@pytest.mark.parametrize("name", ["euler", "multistep", "ancestral"])
def test_the_weight_of_a_step_is_the_most_that_its_error_moves_the_latent_in_a_step(name, sigmas):
    function = getattr(samplers_double, name)
    course = asked(function, sigmas)
    assert course.times == pytest.approx(sigmas[:-1])
    moves = [np.abs(np.diff(effects(function, sigmas, call))) for call in range(7)]
    expected = [each.max() for each in moves]
    grows = [(sigma / 0.75) ** 4 if name == "ancestral" else sigma**2 for sigma in sigmas]
    amplified = [weight * (1 + each) for weight, each in zip(expected, grows, strict=False)]
    assert course.weights == pytest.approx(amplified, rel=1e-3)
    assert course.holds == (name == "ancestral")
    euler = [before - after for before, after in pairwise(sigmas)]
    growth = max(max(each.max(), each.sum() / 2) / least for each, least in zip(moves, euler, strict=True))
    assert course.growth == pytest.approx(growth, rel=1e-3)
    assert course.why_not(whole=True) == (Reason.GROWS if growth > 3 else Reason.UNKNOWN if course.holds else None)


@pytest.mark.parametrize(
    ("name", "sigmas", "calls"),
    [("euler", UNIFORM, 1), ("multistep", FINE, 1), ("ancestral", UNIFORM, 1), ("heun", KARRAS, 2)],
)
def test_what_is_made_up_leaves_the_next_step_as_it_would_be(name, sigmas, calls):
    """The errors are those of outputs, or of images that are held: then each is sigma times the output's."""
    function, errors = getattr(samplers_double, name), {2: 0.3, 3: -0.5}

    def moved(step):
        of_calls = [effects(function, sigmas, calls * step + call)[5 * calls] for call in range(calls)]
        units = [sigmas[step + call] if name in ("heun", "ancestral") else 1.0 for call in range(calls)]
        return sum(each / unit for each, unit in zip(of_calls, units, strict=True))

    steps = [call // calls for call in range(calls * (len(sigmas) - 1) - calls + 1)]
    made_up = asked(function, sigmas, steps=steps).made_up(4, errors)
    assert made_up == pytest.approx(-sum(error * moved(step) for step, error in errors.items()) / moved(4), rel=1e-3)


@pytest.mark.parametrize(("name", "sigmas"), [("heun", KARRAS), ("multistep", UNIFORM)])
def test_nothing_is_made_up_where_each_call_is_a_step_or_errors_multiply(name, sigmas):
    assert asked(getattr(samplers_double, name), sigmas).made_up(4, {3: 1.0}) == 0


def test_eulers_method_is_that_of_the_noise_alone():
    def of_v(sigma):
        return Scale(sigma, sigma / math.hypot(1, sigma))

    assert asked(samplers_double.euler, KARRAS, scale=of_v).weights == pytest.approx(Course.of_noise(KARRAS).weights)


def test_both_calls_of_a_step_share_what_the_step_moves():
    """Heun's try of a step goes the whole way, half of which the second call takes back."""
    course = asked(samplers_double.heun, KARRAS)
    assert course.times == pytest.approx([KARRAS[0], *(s for sigma in KARRAS[1:-1] for s in (sigma, sigma))])
    assert course.why_not(whole=True) == Reason.UNKNOWN
    half = [(before - after) / 2 * (1 + (before / 0.75) ** 4) for before, after in pairwise(KARRAS[:-1])]
    last = KARRAS[-2] * (1 + (KARRAS[-2] / 0.75) ** 4)
    assert course.weights == pytest.approx([*(each for pair in zip(half, half, strict=True) for each in pair), last])


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [("euler", {"s_churn": 5.0}, Reason.UNKNOWN), ("ancestral", {"eta": 0.0}, None), ("own_sigmas", {}, None)],
)
def test_options_count_and_no_list(name, options, why):
    course = asked(getattr(samplers_double, name), KARRAS, **options)
    assert course.why_not(whole=True) == why
    assert len(course.times) == (3 if name == "own_sigmas" else 7)


@pytest.mark.parametrize(
    ("name", "sigmas"),
    [
        ("adaptive", KARRAS),
        ("euler", KARRAS[::-1][1:]),  # turned round
        ("euler", [0.0] * 4),
        ("euler", [1.0, 1.0, 0.5, 0.0]),  # a step without effect
        ("euler", [1.0, 0.5, 0.8, 0.3, 0.0]),  # noise is added in between
    ],
)
def test_what_does_not_answer_is_not_known(name, sigmas):
    assert asked(getattr(samplers_double, name), sigmas) is None


@pytest.mark.parametrize(
    ("call", "time", "is_told"), [(0, 1.6, True), (0, 1.61, True), (0, 1.7, False), (1, 1.6, False), (7, 0.03, False)]
)
def test_a_call_is_believed_where_its_noise_is_the_one_that_was_told(call, time, is_told):
    assert Course.of_noise(KARRAS).agrees(call, time) == is_told


@pytest.mark.parametrize("timestep", [0, 1, 200, 500, 999])
def test_the_noise_of_a_timestep_is_that_of_the_trained_schedule(timestep):
    sigma = (1 / ALPHA_BARS[timestep] - 1) ** 0.5
    assert noise_gone(1.0001 * sigma) == pytest.approx(1 - (timestep + 1) / 1000)
    assert noise_gone(0.9999 * sigma) == pytest.approx(1 - timestep / 1000)
