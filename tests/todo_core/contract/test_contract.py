"""What every program that makes images relies on: the same cases for each of ``doubles.py``, and for real programs.

A case sees the UNet's calls from outside. The program must then tell its user what the case saw. ``host.run`` checks
that nothing of ours is left on a model or in memory, whatever has happened.
"""

import re

import pytest
import torch

from todo_core.patching.time.prediction_plan import NAMES
from todo_core.reason import Reason

OURS = {"factor_1": 2, "factor_2": 1, "interval": 1, "start": 0, "end": 1}
PREDICTS = OURS | {"interval": 2}
WHOLE, DEEP = PREDICTS | {"predict": "whole"}, NAMES["deep"]
AUTO = OURS | {"interval": "auto", "tolerance": 0.1}
WRITTEN = {"method": "downsample", "factor 1": "2", "interval": "1", "start": "0", "end": "1"}  # of OURS in an infotext
BOTH_PASSES = WRITTEN | {"passes": "all"}
IMAGES = {}  # of undisturbed runs


def undisturbed(host, settings=None, **job):
    """The images that the program makes where nothing happens."""
    key = type(host), str(settings), str(job)
    if key not in IMAGES:
        IMAGES[key] = host.run(settings, **job).images
    return IMAGES[key]


def equal(one, other):
    pairs = zip(map(torch.as_tensor, one), map(torch.as_tensor, other), strict=True)
    return bool(one) and all(torch.equal(*pair) for pair in pairs)


def tells(made, settings):
    """Whether the infotext, if the program writes one, has these of our settings and no other."""
    ours = {key.removeprefix("ToDo "): value for key, value in (made.params or {}).items() if key.startswith("ToDo")}
    ours.pop("version", None)
    return made.params is None or ours == settings


# what is reduced, and when --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["keys/values", "all"])
def test_tokens_are_reduced_in_each_step_inside_the_window_and_the_next_image_is_as_before(host, target):
    made = host.run(OURS | {"start": 0.25, "end": 0.75, "target": target})
    assert made.parts == [1] * 2 + [4] * 4 + [1] * 2
    assert made.told == made.seen == (4, 0)
    assert made.params is None or made.params["ToDo factor 1"] == "2"
    after = host.run()
    assert not equal(made.images, after.images)
    assert equal(after.images, undisturbed(host))
    assert after.parts == [1] * 8
    assert after.line == ""
    assert tells(after, {})


def test_outside_the_window_and_without_todo_nothing_is_on_the_model(host):
    assert {call.hooks for call in host.run().calls} == {0}
    if host.waits_with is not None:
        hooks = [call.hooks for call in host.run(OURS | {"start": 0.25, "end": 0.75}).calls]
        assert {*hooks[:2], *hooks[6:]} == {host.waits_with}


def test_a_window_by_noise_follows_the_timestep(host):
    made = host.run(OURS | {"end": 0.5, "window": "noise"})
    assert made.parts == [4 if call.time > 500 else 1 for call in made.calls]
    assert {*made.parts} == {1, 4}


def test_another_method_takes_over_past_the_end(host):
    made = host.run(OURS | {"end": 0.5, "afterwards": "similarity", "ratio_1": 0.25})
    assert made.parts == [4] * 4 + [4 / 3] * 4
    assert {name for name in ("downsample", "similarity") if name in made.line} == {"downsample", "similarity"}
    assert tells(made, BOTH_PASSES | {"end": "0.5", "afterwards": "similarity", "ratio 1": "0.25"})


@pytest.mark.parametrize("passes", ["first", "hires", "all"])
def test_passes(host, passes):
    made = host.run(OURS, kind="hires", passes=passes, steps=4)
    first, hires = ([call for call in made.calls if call.tokens == tokens] for tokens in (64, 256))
    assert [call.part for call in first] == [1 if passes == "hires" else 4] * 4
    assert [call.part for call in hires] == [1 if passes == "first" else 4] * 4
    assert made.calls == first + hires
    assert len(re.findall("in 4 of 4 steps", made.line)) == 1 + (passes == "all")


