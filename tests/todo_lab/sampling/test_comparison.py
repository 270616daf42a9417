"""Speed and seconds come from steps side by side; the times here are given, not measured."""

from dataclasses import replace

import pytest
import torch

from todo_core import Settings, __version__
from todo_lab.sampling import passes
from todo_lab.sampling.comparison import Timing, compare_all, plain_steps
from todo_lab.sampling.passes import hires_pass
from todo_lab.sampling.request import Request

ASKED = Request(prompt="a red circle over stripes", seed=5, steps=2, hires_steps=3, width=64, height=64)
TODO = Settings(factor_1=2, start=0, end=1)


@pytest.mark.parametrize(
    ("baseline", "reduced", "kinds", "speed"),
    [
        # the machine was busy in the last steps; sums say 2.3x, medians of both passes alone 1.9x
        ([1.0, 1.0, 4.0, 4.0, 4.0], [0.5, 0.5, 2.0, 2.0, 1.2], (), 2),
        # one slow step changes nothing
        ([1.0] * 5, [0.5, 0.5, 9.0, 0.5, 0.5], (), 2),
        ([1.0, 1.0, 9.0, 1.0, 1.0], [0.5] * 5, (), 2),
        # the median of all would be that of a predicted step, which takes next to no time
        ([1.0] * 5, [1.0, 1.2, 0.01, 0.01, 0.01], ["computed"] * 2 + ["predicted"] * 3, 5 / (2 * 1.1 + 3 * 0.01)),
        # the reduction ends before the last steps
        ([1.0] * 10, [0.25] * 7 + [1.0] * 3, [True] * 7 + [False] * 3, 10 / 4.75),
        # on a busy machine, steps with all the work count as the baseline's; elsewhere their time tells what hooks cost
        ([1.0, 2.0] * 5, [0.5, 1.0] * 3 + [2.54, 4.0, 2.54, 2.0], [True] * 6 + [()] * 4, 10 / 7),
        ([1.0] * 10, [0.5] * 7 + [1.2] * 3, [True] * 7 + [()] * 3, 10 / 7.1),
    ],
)
def test_the_speed_compares_steps_side_by_side_by_their_kind(baseline, reduced, kinds, speed):
    assert Timing(baseline, reduced, kinds).speed == pytest.approx(speed)


def test_seconds_are_those_without_disturbance():
    assert Timing([1.0, 1.0, 4.0, 4.0, 4.0], [0.5, 0.5, 2.0, 2.0, 1.2]).seconds == (20.0, 10.0)


@pytest.mark.parametrize(
    ("reduced", "kinds", "uncertain"),
    [
        ([0.5] * 8, (), False),
        ([0.5, 0.52, 0.48, 0.5], (), False),
        ([0.5, 0.7, 0.4, 0.9], (), True),
        ([0.5] * 7 + [9.0], (), False),
        ([0.5] * 7 + [2.54, 0.97, 2.54], [1] * 7 + [()] * 3, True),  # a rare kind
        ([0.001, 0.009, 0.003, 0.006] + [0.5] * 4, [1] * 4 + [2] * 4, False),  # one that takes next to no time
    ],
)
def test_the_speed_is_uncertain_where_steps_of_a_kind_that_takes_time_disagree(reduced, kinds, uncertain):
    assert Timing([1.0] * len(reduced), reduced, kinds).is_uncertain is uncertain


def test_a_step_that_is_alone_of_its_kind_may_be_off_as_the_baseline_is():
    reduced, kinds = [0.01] * 4 + [0.5], [1] * 4 + [2]
    assert not Timing([1.0] * 5, reduced, kinds).is_uncertain
    assert Timing([1.0, 1.2, 1.0, 1.3, 1.0], reduced, kinds).is_uncertain


@pytest.fixture
def unet_calls(monkeypatch, pocket):
    """Keys at level 1 of each UNet call of the hires size, as the steps run."""
    calls = []
    true_guided = passes._guided

    def guided(model, scheduler, latents, *rest):
        if latents.shape[-1] == 16:
            attention = model.target.model.diffusion_model.input_blocks[1][1].transformer_blocks[0].attn1
            seen = attention.to_k.register_forward_pre_hook(lambda module, args: calls.append(args[0].shape[1]))
            try:
                return true_guided(model, scheduler, latents, *rest)
            finally:
                seen.remove()
        return true_guided(model, scheduler, latents, *rest)

    monkeypatch.setattr(passes, "_guided", guided)
    return calls


def test_steps_alternate_after_a_warm_up_and_all_presets_share_one_baseline(pocket, unet_calls):
    one, other = compare_all(pocket, ASKED, [TODO, replace(TODO, factor_1=4)])
    assert unet_calls == [256, 64, 16] * 4  # a warm-up step and three steps of each
    assert one.timing == Timing(one.baseline.step_seconds, one.reduced.step_seconds, [(0,)] * 3)
    assert one.baseline is other.baseline
    assert one.reduced is not other.reduced
    (alone,) = compare_all(pocket, ASKED, [replace(TODO, factor_1=4)])
    assert torch.equal(other.reduced.latents, alone.reduced.latents)


def test_a_reduced_first_pass_leads_to_the_reduced_hires_pass_alone(pocket):
    (found,) = compare_all(pocket, ASKED, [replace(TODO, passes="all")])
    (plain,) = compare_all(pocket, ASKED, [TODO])
    assert torch.equal(found.baseline.latents, plain.baseline.latents)
    assert not torch.equal(found.reduced.latents, plain.reduced.latents)
    assert found.reduced_first.record.steps == {0, 1}


@pytest.mark.parametrize(("acts_in", "start"), [("first", 0.5), ("hires", 0.67), ("all", 0.67)])
def test_the_infotext_of_an_image_tells_its_last_pass_that_was_reduced(pocket, acts_in, start):
    (found,) = compare_all(pocket, ASKED, [replace(TODO, passes=acts_in, start="auto")])
    written = passes.what_ran(found.reduced_first, found.reduced)
    assert (written["ToDo start"], written["ToDo version"]) == (f"auto ({start})", __version__)
    assert passes.what_ran(found.first, found.baseline) == {}


def test_a_call_is_of_the_kind_of_its_step(pocket):
    """Heun calls the model twice in each step but the last."""
    settings = replace(TODO, end=0.5)
    (found,) = compare_all(pocket, replace(ASKED, sampler="Heun"), [settings])
    assert found.reduced.steps == [0, 1, 1, 2, 2]
    assert found.reduced.kinds == [(0,), (0,), (0,), (), ()]


@pytest.mark.parametrize(("speed", "count"), [(1.0, 5), (1.26, 4), (1.24, 4), (1.2, 5), (1.7, 3)])
def test_plain_steps_take_the_time_of_a_variant_or_up_to_one_step_more(pocket, monkeypatch, speed, count):
    monkeypatch.setattr(Timing, "speed", speed)
    request = replace(ASKED, hires_steps=5)
    (found,) = compare_all(pocket, request, [TODO])
    plain = plain_steps(pocket, found)
    monkeypatch.undo()
    assert plain.name == f"{count} plain steps"
    assert plain.timing.speed == pytest.approx(5 / count)
    alone = hires_pass(pocket, replace(request, hires_steps=count), found.first)
    assert torch.equal(plain.reduced.latents, alone.latents)
    assert plain.baseline is found.baseline
