"""What a pass tells once it has run: its settings, its line, and why nothing or less was done."""

import math
import re
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from tests import models
from todo_core import Settings
from todo_core.patching import what_ran
from todo_core.patching.driver import Driver
from todo_core.patching.facts import Pass
from todo_core.patching.plan import Plan
from todo_core.patching.record import Record
from todo_core.patching.space.level_plan import LevelPlan
from todo_core.patching.time.prediction_plan import PARTS, PredictionPlan
from todo_core.patching.work import Layout
from todo_core.reason import Reason, measured
from todo_core.token_grid import TokenGrid

GRID = TokenGrid(64, 64)
LEVEL_1, LEVEL_2 = (LevelPlan(level, 5, "downsample", GRID, 1024, 2) for level in (1, 2))
SIMILAR = replace(LEVEL_1, method="similarity", amount=0.5)
OFF, NOISE, TRAINED = Reason.INTERVAL_1, Reason.GROWS, Reason.TRAINED_AT(512)
NO_STEP, NOT_CALLED, OUTSIDE, TOO_FEW = Reason.NO_STEP, Reason.NOT_CALLED, Reason.OUTSIDE, Reason.TOO_FEW
ROWS, NAN, TURNS = Reason.ROWS, Reason.IS_NAN, Reason.TAKES_TURNS
FULL = replace(LEVEL_1, keys=4096, why=TRAINED)
DEEP_RAN = {"deep": ([3, 5], [0, 1, 2, 4, 6, 7])}  # predicted in two steps, and computed in six
BOTH_RAN = {"whole": ([3, 5], [0, 1, 2, 4, 6, 7]), "deep": ([4], [0, 1, 2, 6, 7])}


def ran(*levels, networks=("UNet",), notes=(), begun_anew=None, error=math.inf, **parts):
    """A record of these levels in three steps, and of these predicted and computed calls, by step."""
    made = Record({level: {0, 1, 2} for level in levels}, {*networks}, [*notes], begun_anew=begun_anew)
    for name, (predicted, computed) in parts.items():
        made.parts[name].predicted_calls, made.parts[name].computed_calls = Counter(predicted), Counter(computed)
    made.deep.least_error = error
    return made


def plan(level=LEVEL_1, whole=None, deep=None, tolerance=None, **settings):
    """A plan with these reasons why a part is not predicted."""
    parts = (PredictionPlan(what, 2, tolerance, why=why) for what, why in zip(PARTS, (whole, deep), strict=True))
    return Plan(Settings(**settings), Pass(GRID, 8), (level,), 0.0, 1.0, *parts)


HAND = {"factor_1": 2, "factor_2": 2, "start": 0, "end": 1, "interval": 1}
REST = {"method": "downsample", "start": "0", "end": "1", "interval": "1"}
WRITTEN, BOTH_LEVELS = REST | {"factor 1": "2"}, REST | {"factor 1": "2", "factor 2": "2"}
THEN = {"end": 0.5, "afterwards": "similarity", "ratio_1": 0.25}
USED = {"method": "downsample", "factor 1": "auto (2)", "start": "auto (0)", "end": "auto (1)", "interval": "auto (1)"}
BY_2, DEEP_USED = {"interval": 2}, {"interval": "2", "predict": "auto (deep)"}
TWO_PARTS = {"interval": "auto (6 of 8 and 5 of 6)", "predict": "auto (whole and deep)"}


@pytest.mark.parametrize(
    ("record", "settings", "written"),
    [
        (ran(), HAND, {}),
        # levels that were not reduced; auto would reduce level 1 where its factor is 1
        (ran(LEVEL_1), HAND, WRITTEN),
        (ran(LEVEL_2), HAND | {"factor_1": 1}, BOTH_LEVELS | {"factor 1": "1"}),
        # a method that did not take over, and one that did
        (ran(LEVEL_1), HAND | THEN, WRITTEN | {"end": "0.5"}),
        (ran(LEVEL_1, SIMILAR), HAND | THEN, WRITTEN | {"end": "0.5", "afterwards": "similarity", "ratio 1": "0.25"}),
        # what auto has used
        (ran(**BOTH_RAN), {"factor_1": 1}, {"factor 1": "1"} | TWO_PARTS),
        # nothing but predictions: the image repeats without a method
        (ran(**DEEP_RAN), BY_2, DEEP_USED),
        (ran(**DEEP_RAN), BY_2 | {"method": "similarity"}, {"factor 1": "1", "factor 2": "1"} | DEEP_USED),
        # predictions that were asked for and did not happen, or happened in another way
        (ran(LEVEL_1), HAND | BY_2, WRITTEN),
        (ran(**DEEP_RAN), BY_2 | {"predict": "whole"}, {"interval": "2", "predict": "deep"}),
    ],
)
def test_the_settings_that_had_an_effect_are_written(record, settings, written):
    found = what_ran.as_infotext(record, plan(whole=NOISE, **settings), record.counts(8))
    assert {key.removeprefix("ToDo "): text for key, text in found.items()} == written
    assert what_ran.as_infotext(record, None, []) == {}