@pytest.mark.parametrize("passes", ["first", "hires"])
def test_img2img_is_reduced_whatever_the_passes_of_txt2img(host, passes):
    made = host.run(OURS, kind="img2img", passes=passes, steps=4)
    assert made.parts == [4] * 4
    assert made.told == made.seen == (4, 0)
    assert tells(made, WRITTEN)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (OURS | {"factor_1": 1}, "the factor of level 1 is 1"),
        ({"interval": 1}, "this model was trained at 512 x 512"),
        (OURS | {"start": 0.9}, "no step is between Start and End"),
        ({}, "auto predicts nothing in fewer than 6 steps, and the sampler makes 4"),
    ],
    ids=["factor", "auto", "window", "steps"],
)
def test_where_nothing_is_reduced_the_image_is_the_baseline_and_the_line_says_why(host, settings, why):
    made = host.run(settings, steps=4)
    assert made.parts == [1] * 4
    assert equal(made.images, undisturbed(host, steps=4))
    assert why in made.line
    assert tells(made, {})


# predictions ----------------------------------------------------------------------------------------------------------


def test_every_second_step_is_predicted_below_level_1(host):
    expected = undisturbed(host, PREDICTS)
    made = host.run(PREDICTS)
    assert equal(made.images, expected)
    assert made.parts == [4] * 8
    assert made.deep == [0, 1, 3, 5, 7]
    assert made.told == made.seen == (8, 3)
    assert tells(made, BOTH_PASSES | {"factor 2": "1", "interval": "2", "predict": "auto (deep)"})


def test_a_second_order_sampler(host):
    """Each step but the last has two calls. diffusers lists the second one with the next step's first: a step to it."""
    made = host.run(PREDICTS | {"start": 0.25}, sampler="heun")
    steps = [made.calls[first : first + 2] for first in range(0, len(made.calls), 2)]
    reduced = sum(any(call.part > 1 for call in step) for step in steps)
    predicted = sum(not any(call.deep for call in step) for step in steps)
    of_list = made.seen[0], len(made.calls) - len(made.deep)  # some of its steps have calls of both kinds
    assert made.told in ((reduced, predicted), of_list)
    assert reduced
    assert predicted
    assert len(made.deep) < len(made.calls)
    first, calls = made.parts.count(1), len(made.calls)
    assert made.parts == [1] * first + [4] * (calls - first)
    assert abs(first - calls / 4) < 1
    assert made.calls[-1].deep


def test_too_few_steps_for_the_interval_are_told(host):
    made = host.run(PREDICTS, steps=3)
    assert made.parts == [4] * 3
    assert made.deep == [0, 1, 2]
    assert tells(made, BOTH_PASSES)
    made = host.run(PREDICTS | {"factor_1": 1}, steps=3)
    assert f"{DEEP} need 4 or more steps, and the sampler makes 3" in made.line


@pytest.mark.parametrize(("sampler", "ran"), [("euler", [0, 1, 2, 4, 6, 7]), ("ancestral", [0, 1, 3, 5, 7])])
def test_whole_steps_are_predicted(host, sampler, ran):
    made = host.run(WHOLE, sampler=sampler)
    if "all" in host.not_whole:
        assert made.told == made.seen == (8, 3)
        assert host.not_whole["all"] in made.line
        return
    assert [number for number, call in enumerate(made.calls) if call.ran] == ran
    assert made.told == (len(ran), 8 - len(ran))
    assert made.params is None or made.params["ToDo predict"] == "whole"


def test_auto_predicts_whole_steps_and_layers_in_those_that_run(host):
    made = host.run(AUTO, steps=12)
    ran, deep = sum(call.ran for call in made.calls), len(made.deep)
    assert made.told[0] == made.seen[0] == ran
    has_deep_work = deep < ran if host.has_deep_work is None else host.has_deep_work
    assert (deep < ran) == has_deep_work
    if "all" in host.not_whole:
        told = rf": \d+ % less work; .*{DEEP} computed in {deep} of 12 steps; no whole step predicted: "
        assert re.search(told + re.escape(host.not_whole["all"]), made.line) or not has_deep_work
        assert ran == 12
        return
    whole, layers = f"whole model computed in {ran} of 12 steps", f", {DEEP} in {deep} of these {ran}"
    if host.counts_steps:
        whole, layers = f"whole model predicted in {12 - ran} steps", f"; {DEEP} predicted in {ran - deep} steps"
    assert whole + layers * has_deep_work in made.line
    written = f"auto ({ran} of 12{f' and {deep} of {ran}' * has_deep_work})"
    assert made.params is None or made.params["ToDo interval"] == written
    assert ran < 12


