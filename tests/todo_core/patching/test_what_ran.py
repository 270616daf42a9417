"""What a pass tells once it has run: its settings, its line, and why nothing or less was done."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from todo_core import Settings
from todo_core.patching import what_ran
from todo_core.patching.driver import Driver
from todo_core.patching.plan import Pass, Plan
from todo_core.patching.record import Record
from todo_core.patching.space.level_plan import LevelPlan
from todo_core.patching.time.memory import ROWS
from todo_core.patching.time.prediction_plan import DEEP, WHOLE, PredictionPlan
from todo_core.patching.what_ran import NO_STEP, NOT_CALLED, OUTSIDE, TOO_FEW
from todo_core.token_grid import TokenGrid

GRID = TokenGrid(64, 64)
STEPS = 8
LEVEL_1, LEVEL_2 = (LevelPlan(level, 5, "downsample", GRID, 1024, 2) for level in (1, 2))
SIMILAR = replace(LEVEL_1, method="similarity", amount=0.5)
WHY = "this model was trained at 512 x 512"
FULL = replace(LEVEL_1, keys=4096, why=WHY)
BOTH = {"whole": ([3, 5], [0, 1, 2, 4, 6, 7]), "deep": ([4], [0, 1, 2, 6, 7])}
DEEP_RAN = {"deep": ([3, 5], [0, 1, 2, 4, 6, 7])}
OFF = "the interval is 1"


def record_of(*levels, networks=("UNet",), notes=(), begun_anew=None, error=math.inf, **parts):
    """What ran: these levels in three steps, and of each part calls that were predicted or computed, by step."""
    made = Record({level: {0, 1, 2} for level in levels}, {*networks}, [*notes], begun_anew=begun_anew)
    for name, (predicted, computed) in parts.items():
        made.parts[name].predicted_calls, made.parts[name].computed_calls = Counter(predicted), Counter(computed)
    made.deep.least_error = error
    return made


def plan_of(levels=(LEVEL_1,), whole=None, deep=None, tolerance=None, steps=STEPS, **settings):
    """A plan with these reasons why a part is not predicted."""
    parts = (PredictionPlan(what, 2, tolerance, why=why) for what, why in ((WHOLE, whole), (DEEP, deep)))
    return Plan(Settings(**settings), Pass(GRID, steps), tuple(levels), 0.0, 1.0, *parts)


HAND = {"factor_1": 2, "factor_2": 2, "start": 0, "end": 1, "interval": 1}
AS_HAND = {"method": "downsample", "factor 1": "2", "factor 2": "2", "start": "0", "end": "1", "interval": "1"}
WINDOW = {"start": "auto (0)", "end": "auto (1)"}


@pytest.mark.parametrize(
    ("ran", "settings", "written"),
    [
        (record_of(), HAND, {}),
        (record_of(LEVEL_1, LEVEL_2), HAND, AS_HAND),
        # levels that were not reduced; auto would reduce level 1 where its factor is 1
        (record_of(LEVEL_1), HAND, {name: text for name, text in AS_HAND.items() if name != "factor 2"}),
        (record_of(LEVEL_2), HAND | {"factor_1": 1}, AS_HAND | {"factor 1": "1"}),
        # a method that did not take over
        (record_of(LEVEL_1, LEVEL_2), HAND | {"end": 0.5, "afterwards": "similarity"}, AS_HAND | {"end": "0.5"}),
        (
            record_of(LEVEL_1, SIMILAR, LEVEL_2),
            HAND | {"end": 0.5, "afterwards": "similarity", "ratio_1": 0.25},
            AS_HAND | {"end": "0.5", "afterwards": "similarity", "ratio 1": "0.25"},
        ),
        # what auto has used
        (record_of(LEVEL_1), {}, {"method": "downsample", "factor 1": "auto (2)", "interval": "auto (1)"} | WINDOW),
        (
            record_of(**BOTH),
            {"factor_1": 1},
            {"factor 1": "1", "interval": "auto (6 of 8 and 5 of 6)", "predict": "auto (whole and deep)"},
        ),
        # nothing but predictions: the image repeats without a method
        (record_of(**DEEP_RAN), {"interval": 2}, {"interval": "2", "predict": "auto (deep)"}),
        (
            record_of(**DEEP_RAN),
            {"interval": 2, "method": "similarity"},
            {"factor 1": "1", "factor 2": "1", "interval": "2", "predict": "auto (deep)"},
        ),
        # predictions that were asked for and did not happen, or happened in another way
        (record_of(LEVEL_1, LEVEL_2), HAND | {"interval": 2}, AS_HAND),
        (record_of(**DEEP_RAN), {"interval": 2, "predict": "whole"}, {"interval": "2", "predict": "deep"}),
    ],
)
def test_the_settings_that_had_an_effect_are_written(ran, settings, written):
    plan = plan_of(whole="this sampler adds noise", **settings)
    found = what_ran.as_infotext(ran, plan, ran.computed(STEPS))
    assert {key.removeprefix("ToDo "): text for key, text in found.items()} == written
    assert what_ran.as_infotext(ran, None, []) == {}


TOKENS = "level 1 from 4,096 to 1,024 tokens (downsample) in 3 of 8 steps"
LAYERS = "layers below level 1 computed in 6 of 8 steps"


@pytest.mark.parametrize(
    ("ran", "steps", "skipped", "words"),
    [
        (record_of(LEVEL_1), 8, 0, [TOKENS]),
        (record_of(LEVEL_1, replace(LEVEL_1, blocks=3)), 8, 0, [TOKENS]),  # a refiner's
        (record_of(LEVEL_1), 1, 0, [TOKENS.replace("of 8 steps", "of 1 step")]),
        (record_of(LEVEL_1, networks=("UNet", "ControlNet")), 8, 0, [TOKENS, "ControlNet too"]),
        (record_of(LEVEL_1, networks=("ControlNet",)), 8, 0, [TOKENS, "in ControlNet alone"]),
        (record_of(LEVEL_1, **DEEP_RAN), 8, 0, [TOKENS, LAYERS]),
        (record_of(**BOTH), 8, 0, ["whole model computed in 6 of 8 steps, layers below level 1 in 5 of these 6"]),
        # as with Heun in ComfyUI
        (
            record_of(deep=([2, 3], [0, 0, 1, 1, 2, 3])),
            4,
            0,
            ["layers below level 1 computed in 6 of 8 model calls"],
        ),
        (
            record_of(deep=([3], [0, 1, 2, 5])),
            12,
            7,
            ["layers below level 1 computed in 4 of 12 steps", "the model was not called in 7"],
        ),
    ],
)
def test_what_ran_is_told_in_words(ran, steps, skipped, words):
    assert what_ran.in_words(ran, steps, skipped=skipped) == words


BY_HAND, AUTO_PLAN = {"interval": 2, "whole": "only layers are asked for"}, {"whole": "it adds noise", "deep": None}
NOTE = "they need 4 steps: nothing is predicted"
MEASURED = {"whole": "it adds noise", "tolerance": 0.08}  # half of the user's


@pytest.mark.parametrize(
    ("ran", "plan", "steps", "why"),
    [
        # nothing at all: the plan's reason, notes, the window, the prediction, the layers
        (record_of(), plan_of([FULL], whole=OFF, deep=OFF, interval=1), (8, 8), [WHY]),
        (record_of(), plan_of([FULL], deep="short", **BY_HAND, factor_1=1), (8, 8), ["short"]),
        (record_of(notes=["a note", "another"]), plan_of(), (8, 8), ["a note; another"]),
        (record_of(notes=[NOTE]), plan_of(deep="they need 4 steps", **BY_HAND), (8, 0), [OUTSIDE]),
        (record_of(), None, (8, 8), [NO_STEP]),
        (record_of(), plan_of(), (0, 0), [NO_STEP]),
        (record_of(), plan_of(), (8, 8), [TOO_FEW]),
        (record_of(begun_anew=ROWS), plan_of(), (8, 8), [ROWS]),
        (record_of(), plan_of(whole=OFF, deep=OFF), (8, 8), [NOT_CALLED]),
        # the error that was above the tolerance, in the user's terms; below it, another cause
        (record_of(error=0.102), plan_of(**MEASURED), (8, 8), ["error 0.21, tolerance 0.16"]),
        (record_of(error=0.203), plan_of(**MEASURED | {"tolerance": 0.0}), (8, 8), ["error 0.21, tolerance 0.16"]),
        (record_of(error=0.05), plan_of(**MEASURED), (8, 8), [TOO_FEW]),
        (record_of(error=0.102, begun_anew=ROWS), plan_of(**MEASURED), (8, 8), ["error 0.21, tolerance 0.16"]),
        # less than could be
        (record_of(LEVEL_1), plan_of(**BY_HAND), (8, 8), [f"nothing predicted: {TOO_FEW}"]),
        (record_of(LEVEL_1, begun_anew=ROWS), plan_of(**BY_HAND), (8, 8), [f"nothing predicted: {ROWS}"]),
        (
            record_of(LEVEL_1, begun_anew=ROWS, **DEEP_RAN),
            plan_of(**BY_HAND),
            (8, 8),
            [f"predictions began anew: {ROWS}"],
        ),
        (record_of(LEVEL_1, notes=[NOTE]), plan_of(deep="they need 4 steps", **BY_HAND), (8, 8), [NOTE]),
        (record_of(LEVEL_1), plan_of(whole=OFF, deep=OFF, interval=1), (8, 8), []),
        (record_of(LEVEL_1, **DEEP_RAN), plan_of(**AUTO_PLAN), (8, 8), ["no whole step predicted: it adds noise"]),
        (
            record_of(LEVEL_1),
            plan_of(whole="it is short", deep="little work"),
            (8, 8),
            ["no whole step predicted: it is short"],
        ),
        (record_of(notes=["a note"], **BOTH), plan_of([FULL]), (8, 8), [f"all tokens kept: {WHY}", "a note"]),
        (record_of(**BOTH), plan_of([FULL], factor_1=1), (8, 8), []),
        # of a pass that has not ended
        (record_of(LEVEL_1, notes=["a note"]), None, (8, 8), ["a note"]),
    ],
)
def test_it_says_why_nothing_or_less_was_done(ran, plan, steps, why):
    assert what_ran.why_less(ran, plan, *steps) == why


def test_a_plan_has_a_note_where_what_was_asked_for_by_name_cannot_be_predicted():
    """The note is told in the panel too, before anything has run."""
    assert plan_of(deep="they need 4 steps", **BY_HAND).note == NOTE
    assert plan_of(deep="it", whole="it", predict="deep").note == "it: nothing is predicted"
    assert plan_of(deep="it", whole="it").note is None
    assert plan_of(**BY_HAND).note is None
    assert plan_of([FULL], deep="it", whole="it", interval=2).note is None  # it is the reason


def test_the_line_of_a_pass_that_was_interrupted_gives_no_reasons_but_notes():
    driver = Driver("the pass", Settings())
    driver.interrupted = True
    assert driver.status(8) == "ToDo reduced nothing in the pass: it was interrupted"
    driver.record = record_of(LEVEL_1, notes=["a note"])
    assert driver.status(8) == f"ToDo reduced the pass: {TOKENS}; a note; interrupted"
    driver.interrupted = False
    assert driver.status(8) == f"ToDo reduced the pass: {TOKENS}; a note"


SMALL = plan_of([FULL], steps=3, whole=OFF, deep=OFF)
LARGE = plan_of([LEVEL_1], steps=3, whole=OFF, deep=OFF)
IDLE = f"nothing to reduce at 512 x 512: {WHY}"


def passes(plan, count=1, steps=3, acted=False):
    """The notes of a session after so many passes, before and after their end is told."""
    told = Record(ran_in={LEVEL_1: {0}} if acted else {})
    idle, known = what_ran.IdleNotes(told), replace(plan, facts=replace(plan.facts, steps=steps))
    for number in range(count):
        if number:
            idle.end()
        for step in range(3):
            idle.add(known, step, planned=bool(plan.at(step / 3)))
    before_the_end = list(told.notes)
    idle.end()
    return before_the_end, told.notes


def test_a_pass_that_reduced_nothing_is_told_once_and_at_its_end():
    assert passes(SMALL) == passes(SMALL, 3) == ([IDLE], [IDLE])
    assert passes(SMALL, steps=None) == ([], [IDLE])
    assert passes(SMALL, 2, steps=None) == ([IDLE], [IDLE])
    outside = [f"nothing was reduced at 512 x 512: {OUTSIDE}"]
    assert passes(replace(LARGE, start=0.9))[1] == outside


def test_other_passes_are_not_told():
    assert passes(LARGE, acted=True) == passes(LARGE, steps=None, acted=True) == ([], [])
    assert passes(SMALL, 0) == ([], [])
    assert passes(SMALL, steps=4) == ([], [])  # it was interrupted