TOKENS = "level 1 from 4,096 to 1,024 tokens (downsample) in 3 of 8 steps"
LAYERS = "layers below level 1 computed in"


@pytest.mark.parametrize(
    ("record", "steps", "skipped", "words"),
    [
        (ran(LEVEL_1), 1, 0, [TOKENS.replace("of 8 steps", "of 1 step")]),
        (ran(LEVEL_1, networks=("ControlNet",)), 8, 0, [TOKENS, "in ControlNet alone"]),
        (ran(LEVEL_1, **DEEP_RAN), 8, 0, [TOKENS, f"{LAYERS} 6 of 8 steps"]),
        (ran(**BOTH_RAN), 8, 0, ["whole model computed in 6 of 8 steps, layers below level 1 in 5 of these 6"]),
        (ran(**DEEP_RAN), 12, 4, [f"{LAYERS} 6 of 12 steps", "the model was not called in 4"]),
    ],
)
def test_what_ran_is_told_in_words(record, steps, skipped, words):
    assert [*map(str, what_ran.in_words(record, steps, skipped=skipped))] == words


@pytest.mark.parametrize(("part", "reduced"), [("whole", 4), ("deep", 6)])
def test_where_a_samplers_call_is_two_of_the_model_all_counts_are_of_the_models(part, reduced):
    """As with Heun and a negative prompt in a call of its own, if the prompt changes."""
    calls = {part: ([2, 2, 3], [0, 0, 1, 1, 3, 4, 4])}
    tokens, predicted = what_ran.in_words(ran(LEVEL_1, **calls), 5, "model calls")
    assert str(tokens).endswith(f" in {reduced} of 10 model calls")
    assert str(predicted).endswith(" computed in 7 of 10 model calls")


HALF = replace(LEVEL_1, keys=2048)


@pytest.mark.parametrize(
    ("record", "calls"),  # of 8 steps: reduced, without deep layers, both, plain
    [
        (ran(LEVEL_1), (3, 0, 0, 5)),
        (ran(LEVEL_1, deep=([1, 5], [0, 2, 3, 4, 6, 7])), (2, 1, 1, 4)),
        (ran(LEVEL_1, deep=([0, 3, 3], [0, 1, 1, 3])), (2.5, 2 / 3, 0.5, 4 + 1 / 3)),
        (ran(LEVEL_1, networks=("ControlNet",)), None),
        (ran(LEVEL_1, HALF), None),
    ],
)
def test_the_work_that_was_saved_is_that_of_what_ran(record, calls):
    host, made = models.full_layout("SD 1.5"), plan()
    work = partial(Layout.of(host).work, GRID)
    kinds = work([LEVEL_1]), work((), predicts=True), work([LEVEL_1], predicts=True), work(())
    left = calls and sum(count * each for count, each in zip(calls, kinds, strict=True)) / (8 * work(()))
    saved = what_ran.work_saved(record, made, host, 8)
    assert saved == (calls and pytest.approx(1 - left))


def test_layers_that_nobody_can_count_do_not_cost_the_line(monkeypatch, caplog):
    driver, host = Driver("the pass", Settings()), models.full_layout("SD 1.5")
    monkeypatch.setattr(Driver, "host", host)
    monkeypatch.setattr(Driver, "plan", plan(whole=OFF, deep=OFF, interval=1))
    driver.record = ran(LEVEL_1, notes=[NAN])
    driver.interrupted = True
    told = f"{TOKENS}; {NAN}; interrupted"
    assert re.fullmatch(rf"ToDo reduced the pass: \d+ % less work; {re.escape(told)}", str(driver.status(8)))
    monkeypatch.setattr(Layout, "share_saved", lambda *_: 1 / 0)
    assert str(driver.status(8)) == f"ToDo reduced the pass: {told}"
    assert "cannot count" in caplog.text