@pytest.mark.parametrize("beside", ["forward", "counter"])
def test_where_whole_steps_cannot_be_predicted_layers_below_level_1_are(host, beside):
    """A foreign forward stays where it is."""
    made = host.run(WHOLE, beside=beside)
    assert made.parts == [4] * 8
    assert made.told == made.seen == (8, 3)
    assert f"{host.not_whole[beside]}: {DEEP} are predicted" in made.line
    assert equal(made.images, host.run(PREDICTS, beside=beside).images)
    assert made.params is None or made.params["ToDo predict"] == "deep"


@pytest.mark.parametrize(("changes", "computed"), [({5}, [0, 1, 3, 5, 6, 7, 9]), ({*range(10)}, [*range(10)])])
def test_a_prompt_that_changes_in_mid_pass_begins_the_predictions_anew(host, changes, computed):
    """As [a:b:0.5] and [a|b] do; tokens stay reduced."""
    made = host.run(PREDICTS, steps=10, events=dict.fromkeys(changes, "prompt"))
    assert made.deep == computed
    assert made.parts == [4] * 10
    assert made.told == made.seen
    told = "nothing predicted" if len(computed) == 10 else "predictions began anew"
    assert host.counts_steps or f"{told}: {Reason.CONDITIONING}" in made.line


# other things in the same pass ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"method": "similarity"}, {"interval": 2}], ids=["tokens", "similar", "deep"])
def test_an_image_does_not_depend_on_its_batch(host, more):
    batch = host.run(OURS | more, seeds=(4, 5, 6), steps=5).images
    alone = host.run(OURS | more, seeds=(5,), steps=5).images
    torch.testing.assert_close(batch[1], alone[0], atol=2e-4, rtol=1e-3)


def test_halves_of_the_guidance_in_calls_of_their_own_are_treated_alike(host):
    made = host.run(PREDICTS, split=True)
    assert made.parts == [4] * 16
    assert made.deep == [0, 1, 2, 3, 6, 7, 10, 11, 14, 15]
    assert made.told == (8, 3)
    for one, other in zip(made.images, undisturbed(host, PREDICTS), strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)
    one, other = (host.run(AUTO, steps=12, seeds=(1, 2), split=split) for split in (True, False))
    assert [(call.ran, call.deep) for call in one.calls[::2]] == [(call.ran, call.deep) for call in other.calls]
    assert one.line == other.line


def test_a_refiner_is_reduced_from_its_first_call_and_told_in_one_line(host):
    made = host.run(PREDICTS, events={4: "swap"})
    assert made.parts == [4] * 8
    assert made.deep == [0, 1, 3, 4, 5, 7]
    assert made.told == made.seen == (8, 2)
    assert len(re.findall("level 1 from", made.line)) == 1
    assert "less work" not in made.line  # nobody counts that of two models


def test_a_controlnet_is_reduced_in_the_same_steps_and_told(host):
    made = host.run(OURS | {"end": 0.5}, beside="controlnet")
    assert made.parts == [4] * 4 + [1] * 4
    assert made.inside == [16] * 4 + [64] * 4
    assert "ControlNet too" in made.line
    assert "ControlNet" not in host.run(OURS).line


@pytest.mark.parametrize("event", ["cached", "cached inside"])
def test_steps_that_another_cache_answers_count_neither_as_computed_nor_as_predicted(host, event):
    made = host.run(PREDICTS, steps=10, events={4: event, 6: event})
    assert [number for number, call in enumerate(made.calls) if not call.ran] == [4, 6]
    assert made.told == made.seen
    assert made.seen[0] == 8
    assert made.seen[1] > 0
    assert host.counts_steps or "; the model was not called in 2" in made.line
    made = host.run(PREDICTS | {"factor_1": 1}, steps=10, events=dict.fromkeys((2, 4, 6, 8), event))
    assert host.counts_steps or "another cache answers for the model in 4 of 10 steps" in made.line


