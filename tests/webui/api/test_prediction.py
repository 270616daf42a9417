"""Predictions on a real WebUI beside what the contract says: with its samplers and prompts."""

import pytest

from todo_core.reason import Reason

from ..helpers import FACTOR_2, REDUCED, assert_reduced, todo_keys

STEPS = {"hr_second_pass_steps": 8}
DEEP = {"factor_1": 1, "factor_2": 1, "interval": 2}  # no reduction beside it
WITH_TODO = DEEP | FACTOR_2
WHOLE = DEEP | {"predict": "whole"}
HELD = "whole steps of which an image is held"
NO_NOISE = ["DPM++ 2M", "Euler", "DDIM", "UniPC"]
REQUESTS = {
    **{f"whole steps, {sampler}": (WHOLE, {"sampler_name": sampler}, WHOLE) for sampler in NO_NOISE},
    "noise": (WHOLE, {"sampler_name": "DPM++ 2M SDE"}, HELD),
    "errors that grow": (WHOLE, {"sampler_name": "LMS"}, DEEP),
    "churn": (WHOLE, {"s_churn": 5}, HELD),
    "deep layers, AND": (WITH_TODO, {"prompt": "a cat AND a dog :0.5", "batch_size": 2}, DEEP),
    "whole steps, two calls": (WHOLE, {"negative_prompt": "many words, " * 90}, WHOLE),  # a step on A1111
}


def planned(settings):
    """The computed ones of eight steps."""
    return [True, True, True, False, True, False, True, True] if settings == WHOLE else [True, True, *[False, True] * 3]


def runs_of(events, kind=""):
    """How many self-attentions at level 1, and how many below it, ran in each step, in networks of this class."""
    calls = [[call for call in event["calls"] if kind in call["class"]] for event in events]
    queries = [[queries for call in step for queries, _ in call["lengths"]] for step in calls]
    finest = max(max(step, default=0) for step in queries)
    return [sum(q == finest for q in step) for step in queries], [sum(q < finest for q in step) for step in queries]


def starts_twice(webui, sampler):
    """Whether the first step has two calls of the UNet."""
    return (webui.family, sampler) == ("a1111", "UniPC")


def assert_planned(events, settings, first=1):
    """The last call is computed. Level 1 runs in each call, but for predicted whole steps, in which nothing does.

    The ``first`` step has so many calls.
    """
    expected, (shallow, deep) = [True] * (first - 1) + planned(settings), runs_of(events)
    assert len(deep) >= len(expected) - 2, "UniPC makes one call less than it has steps, DDIM two"
    expected = [*expected[: len(deep) - 1], True]
    assert [bool(count) for count in deep] == expected
    assert [bool(count) for count in shallow] == ([True] * len(deep) if settings == DEEP else expected)
    assert all(len(set(counts) - {0}) == 1 for counts in (shallow, deep))


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(webui, name):
    settings, request, expected = REQUESTS[name]
    hires = REDUCED if settings == WITH_TODO else set()
    result = assert_reduced(webui, settings, hires, differs=True, **STEPS, **request)
    assert_planned(result.hires, expected, 1 + starts_twice(webui, request.get("sampler_name")))
    grows = f"{Reason.GROWS}: layers below level 1 are predicted" in result.comments
    assert grows == ((settings, expected) == (WHOLE, DEEP))
    ran = "deep" if expected == DEEP else "whole"
    assert todo_keys(result.infotext).get("ToDo predict") == (ran if settings == WHOLE else f"auto ({ran})")


@pytest.mark.parametrize(("prompt", "anew"), [("a [cat:dog:1.5]", 3), ("a [cat|dog]", 8)])
def test_steps_are_computed_where_the_prompt_changes(webui, prompt, anew):
    """1.5 is half of the hires pass: three whole steps are computed from the change on."""
    result = assert_reduced(webui, WHOLE, set(), differs=anew < 8, prompt=prompt, **STEPS)
    runs = [bool(count) for count in runs_of(result.hires)[1]]
    assert runs == ([True] * 8 if anew == 8 else [True, True, True, False, *[True] * 4]), result.comments