def test_the_work_in_words():
    assert [str(what_ran.less_work(saved)) for saved in (0.416, 0.004, -0.012)] == [
        "42 % less work",
        "under 1 % less work",
        "1 % more work",
    ]


SHORT = Reason.TOO_FEW_STEPS("layers", 4, 3)
NOTE = Reason.UNPREDICTED(SHORT)
BY_HAND = BY_2 | {"whole": Reason.LAYERS_ALONE}
MEASURED = plan(whole=NOISE, tolerance=0.04)  # half of the user's
ABOVE = Reason.ABOVE(measured(0.21), 0.08)


@pytest.mark.parametrize(
    ("record", "made", "why"),
    [
        # nothing at all: the plan's reason, notes, the prediction, the layers
        (ran(), plan(FULL, OFF, OFF, interval=1), [TRAINED]),
        (ran(), plan(FULL, deep=SHORT, factor_1=1, **BY_HAND), [SHORT]),
        (ran(), None, [NO_STEP]),
        (ran(), plan(), [TOO_FEW]),
        # the error that was above the tolerance, in the user's terms; below it, another cause
        (ran(error=0.102, begun_anew=ROWS), MEASURED, [ABOVE]),
        (ran(error=0.203), plan(whole=NOISE, tolerance=0.0), [ABOVE]),
        (ran(error=0.03), MEASURED, [TOO_FEW]),
        (ran(LEVEL_1, error=0.102), plan(tolerance=0.16), [Reason.NOTHING_PREDICTED(TOO_FEW)]),
        # less than could be
        (ran(begun_anew=ROWS, **DEEP_RAN), plan(**BY_HAND), [Reason.BEGAN_ANEW(ROWS)]),
        (ran(LEVEL_1, notes=[NOTE]), plan(deep=SHORT, **BY_HAND), [NOTE]),
        (ran(LEVEL_1, **DEEP_RAN), plan(whole=NOISE), [Reason.NO_WHOLE_STEP(NOISE)]),
        (ran(notes=[NAN], **BOTH_RAN), plan(FULL), [Reason.TOKENS_KEPT(TRAINED), NAN]),
        # of a pass that has not ended
        (ran(LEVEL_1, notes=[NAN]), None, [NAN]),
    ],
)
def test_it_says_why_nothing_or_less_was_done(record, made, why):
    found = what_ran.why_less(record, made, 8, 8)
    assert (found, [*map(str, found)]) == (why, [*map(str, why)])


def test_what_is_outside_the_window_or_did_not_run_is_said_to_be_so():
    made, record = plan(deep=SHORT, **BY_HAND), ran(notes=[NOTE])
    assert made.note == NOTE
    assert what_ran.why_less(record, made, 8, 0) == [OUTSIDE]
    assert what_ran.why_less(record, made, 0, 0) == [NO_STEP]


def passes(made, count=1, steps=8, acted=False):
    """The notes of a session after so many passes of 8 steps, before and after their end is told."""
    told, known = ran(*[LEVEL_1] * acted), replace(made, facts=replace(made.facts, steps=steps))
    idle = what_ran.IdleNotes(told)
    for number in range(count):
        if number:
            idle.end()
        for step in range(8):
            idle.add(known, step, planned=bool(known.at(step / 8)))
    before_the_end = list(told.notes)
    idle.end()
    return before_the_end, told.notes


SMALL = replace(plan(FULL, OFF, OFF), settings=Settings(interval=1))
LARGE = replace(plan(whole=OFF, deep=OFF), settings=Settings(interval=1))
IDLE = [f"nothing to reduce at 512 x 512: {TRAINED}"]


def test_a_pass_that_reduced_nothing_is_told_once_and_at_its_end():
    assert passes(SMALL) == passes(SMALL, 3) == (IDLE, IDLE)
    assert passes(SMALL, steps=None) == ([], IDLE)
    assert passes(SMALL, 2, steps=None) == (IDLE, IDLE)
    for window, why in ({"start": 0.9}, OUTSIDE), ({"end": 0.5}, NOT_CALLED):
        assert passes(replace(LARGE, **window))[1] == [f"nothing was reduced at 512 x 512: {why}"]


def test_other_passes_are_not_told():
    assert passes(LARGE, acted=True) == passes(LARGE, steps=None, acted=True) == ([], [])
    assert passes(SMALL, 0) == passes(SMALL, steps=9) == ([], [])  # the latter was interrupted