# ends before the end --------------------------------------------------------------------------------------------------


def test_a_cancel_leaves_nothing_and_the_line_tells_what_ran(host):
    expected = undisturbed(host, PREDICTS, steps=5)
    made = host.run(PREDICTS, steps=5, events={3: "cancel"})
    assert made.deep == [0, 1]
    if made.line:
        assert made.told == made.seen == (3, 1)
    if host.tells_cancels:
        assert made.line.endswith("; interrupted")
    assert not host.tells_cancels or made.params is None or made.params["ToDo factor 1"] == "2"
    assert "nothing predicted" not in host.run(PREDICTS, steps=5, events={2: "cancel"}).line, "it might have been"
    made = host.run(PREDICTS | {"factor_1": 1}, steps=5, events={1: "cancel"})
    assert not host.tells_cancels or made.line.endswith("it was interrupted")
    assert equal(host.run(PREDICTS, steps=5).images, expected)


@pytest.mark.parametrize("event", ["stop before", "stop", "fail before", "fail"])
def test_an_end_in_the_fourth_call_goes_on_and_leaves_nothing(host, event):
    """A stop is a BaseException, for which torch runs no hook."""
    expected = undisturbed(host, PREDICTS, steps=5)
    made = host.run(PREDICTS, steps=5, events={3: event})
    is_caught = host.survives_a_stop and "stop" in event
    assert bool(made.error) != is_caught
    assert len(made.calls) == 4
    assert made.parts == [4] * 3 + [0 if "before" in event else 4]
    assert bool(made.line) == (is_caught or host.tells_after_errors), "the others tell the error alone"
    if made.line:
        assert made.told[0] == made.seen[0]
        assert made.told[1] == 1
    assert equal(host.run(PREDICTS, steps=5).images, expected)


def test_a_stop_between_the_two_calls_of_a_step(host):
    expected = undisturbed(host, PREDICTS, split=True, steps=5)
    host.run(PREDICTS, split=True, steps=5, events={7: "stop before"})
    assert equal(host.run(PREDICTS, split=True, steps=5).images, expected)


@pytest.mark.parametrize("settings", [PREDICTS, WHOLE])
def test_an_image_after_one_that_was_stopped_in_its_second_step_is_that_of_a_fresh_patch(host, settings):
    """It begins with the timestep of the last call."""
    expected = undisturbed(host, settings)
    assert equal(host.run(settings, seeds=(2,), again=1, events={1: "stop before"}).images, expected)


@pytest.mark.parametrize("event", ["stop", "fail", "cancel"])
def test_an_end_in_the_hires_pass_leaves_nothing_for_the_next_image(host, event):
    expected = undisturbed(host, PREDICTS, kind="hires", steps=5)
    assert len(host.run(PREDICTS, kind="hires", steps=5, events={8: event}).calls) in (8, 9)
    assert equal(host.run(PREDICTS, kind="hires", steps=5).images, expected)


@pytest.mark.parametrize(("first", "beside"), [(1, ""), (4, ""), (4, "controlnet")])
def test_an_error_of_ours_is_told_and_costs_no_image(host, first, beside):
    """In Python the user gets the error. A ControlNet that runs inside the call has it first."""
    expected = undisturbed(host, OURS)
    made = host.run(OURS, events={first - 1: "ours"}, beside=beside)
    if host.raises_our_errors:
        assert "ZeroDivisionError" in made.error
    else:
        assert made.parts == [4] * (first - 1) + [1] * (9 - first)
        assert {*made.inside[first:]} <= {64}
        assert equal(made.images, undisturbed(host)) == (first == 1)
        assert re.fullmatch("ToDo stopped in the .*: division by zero", made.line)
        assert made.params is None or ("ToDo factor 1" in made.params) == (first > 1)
    assert equal(host.run(OURS).images, expected)
